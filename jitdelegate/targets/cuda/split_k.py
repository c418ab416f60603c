"""Adds up sums that several blocks made of parts of K, in a fixed order, and finishes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.conv_problem import Problem
from jitdelegate.targets.cuda.device_code import F32, Code, Value
from jitdelegate.targets.cuda.element import Element, common_width, load, store
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.template import Definition, Template, TensorPointer
from jitdelegate.targets.cuda.writer import Writer

THREADS = 128
FLOAT = 4


@dataclass(frozen=True, eq=False, slots=True)
class Combine(Template):
    """output = epilogue(bias + sum of parts), `run` neighbouring channels in each thread."""

    family: ClassVar[str] = "contract_combine"
    output: Element
    run: int
    epilogue: Epilogue

    @property
    def threads(self) -> int:
        return THREADS

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def combine(code: Code, output: Value, parts: Value, bias: Value, extra: list[Value], sizes: Any) -> None:
            self._write(code, output, parts, bias, extra, *sizes)

        def kernel(output, parts, bias, extra, sizes):  # type: ignore[no-untyped-def]
            combine(output, parts, bias, extra, sizes)

        return Definition(kernel, (*("pointer",) * 3, ("pointer", len(self.epilogue.operands)), ("int32", 3)))

    def _write(self, code: Code, output: Value, parts: Value, bias: Value, extra: list[Value], *sizes: Value) -> None:
        count, elements, channels = sizes
        first = (code.special("ctaid.x") * THREADS + code.special("tid.x")) * self.run
        with code.when(first < elements):
            pixel = first // channels
            channel = first - pixel * channels
            start = load(code, Element.FLOAT32, bias, channel, self.run)
            with code.carried(count, start) as (part, sums, following):
                more = code.load(parts, (part * elements + first) * FLOAT, F32, self.run)
                following[:] = [a + b for a, b in zip(sums, more, strict=True)]
            results = self.epilogue.apply(code, following, pixel, channel, channels, extra)
            store(code, self.output, results, output, first)


def write_combine(writer: Writer, problem: Problem, sums: TensorPointer, parts: int) -> None:
    """The launch that finishes a problem whose `sums` are f32[parts, pixels, channels]."""
    epilogue, extra = writer.epilogue(problem.node)
    images, height, width, channels = problem.target
    run = common_width((channels,), 4)
    elements = images * height * width * channels
    writer.launch(
        Combine(writer.element(problem.output), run, epilogue),
        (-(-elements // (run * THREADS)), 1, 1),
        (TensorPointer(problem.output), sums, writer.constant(problem.bias), *extra, parts, elements, channels),
    )
