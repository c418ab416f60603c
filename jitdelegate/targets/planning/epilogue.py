"""Epilogue operands: which element of an operand belongs to which element of a kernel's output. Epilogues without their
constants, for code that layers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from jitdelegate.ir.expr import Arg, Const, Expr, argument_types, converted
from jitdelegate.ir.forms import IndexMap, Shape
from jitdelegate.ir.quantized import Rescale

Number = tuple[str, float]
"""(type, value) of a constant: "float32" or "int32"."""
SHARED = ("float32", "int32")
"""Types of constants that layers pass to shared code."""


class Reach(Enum):
    """Index of the operand's element that belongs to channel c of pixel p, with C channels per pixel."""

    ELEMENT = "element"  # p * C + c
    CHANNEL = "channel"  # c
    PIXEL = "pixel"  # p
    SCALAR = "scalar"  # 0


@dataclass(frozen=True, slots=True)
class EpilogueOperand:
    """An operand of `shape` that is read at the index of an output of shape `output`.

    Attributes:
        axes: per axis of the output, the operand's matching axis; None where the operand is repeated.
    """

    shape: Shape
    output: Shape
    axes: tuple[int | None, ...]

    @classmethod
    def of(cls, index_map: IndexMap, shape: Shape, output: Shape) -> EpilogueOperand | None:
        """The operand read through `index_map`; None if the map shifts, pads, strides or transposes it."""
        if index_map.fill is not None or any(index_map.starts) or any(step != 1 for step in index_map.steps):
            return None
        shift, along = len(output) - len(shape), dict[int, int]()
        for axis, (dim, size) in enumerate(zip(index_map.dims, shape, strict=True)):
            if dim == shift + axis:
                along[dim] = axis
            elif dim >= 0 and size != 1:
                return None
        return cls(shape, output, tuple(map(along.get, range(len(output)))))

    @property
    def reach(self) -> Reach | None:
        """The formula for the element's index in a dense operand; None if no `Reach` fits."""
        if prod(self.shape) == 1:
            return Reach.SCALAR
        moved = [1 if axis is None else size for axis, size in zip(self.axes, self.output, strict=True)]
        if prod(moved) != prod(self.shape):
            return None  # only the first slice of an axis is read
        has_channels, pixels = moved[-1] == self.output[-1], prod(moved[:-1])
        if pixels == prod(self.output[:-1]):
            return Reach.ELEMENT if has_channels else Reach.PIXEL
        return Reach.CHANNEL if has_channels and pixels == 1 else None


def reach(index_map: IndexMap, shape: Shape, output: Shape) -> Reach | None:
    """How an epilogue reads a dense operand of `shape`; None if no `Reach` fits."""
    operand = EpilogueOperand.of(index_map, shape, output)
    return operand.reach if operand else None


def without_constants(expr: Expr, types: Sequence[str]) -> tuple[Expr, tuple[Number, ...]]:
    """The expression with Args in place of its constants of float32 and int32, and these constants.

    All constants stay beside a Rescale by constants: hardly any other layer has these, and code is faster where it is
    known how large numbers can be.

    Args:
        types: of the Args that the expression has; the new ones follow them.
    """
    if _has_constant_rescale(expr):
        return expr, ()
    numbers: list[Number] = []  # equal ones are not joined, so that layers where some happen to be equal share code too
    known: dict[tuple[Expr, str], Expr] = {}

    def numbered(part: Const, dtype: str) -> Expr:
        if dtype not in SHARED:
            return part
        numbers.append((dtype, converted(np.asarray(part.value), dtype).item()))
        return Arg(len(types) + len(numbers) - 1)

    def replaced(part: Expr, dtype: str) -> Expr:
        if isinstance(part, Const):
            return numbered(part, dtype)
        if (part, dtype) not in known:
            known[part, dtype] = part.rebuilt(tuple(map(replaced, part.parts, part_types(part))))
        return known[part, dtype]

    def part_types(part: Expr) -> tuple[str, ...]:
        return argument_types(part, types)

    result = replaced(expr, "float32")
    return result, tuple(numbers)


def _has_constant_rescale(expr: Expr) -> bool:
    is_own = isinstance(expr, Rescale) and any(isinstance(part, Const) for part in expr.parts)
    return is_own or any(map(_has_constant_rescale, expr.parts))
