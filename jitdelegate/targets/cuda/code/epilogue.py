"""Epilogues: the scalar expression that a kernel applies to its own results before it stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.ir.expr import RESULT, Expr
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, load
from jitdelegate.targets.cuda.code.expression import emit
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.planning.epilogue import Reach


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The epilogue of a template: `expr` over Arg(0), the kernel's result, and Arg(1 + k), epilogue operand k.

    Attributes:
        operands: for each epilogue operand, how it is read and stored.
        dtype: the type of the kernel's result.
        numbers: the types of constants that the expression reads as Args after those of the operands.
    """

    expr: Expr = RESULT
    operands: tuple[tuple[Reach, Element], ...] = ()
    dtype: str = "float32"
    numbers: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[Kind, ...]:
        """The kinds of the kernel's parameters that `apply` takes as `extra`."""
        pitches = sum(reach is Reach.ELEMENT for reach, _ in self.operands)
        return ("pointer",) * len(self.operands) + ("int32",) * pitches + self.numbers

    def apply(
        self,
        code: Code,
        results: Sequence[Value],
        pixel: Value,
        channel: Value,
        extra: Sequence[Value],
    ) -> list[Value]:
        """Applies the expression to the results for neighbouring channels, from `channel` on, of one pixel.

        Args:
            pixel: number of the output's pixel, counted over N, H and W.
            channel: a multiple of len(results), as are the channels of a pixel.
            extra: pointers to the epilogue operands; the distance between neighbouring pixels of each that has as many
                elements as the output; the numbers.
        """
        width, rest = len(results), iter(extra[len(self.operands) :])
        columns = [
            read_operand(
                code, reach, element, base, pixel, channel, next(rest) if reach is Reach.ELEMENT else pixel, width
            )
            for (reach, element), base in zip(self.operands, extra, strict=False)
        ]
        numbers = list(rest)
        types = [self.dtype, *(element.dtype for _, element in self.operands), *self.numbers]
        rows = zip(results, *columns, strict=True)
        return [emit(code, self.expr, [*row, *numbers], types, self.dtype) for row in rows]


def read_operand(
    code: Code,
    reach: Reach,
    element: Element,
    base: Value,
    pixel: Value,
    channel: Value,
    pitch: Value,
    width: int,
) -> list[Value]:
    """An epilogue operand's values for `width` neighbouring channels, from `channel` on, of one pixel."""
    if reach is Reach.ELEMENT:
        return load_run(code, element, base, pixel * pitch + channel, width)
    if reach is Reach.CHANNEL:
        return load_run(code, element, base, channel, width)
    index = pixel if reach is Reach.PIXEL else code.integer(0)
    return load(code, element, base, index) * width


def load_run(code: Code, element: Element, base: Value, index: Value, count: int) -> list[Value]:
    """The values of `count` neighbouring elements, read in as few accesses as possible."""
    step = min(count, element.widest)
    return [x for at in range(0, count, step) for x in load(code, element, base, index + at, step)]
