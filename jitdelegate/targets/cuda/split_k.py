"""Split-K: adds up the sums that several blocks computed of parts of K, in a fixed order, and applies the epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.targets.cuda.conv_problem import ConvProblem
from jitdelegate.targets.cuda.cost import COPIED
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import Element, common_width, load, store
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.sizes import Kind
from jitdelegate.targets.cuda.template import Template, TensorPointer
from jitdelegate.targets.cuda.writer import Writer

FLOAT = 4


@dataclass(frozen=True, eq=False, slots=True)
class Combine(Template):
    """output = epilogue(bias + sum of parts), `run` neighbouring channels per thread; `sums` is the type of sums and
    bias."""

    family: ClassVar[str] = "contract_combine"
    threads: ClassVar[int] = 128
    sums: Element
    output: Element
    run: int
    epilogue: Epilogue

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        return "pointer", "pointer", "pointer", extra, "int32", "int32", "int32"

    def write(
        self,
        code: Code,
        output: Value,
        parts: Value,
        bias: Value,
        extra: Sequence[Value],
        count: Value,
        elements: Value,
        channels: Value,
    ) -> None:
        """Args:
        count: number of parts per sum.
        elements, channels: elements of the output, and channels of a pixel of the output.
        """
        first = self.thread(code) * self.run
        with code.when(first < elements):
            pixel = first // channels
            channel = first - pixel * channels
            start = load(code, self.sums, bias, channel, self.run)
            with code.carried(count, start) as (part, sums, following):
                more = load(code, self.sums, parts, part * elements + first, self.run)
                following[:] = [a + b for a, b in zip(sums, more, strict=True)]
            results = self.epilogue.apply(code, following, pixel, channel, channels, extra)
            store(code, self.output, results, output, first)


def combining_cycles(gpu: Gpu, parts: int, results: int, launch: int) -> float:
    """Estimated cycles of the launch that adds up `parts` parts of `results` sums, with `launch` cycles for the launch
    itself; 0 for one part."""
    return launch + (parts + 1) * results * FLOAT / (COPIED * gpu.multiprocessors) if parts > 1 else 0.0


def write_combine(writer: Writer, problem: ConvProblem, sums: TensorPointer, parts: int) -> None:
    """Writes the launch that finishes a problem whose `sums` are [parts, pixels, channels]."""
    epilogue, extra = writer.epilogue(problem.node)
    images, height, width, channels = problem.target
    run = common_width((channels,), 4)
    elements = images * height * width * channels
    (phase,) = problem.phases
    template = Combine(problem.sums, writer.element(problem.output), run, epilogue)
    writer.launch(
        template,
        template.grid(elements // run),
        (TensorPointer(problem.output), sums, writer.constant(phase.bias), *extra, parts, elements, channels),
    )
