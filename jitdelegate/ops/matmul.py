"""Products of two matrices; both are computed at run time, or one is a constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, Expr, binary, evaluate
from jitdelegate.ir.forms import Contract, IndexMap, Map, MatMul, Reduce
from jitdelegate.ir.graph import ABSENT
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.quantization import (
    centred,
    factor_problems,
    multiple,
    per_tensor_problems,
    reach,
    result_problems,
)
from jitdelegate.ops.registry import HYBRID, Lowering, Op, moved, op, view
from jitdelegate.ops.rounding import AWAY, EVEN, rounding
from jitdelegate.ops.scales import scale, zero

ADJOINT = ("adj_x", "adj_y")
DEPTH = 256
"""Products of numbers below 256 whose sum is below 2**24."""
MAX_MATRIX_RANK = 5
"""The highest rank of an operand; LiteRT refuses more."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The shapes of both operands and whether each one is stored transposed."""

    a: Shape
    b: Shape
    adj_x: bool
    adj_y: bool

    @property
    def left(self) -> Shape:
        """Rows and depth."""
        return self.a[-2:][::-1] if self.adj_x else self.a[-2:]

    @property
    def right(self) -> Shape:
        """Depth and columns."""
        return self.b[-2:][::-1] if self.adj_y else self.b[-2:]

    @property
    def output(self) -> Shape:
        """The shape of the product."""
        return (*np.broadcast_shapes(self.a[:-2], self.b[:-2]), self.left[0], self.right[1])


