"""Products of two matrices of quantized numbers, computed at run time or int16: exact sums, rounded once.

The product of two int8 is one of bytes. Others are products of floats: a float32 holds the sum of DEPTH products of
bytes, deeper products are cut along their depth, and the upper and the lower bytes of int16 are matrices of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, Expr, binary, evaluate
from jitdelegate.ir.forms import IndexMap, Map, MatMul, Reduce
from jitdelegate.ir.graph import Tensor
from jitdelegate.ops.call import OPTION, Call, Shape, zero
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.quantization import centred, multiple
from jitdelegate.ops.registry import Lowering, moved, view
from jitdelegate.ops.rounding import AWAY, ONCE, UP

DEPTH = 256
"""Products of numbers up to 256 whose sum is at most 2**24."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand of a product.

    Attributes:
        source: where its stored numbers come from; an array where they are known.
        tensor: their type and their zero point.
        is_turned: whether the last two axes are exchanged: a is stored as [..., K, M], or b as [..., N, K].
    """

    source: int | Lowering | np.ndarray
    shape: Shape
    tensor: Tensor
    is_turned: bool = False

    @staticmethod
    def of(call: Call, operand: int, *, is_turned: bool = False) -> Matrix:
        """An operand as it is."""
        known = call.constant(operand)
        source = call.index(operand) if known is None else known
        return Matrix(source, call.shape(operand), call.tensor(operand), is_turned)

    def turned(self) -> Matrix:
        """The same matrices, stored the other way."""
        axes = (*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2)
        shape = tuple(self.shape[axis] for axis in axes)
        if isinstance(self.source, np.ndarray):
            source: Lowering | np.ndarray = np.ascontiguousarray(self.source.transpose(axes))
        else:
            source = moved(self.source, IndexMap.along(*axes), shape, self.tensor.dtype)
        return replace(self, source=source, shape=shape, is_turned=not self.is_turned)

    def floats(self, formula: Expr, axis: int, part: slice) -> Lowering | np.ndarray:
        """The formula of some elements along an axis, as float32."""
        if isinstance(self.source, np.ndarray):
            cut = self.source.take(range(part.start, part.stop), axis)
            return evaluate(Cast(formula, "float32"), [cut])
        shape, starts = list(self.shape), [0] * len(self.shape)
        shape[axis], starts[axis] = part.stop - part.start, part.start
        access = IndexMap.along(*range(len(shape)), starts=tuple(starts))
        return Lowering(Map(Cast(formula, "float32"), (access,)), (self.source,), tuple(shape), "float32")


@dataclass(frozen=True, slots=True)
class IntegerMatMul:
    """A product of a[..., M, K] and b[..., K, N], whose sums are multiplied by a factor and rounded by a rule.

    Attributes:
        output: the shape of the product.
        factor: f64[], or f64[N].
        bias: a tensor of N integers; None without one.
    """

    call: Call
    a: Matrix
    b: Matrix
    output: Shape
    rule: str
    factor: np.ndarray
    bias: int | None = None

    def lowering(self) -> Lowering:
        """The product, rounded, in the type of the node's output."""
        are_bytes = self.a.tensor.dtype == self.b.tensor.dtype == "int8"
        return self._of_bytes() if are_bytes else self._of_floats()

    def _rounded(self, total: Expr, first: int) -> tuple[Expr, tuple[np.ndarray, ...]]:
        """The sums, rounded, and the constants [N] that this reads as operands from number `first` on."""
        return multiple(total, self.factor, self.rule, self.call.output, self.call.option(OPTION, "NONE"), first)

    @property
    def _depth(self) -> int:
        return self.a.shape[-2 if self.a.is_turned else -1]

    def _of_bytes(self) -> Lowering:
        """The form takes the zero point of a from the sums, the epilogue that of b: the sum of (a - zero) * b, minus
        the zero point of b times the sum of a - zero."""
        a, b = self.a.turned() if self.a.is_turned else self.a, self.b
        total: Expr = RESULT
        extra, maps = list[int | Lowering](), list[IndexMap]()
        if middle := zero(b.tensor):
            rows, kept = (*a.shape[:-1], 1), (*self.output[:-1], 1)
            sums = Lowering(Reduce(kind="sum", axes=(len(rows) - 1,), accumulator="int32"), (a.source,), rows, "int32")
            extra.append(moved(sums, IndexMap.broadcast(rows, kept), kept, "int32"))
            maps.append(IndexMap.broadcast(kept, self.output))
            total = total - (Arg(1) - Const(self._depth * zero(a.tensor))) * Const(middle)
        if self.bias is not None:
            extra.append(view(self.bias, self.output[-1:], "int32"))
            maps.append(IndexMap.along(len(self.output) - 1))
            total = total + Arg(len(extra))
        epilogue, constants = self._rounded(total, 1 + len(extra))
        maps += [IndexMap.along(len(self.output) - 1)] * len(constants)
        form = MatMul(epilogue, tuple(maps), adj_y=b.is_turned, accumulator="int32", input_zero=zero(a.tensor))
        return Lowering(form, (a.source, b.source, *extra, *constants), self.output)

    def _of_floats(self) -> Lowering:
        wide = self.a.tensor.dtype == "int16"
        dtype, total = "int64" if wide else "int32", None
        for (left, first), (right, second) in product(_bytes_of(self.a.tensor), _bytes_of(self.b.tensor)):
            for start in range(0, self._depth, DEPTH):
                sums = self._exact(first, second, slice(start, min(start + DEPTH, self._depth)))
                here = Cast(X, dtype) * Const(1 << left + right) if left + right else Cast(X, dtype)
                parts = [(sums, self.output)] if total is None else [(sums, self.output), (total, self.output)]
                total = mapped(here if total is None else here + Y, *parts, shape=self.output, dtype=dtype)
        assert total is not None
        operands: list[tuple[int | Lowering | np.ndarray, Shape]] = [(total, self.output)]
        formula: Expr = X
        if self.bias is not None:
            own, columns = self.call.graph.tensors[self.bias].dtype, self.output[-1:]
            operands.append((view(self.bias, columns, own), columns))
            formula = X + (Y if own == dtype else Cast(Y, dtype))
        if wide and self.rule in (UP, ONCE, AWAY):  # kernels that sum up in 32 bits
            formula = Cast(formula, "int32")
        rounded, constants = self._rounded(formula, len(operands))
        operands += [(constant, constant.shape) for constant in constants]
        return mapped(rounded, *operands, shape=self.output, dtype=self.call.output.dtype)

    def _exact(self, first: Expr, second: Expr, part: slice) -> Lowering:
        """The product of a part of both matrices' depth, with an integer formula for each element of either."""
        a = self.a.floats(first, -2 if self.a.is_turned else -1, part)
        b = self.b.floats(second, -1 if self.b.is_turned else -2, part)
        result = matrix_product(a, b, self.output, adj_x=self.a.is_turned, adj_y=self.b.is_turned)
        assert isinstance(result.form, MatMul)
        whole = replace(result, form=replace(result.form, whole=True), dtype="float32")
        return whole if whole.shape == self.output else view(whole, self.output)


def matrix_product(
    a: int | Lowering | np.ndarray, b: int | Lowering | np.ndarray, output: Shape, *, adj_x: bool, adj_y: bool
) -> Lowering:
    """The product of floats as its form writes it: a single column becomes the single row of the transposed product,
    where elements lie side by side."""
    *leading, rows, columns = output
    if columns == 1 and rows > 1:
        return Lowering(MatMul(adj_x=not adj_y, adj_y=not adj_x), (b, a), (*leading, 1, rows))
    return Lowering(MatMul(adj_x=adj_x, adj_y=adj_y), (a, b), output)


def _bytes_of(tensor: Tensor) -> list[tuple[int, Expr]]:
    """The parts of a stored number without its zero point that are at most 256, with the powers of two that they count:
    itself, or the upper and the lower byte of an int16."""
    if tensor.dtype != "int16":
        return [(0, centred(X, tensor))]
    word = centred(X, tensor)
    return [(8, binary("shift_right", word, Const(8))), (0, binary("and", word, Const(255)))]
