"""Split-K: several blocks compute the sums of parts of K. They are added up in a fixed order: by the blocks themselves,
where they form a cluster, or by a second launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.targets.cuda.code.cost import COPIED
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, common_width, load, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template, TensorPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem

FLOAT = 4
FEWEST_TILES, FEWEST_OF_CLUSTER = 4, 2
"""Fewest tiles of K that are worth a block of their own."""
PARTS = (2, 3, 4, 6, 8)
"""Most blocks that share out K; every GPU that has clusters runs eight together."""


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
        return "pointer", "pointer", "pointer", extra, "int32", "int32", "int32", "int32"

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
        pitch: Value,
    ) -> None:
        """Args:
        count: number of parts per sum.
        elements, channels: elements of the output, and channels of a pixel of the output.
        pitch: elements between pixels of the output.
        """
        first = self.thread(code) * self.run
        with code.when(first < elements):
            pixel = first // channels
            channel = first - pixel * channels
            start = load(code, self.sums, bias, channel, self.run)
            with code.carried(count, start) as (part, sums, following):
                more = load(code, self.sums, parts, part * elements + first, self.run)
                following[:] = [a + b for a, b in zip(sums, more, strict=True)]
            results = self.epilogue.apply(code, following, pixel, channel, extra)
            store(code, self.output, results, output, pixel * pitch + channel)


def possible_parts(gpu: Gpu, tiles: int) -> list[int]:
    """Numbers of blocks that may share out the tiles of K; each block has at least one."""
    fewest = FEWEST_OF_CLUSTER if gpu.has_clusters else FEWEST_TILES
    return [1, *dict.fromkeys(-(-tiles // -(-tiles // parts)) for parts in PARTS if tiles >= parts * fewest)]


def meeting_cycles(gpu: Gpu, cluster: int) -> float:
    """Estimated cycles that the blocks of a cluster take to add up their sums."""
    return gpu.costs.cluster if cluster > 1 else 0.0


def combining_cycles(gpu: Gpu, parts: int, results: int, launch: int) -> float:
    """Estimated cycles that it takes to add up `parts` parts of `results` sums; 0 for one part.

    Args:
        launch: cycles of a second launch, where blocks form no clusters.
    """
    if parts == 1:
        return 0.0
    if gpu.has_clusters:
        return meeting_cycles(gpu, parts)
    return launch + (parts + 1) * results * FLOAT / (COPIED * gpu.multiprocessors)


def write_combine(writer: Writer, problem: ConvProblem, sums: TensorPointer, parts: int) -> None:
    """Writes the launch that finishes a problem whose `sums` are [parts, pixels, channels]."""
    epilogue, extra = writer.epilogue(problem.node)
    images, height, width, channels = problem.target
    run = common_width((channels, *writer.output_grain(problem.node)), 4)
    elements = images * height * width * channels
    (phase,) = problem.phases
    template = Combine(problem.sums, writer.element(problem.output), run, epilogue)
    pointers = TensorPointer(problem.output), sums, writer.constant(phase.bias), *extra
    sizes = parts, elements, channels, problem.out_pitch
    writer.launch(template, template.grid(elements // run), (*pointers, *sizes))