@op("BATCH_MATMUL")
class BatchMatMul(Op):
    """a[..., M, K] times b[..., K, N]; the leading axes broadcast. With `adj_x`, a is stored as [..., K, M]; with
    `adj_y`, b is stored as [..., N, K]."""

    folds = 0
    least = most = 2
    weights: ClassVar[tuple[int, ...]] = (1,)
    hybrid: ClassVar[tuple[str, ...]] = HYBRID
    quantized = ("int8", "int16")
    cases = (
        Case(((3, 4), (4, 5))),
        Case(((2, 7, 9), (2, 9, 17))),
        Case(((2, 7, 9), (2, 17, 9)), {"adj_y": True}),
        Case(((2, 9, 7), (2, 9, 17)), {"adj_x": True}),
        Case(((2, 9, 7), (2, 17, 9)), {"adj_x": True, "adj_y": True}),
        Case(((2, 3, 5, 4), (2, 1, 4, 6))),
        Case(((3, 5, 4), (2, 1, 4, 6))),
        Case(((5, 4), (2, 3, 4, 6))),
        Case(((2, 1, 3, 5, 4), (1, 2, 1, 4, 6))),
        Case(((4, 1, 8), (4, 33, 8)), {"adj_y": True}),
        Case(((5, 1, 8), (1, 33, 8)), {"adj_y": True}),
        Case(((2, 3, 8), (8, 1))),
        Case(((2, 9, 8), (2, 8, 1))),
        Case(((2, 8, 9), (2, 1, 8)), {"adj_x": True, "adj_y": True}),
        Case(((2, 6, 8), Weights((8, 5)))),
        Case(((2, 2, 6, 8), Weights((5, 8))), {"adj_y": True}),
        Case(((6, 8), Weights((1, 1, 8, 5)))),
        Case(((2, 6, 8), Weights((2, 5, 8))), {"adj_y": True}),
        Case((Weights((6, 8)), (3, 8, 5))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        shapes = a, b = call.shape(0), call.shape(1)
        if not 2 <= min(map(len, shapes)) <= max(map(len, shapes)) <= MAX_MATRIX_RANK:
            yield f"BATCH_MATMUL: the shapes are {list(a)} and {list(b)}, expected ranks 2 to {MAX_MATRIX_RANK}."
        for left, right in zip(a[-3::-1], b[-3::-1], strict=False):
            if left != right and 1 not in (left, right):
                yield f"BATCH_MATMUL: the leading axes of {list(a)} and {list(b)} do not broadcast."
        sides = _sides(call)
        if sides.left[1] != sides.right[0]:
            yield f"BATCH_MATMUL: rows of {sides.left[1]} do not fit columns of {sides.right[0]}."

    def shape(self, call: Call) -> Shape:
        return _sides(call).output

    def work(self, call: Call) -> int:
        return prod(call.output.shape) * _sides(call).left[1]

    def lowering(self, call: Call) -> Lowering:
        """A right operand that all products share multiplies all their rows at once; a constant one is a filter."""
        sides, a, b = _sides(call), call.index(0), call.index(1)
        if prod(sides.b[:-2]) > 1 or sides.adj_x:
            return _product(a, b, sides)
        constant = call.constant(1)
        if constant is not None:
            matrix = constant.reshape(sides.b[-2:])
            weights = matrix if sides.adj_y else np.ascontiguousarray(matrix.T)
            return Lowering(Contract(), (a, weights, ABSENT), (*sides.a[:-1], len(weights)))
        joined = replace(sides, a=(prod(sides.a[:-1]), sides.a[-1]), b=sides.b[-2:])
        return _product(_viewed(a, sides.a, joined.a), _viewed(b, sides.b, joined.b), joined)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        a, b = call.operands
        yield from per_tensor_problems(call, a, b, call.output)
        if a.dtype == "int16" and (zero(a) or zero(b) or zero(call.output)):
            yield "BATCH_MATMUL of int16 has zero points, expected 0."
        factor = _factor(call)
        yield from factor_problems(call, factor)
        if rounding(call, a.dtype) == AWAY:
            yield from result_problems(call, _sides(call).left[1] * reach(a) * reach(b) * factor)

    def quantized_lowering(self, call: Call) -> Lowering:
        """Exact sums of stored numbers without their zero points, rounded once."""
        sides, rule = _sides(call), rounding(call, call.tensor(0).dtype)
        if call.graph.quantized.multiplies_bytes and call.tensor(0).dtype == "int8":
            return _of_bytes(call, sides, rule)
        total = _sums(call, sides)
        found, _ = multiple(X, np.asarray(_factor(call)), rule, call.output, "NONE", 1)
        return mapped(found, (total, sides.output), shape=sides.output, dtype=call.output.dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        flags = (attrs.get(name, False) for name in ADJOINT)
        a, b = (
            np.asarray(array.swapaxes(-1, -2) if flag else array, np.float64)
            for array, flag in zip(given(arrays), flags, strict=True)
        )
        return [(a @ b).astype(np.float32)]


def _sides(call: Call) -> Sides:
    return Sides(call.shape(0), call.shape(1), *(bool(call.option(name, False)) for name in ADJOINT))


def _product(a: int | Lowering | np.ndarray, b: int | Lowering | np.ndarray, sides: Sides) -> Lowering:
    """The product as its form writes it: a single column becomes the single row of the transposed product, where
    elements lie side by side."""
    *leading, rows, columns = sides.output
    if columns == 1 and rows > 1:
        return Lowering(MatMul(adj_x=not sides.adj_y, adj_y=not sides.adj_x), (b, a), (*leading, 1, rows))
    return Lowering(MatMul(adj_x=sides.adj_x, adj_y=sides.adj_y), (a, b), sides.output)


def _viewed(index: int, shape: Shape, wanted: Shape) -> int | Lowering:
    return index if shape == wanted else view(index, wanted)


def _factor(call: Call) -> float:
    a, b = call.operands
    if rounding(call, a.dtype) == EVEN:
        return float(scale(a) * scale(b) / scale(call.output))
    return float(scale(a)) * float(scale(b)) / float(scale(call.output))


def _of_bytes(call: Call, sides: Sides, rule: str) -> Lowering:
    """Sums of products of bytes. The form takes the zero point of a from them, the epilogue that of b:
    (a - zero) * b summed up, minus the zero point of b times a - zero summed up."""
    (left, right), depth = call.operands, sides.left[1]
    a: int | Lowering = call.index(0)
    if sides.adj_x:
        last = len(sides.a) - 1
        shape = (*sides.a[:-2], sides.a[-1], sides.a[-2])
        a = moved(a, IndexMap.along(*range(last - 1), last, last - 1), shape, left.dtype)
        sides = replace(sides, a=shape, adj_x=False)
    total: Expr = RESULT
    extra, maps = list[Lowering](), list[IndexMap]()
    if zero(right):
        rows = (*sides.a[:-1], 1)
        sums = Lowering(Reduce(kind="sum", axes=(len(rows) - 1,), accumulator="int32"), (a,), rows, "int32")
        kept = (*sides.output[:-1], 1)
        extra.append(moved(sums, IndexMap.broadcast(rows, kept), kept, "int32"))
        maps.append(IndexMap.broadcast(kept, sides.output))
        total = total - (Arg(1) - Const(depth * zero(left))) * Const(zero(right))
    found, _ = multiple(total, np.asarray(_factor(call)), rule, call.output, "NONE", 1 + len(extra))
    form = MatMul(found, tuple(maps), adj_y=sides.adj_y, accumulator="int32", input_zero=zero(left))
    return Lowering(form, (a, call.index(1), *extra))


def _sums(call: Call, sides: Sides) -> Lowering:
    """The products of two integer matrices: int32, of int16 matrices int64.

    They are computed as products of floats. A float32 holds the sums of some DEPTH products of bytes; deeper products
    are cut along their depth. The upper and the lower bytes of int16 are matrices of their own.
    """
    a, b = call.operands
    wide = a.dtype == "int16"
    parts = [[(8, _upper(X)), (0, _lower(X))] if wide else [(0, centred(X, side))] for side in (a, b)]
    depth, dtype = sides.left[1], "int64" if wide else "int32"
    total: Lowering | None = None
    for (left, first), (right, second) in product(*parts):
        for start in range(0, depth, DEPTH):
            stop = min(start + DEPTH, depth)
            sums = _exact(call, sides, (first, second), (start, stop))
            here = Cast(X, dtype) * Const(1 << left + right) if left + right else Cast(X, dtype)
            added = [(sums, sides.output)] if total is None else [(sums, sides.output), (total, sides.output)]
            total = mapped(here if total is None else here + Y, *added, shape=sides.output, dtype=dtype)
    assert total is not None
    return total


def _exact(call: Call, sides: Sides, formulas: tuple[Expr, Expr], part: tuple[int, int]) -> Lowering:
    """The product of a part of both matrices' depth, with an integer formula for each element of either."""
    axes = -2 if sides.adj_x else -1, -1 if sides.adj_y else -2
    a, b = (_as_floats(call, operand, formulas[operand], axes[operand], part) for operand in (0, 1))
    assert a.shape and b.shape
    found = _product(a, b, replace(sides, a=a.shape, b=b.shape))
    assert isinstance(found.form, MatMul)
    whole = replace(found, form=replace(found.form, whole=True), dtype="float32")
    return whole if whole.shape == sides.output else view(whole, sides.output)


def _as_floats(call: Call, operand: int, formula: Expr, axis: int, part: tuple[int, int]) -> Lowering | np.ndarray:
    """A part of an operand along an axis, as float32."""
    own, known, (start, stop) = call.shape(operand), call.constant(operand), part
    if known is not None:
        return evaluate(Cast(formula, "float32"), [known.take(range(start, stop), axis)])
    shape, starts = list(own), [0] * len(own)
    shape[axis], starts[axis] = stop - start, start
    access = IndexMap.along(*range(len(own)), starts=tuple(starts))
    return Lowering(Map(Cast(formula, "float32"), (access,)), (call.index(operand),), tuple(shape), "float32")


def _upper(value: Expr) -> Expr:
    """An int16 divided by 256, rounded down."""
    return binary("shift_right", Cast(value, "int32"), Const(8))


def _lower(value: Expr) -> Expr:
    return binary("and", Cast(value, "int32"), Const(255))
