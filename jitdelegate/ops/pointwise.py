"""The base of all operators that compute each element on its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, arity, evaluate, result_type, substitute
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ops.call import ACTIVATIONS, OPTION, Call, Shape, given
from jitdelegate.ops.registry import Lowering, Op, computed_type

X, Y, Z = Arg(0), Arg(1), Arg(2)
"""The operands at one element, as formulas refer to them."""


class Pointwise(Op):
    """Each output element is computed from one element of each operand.

    The formula is written once: kernels are generated from it, and the reference evaluates it on arrays, which the
    tests compare with LiteRT's kernels.
    """

    takes_empty = True
    formula: ClassVar[Expr]
    """One element of the output; X, Y and Z are the operands."""

    def expression(self, attrs: Mapping[str, Any]) -> Expr:
        """The formula; operators with options in their formula override this method."""
        return self.formula

    def activated(self, attrs: Mapping[str, Any]) -> Expr:
        """The formula with the fused activation."""
        return ACTIVATIONS[attrs.get(OPTION, "NONE")](self.expression(attrs))

    def problems(self, call: Call) -> Iterator[str]:
        shapes = [call.shape(operand) for operand in range(call.count)]
        if not broadcasts(*shapes):
            listed = " and ".join(str(list(shape)) for shape in shapes)
            yield f"{self.name}: the shapes {listed} do not broadcast together."

    def shape(self, call: Call) -> Shape:
        return broadcast(*map(call.shape, range(call.count)))

    def lowering(self, call: Call) -> Lowering:
        return pointwise(self.activated(call.node.attrs), call)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [evaluate(self.activated(attrs), given(arrays))]


def broadcasts(*shapes: Shape) -> bool:
    """Whether arrays of these shapes broadcast together as in numpy."""
    return all(len({*sizes} - {1}) <= 1 for sizes in _columns(shapes))


def broadcast(*shapes: Shape) -> Shape:
    """The shape that these shapes broadcast to; numpy's own function refuses very large ones."""
    return tuple(0 if 0 in sizes else max(sizes) for sizes in _columns(shapes))


def _columns(shapes: Sequence[Shape]) -> list[Shape]:
    """The sizes of all shapes along each axis of the result."""
    rank = max(map(len, shapes))
    return list(zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True))


def mapped(
    formula: Expr, *operands: tuple[int | Lowering | np.ndarray, Shape], shape: Shape, dtype: str = "float32"
) -> Lowering:
    """The formula applied to values of these shapes, which broadcast to `shape`."""
    accesses = tuple(IndexMap.broadcast(own, shape) for _, own in operands)
    return Lowering(Map(formula, accesses), tuple(source for source, _ in operands), shape, dtype)


def pointwise(formula: Expr, call: Call) -> Lowering:
    """The formula applied to all operands, for every element of the output.

    A constant of one element becomes part of the expression, as long as one operand is left to give the type; all other
    operands are read through their broadcast.
    """
    constants = {k: data.flat[0].item() for k in range(call.count) if (data := _number(call, k)) is not None}
    read = [operand for operand in range(call.count) if operand not in constants]
    types = [call.tensor(operand).dtype for operand in read]
    expr = _with(formula, call.count, constants)
    if result_type(expr, types) != call.output.dtype:
        read, expr = list(range(call.count)), formula
    accesses = tuple(IndexMap.broadcast(call.shape(operand), call.output.shape) for operand in read)
    return Lowering(Map(expr, accesses), tuple(map(call.index, read)))


def computed(formula: Expr, dtype: str) -> Expr:
    """A formula of numbers of one type, which kernels may only move: computed in a wider type, then converted once."""
    wide = computed_type(dtype)
    if wide == dtype:
        return formula
    return Cast(substitute(formula, [Cast(Arg(number), wide) for number in range(arity(formula))]), dtype)


def _number(call: Call, operand: int) -> np.ndarray | None:
    """The operand, if it is a constant of one element."""
    data = call.constant(operand)
    return data if data is not None and data.size == 1 else None


def _with(formula: Expr, count: int, constants: Mapping[int, float]) -> Expr:
    """The formula with numbers in place of some of its `count` operands; the other operands are renumbered."""
    numbers = iter(range(count))
    return substitute(formula, [Const(constants[k]) if k in constants else Arg(next(numbers)) for k in range(count)])
