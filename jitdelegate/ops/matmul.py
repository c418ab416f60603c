"""Products of two matrices; both are computed at run time, or one is a constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import ABSENT
from jitdelegate.ops.call import Call, Shape, given, scale, zero
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.integer_matmul import IntegerMatMul, Matrix, matrix_product
from jitdelegate.ops.quantization import (
    factor_problems,
    per_tensor_problems,
    reach,
    result_problems,
)
from jitdelegate.ops.registry import HALF, HYBRID, Lowering, Op, op, view
from jitdelegate.ops.rounding import EVEN, rounding

ADJOINT = ("adj_x", "adj_y")
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
    narrow = HALF
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
            return matrix_product(a, b, sides.output, adj_x=sides.adj_x, adj_y=sides.adj_y)
        constant = call.constant(1)
        if constant is not None:
            matrix = constant.reshape(sides.b[-2:])
            weights = matrix if sides.adj_y else np.ascontiguousarray(matrix.T)
            return Lowering(Contract(), (a, weights, ABSENT), (*sides.a[:-1], len(weights)))
        joined = replace(sides, a=(prod(sides.a[:-1]), sides.a[-1]), b=sides.b[-2:])
        left, right = _viewed(a, sides.a, joined.a), _viewed(b, sides.b, joined.b)
        return matrix_product(left, right, joined.output, adj_x=joined.adj_x, adj_y=joined.adj_y)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        a, b = call.operands
        yield from per_tensor_problems(call, a, b, call.output)
        if a.dtype == "int16" and (zero(a) or zero(b) or zero(call.output)):
            yield "BATCH_MATMUL of int16 has zero points, expected 0."
        factor = _factor(call)
        yield from factor_problems(call, factor)
        if rounding(call, a.dtype) != EVEN:
            yield from result_problems(call, _sides(call).left[1] * reach(a) * reach(b) * factor)

    def quantized_lowering(self, call: Call) -> Lowering:
        sides = _sides(call)
        a, b = Matrix.of(call, 0, is_turned=sides.adj_x), Matrix.of(call, 1, is_turned=sides.adj_y)
        return IntegerMatMul(
            call, a, b, sides.output, rounding(call, a.tensor.dtype), np.asarray(_factor(call))
        ).lowering()

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        flags = (attrs.get(name, False) for name in ADJOINT)
        a, b = (
            np.asarray(array.swapaxes(-1, -2) if flag else array, np.float64)
            for array, flag in zip(given(arrays), flags, strict=True)
        )
        return [(a @ b).astype(np.float32)]


def _sides(call: Call) -> Sides:
    return Sides(call.shape(0), call.shape(1), *(bool(call.option(name, False)) for name in ADJOINT))


def _viewed(index: int, shape: Shape, wanted: Shape) -> int | Lowering:
    return index if shape == wanted else view(index, wanted)


def _factor(call: Call) -> float:
    a, b = call.operands
    if rounding(call, a.dtype) == EVEN:
        return float(scale(a) * scale(b) / scale(call.output))
    return float(scale(a) * scale(b)) / float(scale(call.output))
