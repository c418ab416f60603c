"""The launch after attention whose keys several blocks share out: adds up their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from jitdelegate.targets.cuda.code.axes import axis_kinds
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import coordinates
from jitdelegate.targets.cuda.code.element import Element, load
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.output import Output
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template


@dataclass(frozen=True, eq=False, slots=True)
class AttentionCombine(Template):
    """output = epilogue(sum over parts of exp(top - highest top) * sums / sum over parts of exp(...) * totals), `run`
    neighbouring columns per thread.

    Attributes:
        axes: number of axes of the rows.
    """

    family: ClassVar[str] = "attention_combine"
    threads: ClassVar[int] = 128
    output: Element
    run: int
    axes: int
    epilogue: Epilogue

    @property
    def parameters(self) -> tuple[Kind, ...]:
        numbers: Kind = ("int32",) * 4
        return "pointer", "pointer", self.epilogue.parameters, "float32", numbers, *axis_kinds(self.axes)

    def write(
        self,
        code: Code,
        output: Value,
        sums: Value,
        extra: Sequence[Value],
        factor: Value,
        numbers: Sequence[Value],
        divisors: Sequence[Value],
        distances: Sequence[Value],
    ) -> None:
        """Args:
        sums: as `AttentionKernel` stores them.
        factor: exponentials are 2 ** (factor * score).
        numbers: parts, rows, columns, and the offset of the first result.
        distances: between results along the axes of rows.
        """
        parts, rows, columns, offset = numbers
        first = self.thread(code) * self.run
        with code.when(first < rows * columns):
            row = first // columns
            column = first - row * columns
            after = parts * rows * columns
            with code.carried(parts, [code.real(-inf)]) as (part, now, tops):
                tops[:] = [code.larger(now[0], self._pair(code, sums, after, part * rows + row)[0])]
            highest = code.select(tops[0].equals(-inf), code.real(0.0), tops[0])
            with code.carried(parts, [code.real(0.0)] * (self.run + 1)) as (part, now, following):
                index = part * rows + row
                top, total = self._pair(code, sums, after, index)
                scale = code.power_of_two((top - highest) * factor)
                own = [*load(code, Element.FLOAT32, sums, index * columns + column, self.run), total]
                following[:] = [code.fma(one, scale, sum_) for one, sum_ in zip(own, now, strict=True)]
            share = 1.0 / following[-1]
            start = offset
            for index, distance in zip(coordinates(code, row, divisors), distances, strict=False):
                start = start + index * distance
            results = [one * share for one in following[:-1]]
            Output(code, self.epilogue, self.output, output, extra, columns).store(results, row, column, 0, start)

    @staticmethod
    def _pair(code: Code, sums: Value, after: Value, index: Value) -> list[Value]:
        """A part's maximum and total of a row."""
        return [load(code, Element.FLOAT32, sums, after + index * 2 + at)[0] for at in range(2)]
