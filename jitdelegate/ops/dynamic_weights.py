"""Products of float32 data and quantized weights, with the data quantized at run time: sums of integers.

As in XNNPACK, the rows of a matrix and the pixels below a 1x1 filter are quantized each on its own, other images as a
whole: real = (stored - zero) / factor, stored = round(real * factor) + zero, a signed byte. The range is widened to
hold 0, so that zero is a byte too.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from jitdelegate.ir.bfloat16 import bfloat16_bits, bfloat16_numbers
from jitdelegate.ir.dequantize import dequantized, integers, sums_of_rows
from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr, binary, maximum, minimum, select, unary
from jitdelegate.ir.forms import NO_HALO, Contract, IndexMap, Map, Reduce
from jitdelegate.ir.graph import ABSENT, Numbers, Tensor
from jitdelegate.ir.quantized import quantize
from jitdelegate.ops.call import ACTIVATIONS, OPTION, Call, Shape
from jitdelegate.ops.pointwise import X, Y, Z, mapped
from jitdelegate.ops.quantized_weights import Operands
from jitdelegate.ops.registry import HYBRID, Lowering, view
from jitdelegate.ops.window import Borders

LEAST_RANGE = 1e-30
"""A smaller range counts as zero: its factor might overflow."""
FEW_ROWS = 4
"""Rows that take as long as reading the weights, which sums of bytes do faster than floats."""
LEAST_PRODUCTS = 128
"""Fewest products per element of the data that save more time than its quantization takes. Measured on networks with
1x1 and 3x3 filters, with AVX-512 and VNNI."""


BLOCK = 32
"""XNNPACK takes blocks of a multiple of this many weights with a scale of their own, if they are int4."""


def quantizes_data(call: Call, operands: Operands) -> bool:
    """Whether the data of a node with quantized weights is quantized too, by the option `quantized_execution`."""
    asked = call.graph.quantized
    if asked.execution == "float_view" or not _is_possible(call, operands):
        return False
    return asked.execution == "dynamic" or (asked.multiplies_bytes and _is_faster(call, operands))


def _is_possible(call: Call, operands: Operands) -> bool:
    """Signed weights without zero points, scaled by output channel, and a constant bias."""
    weights = call.tensor(operands.filter)
    quant, is_bias_known = weights.quant, not call.given(operands.bias) or call.tensor(operands.bias).is_constant
    if quant is None or weights.dtype not in HYBRID or any(quant.zero_points) or not is_bias_known:
        return False
    if _has_blocks(weights):  # only machines that multiply bytes fast have kernels for them
        is_matrix = len(weights.shape) == 2 and weights.dtype == "int4" and not quant.block_size % BLOCK
        return call.graph.quantized.multiplies_bytes and is_matrix and not weights.shape[1] % quant.block_size
    return len(quant.scales) == 1 or quant.axis == operands.channel_axis


def _has_blocks(weights: Tensor) -> bool:
    return weights.quant is not None and weights.quant.block_size > 0 and len(weights.quant.scales) > 1


def _is_faster(call: Call, operands: Operands) -> bool:
    """Whether sums of bytes save more than the quantization of the data costs."""
    data, weights = prod(call.shape(operands.data)), call.shape(operands.filter)
    rows = prod(call.output.shape) // weights[operands.channel_axis]
    return rows <= FEW_ROWS or rows * prod(weights) >= LEAST_PRODUCTS * data


def dynamic_sums(call: Call, lowering: Lowering, operands: Operands) -> Lowering:
    """The lowering of a node as if its weights were floats, with sums of integers instead; of weights with blocks,
    sums of integers per block, whose products with the scales are added up as floats.

    Args:
        lowering: a Contract of data and filter; its inputs are in this order.
    """
    form, source = lowering.form, lowering.inputs[0]
    assert isinstance(form, Contract) and isinstance(source, int | Lowering)
    weights, shape = call.tensor(operands.filter), lowering.shape or call.output.shape
    data = source.shape if isinstance(source, Lowering) and source.shape else call.shape(operands.data)
    rows = _Rows(source, data, (len(data) - 1,) if form.is_pointwise else (1, 2, 3))
    stored = rows.stored(form.padding)
    has_blocks = _has_blocks(weights)
    weights = rounded(weights) if has_blocks else weights
    numbers = dequantized(weights) if has_blocks else integers(weights)
    total, extra, maps = (_real_of_blocks if has_blocks else _real)(rows, weights, shape)
    if call.given(operands.bias):
        total = total + Arg(1 + len(extra))
        extra.append(call.array(operands.bias).reshape(-1))
        maps.append(IndexMap.along(len(shape) - 1))
    epilogue = ACTIVATIONS[call.option(OPTION, "NONE")](total)
    accumulator = "float32" if has_blocks else "int32"
    form = replace(form, accumulator=accumulator, padding=NO_HALO, epilogue=epilogue, operands=tuple(maps))
    return replace(lowering, form=form, inputs=(stored, numbers, ABSENT, *extra))


def rounded(weights: Tensor) -> Tensor:
    """Weights in blocks with scales rounded to bfloat16, half to even, as XNNPACK stores them."""
    assert weights.quant is not None
    scales = Numbers(np.asarray(weights.quant.scales), _nearest_bfloat16)
    return replace(weights, quant=replace(weights.quant, scales=scales))


def _nearest_bfloat16(numbers: np.ndarray) -> np.ndarray:
    return bfloat16_numbers(bfloat16_bits(numbers.astype(np.float32)))


Operand = int | Lowering | np.ndarray


def _real(rows: _Rows, weights: Tensor, shape: Shape) -> tuple[Expr, list[Operand], list[IndexMap]]:
    """The real number of a sum: (sum - zero * sum of weights) / factor * scale, its further operands and their maps."""
    assert weights.quant is not None
    numbers, scales = integers(weights), np.array(weights.quant.scales, np.float32)
    sums = numbers.reshape(len(numbers), -1).sum(1, dtype=np.int32)
    extra, maps = rows.operands(shape)
    extra += [sums, np.broadcast_to(scales, sums.shape).copy()]
    maps += [IndexMap.along(len(shape) - 1)] * 2
    return Cast(RESULT - Cast(Arg(1), "int32") * Arg(3), "float32") * Arg(2) * Arg(4), extra, maps


def _real_of_blocks(rows: _Rows, weights: Tensor, shape: Shape) -> tuple[Expr, list[Operand], list[IndexMap]]:
    """The same where scales are in the sums: (sum - zero * sum of weights) / factor."""
    assert weights.quant is not None
    extra, maps = rows.operands(shape)
    extra.append(sums_of_rows(weights).astype(np.float32))
    maps.append(IndexMap.along(len(shape) - 1))
    return (RESULT - Cast(Arg(1), "float32") * Arg(3)) * Arg(2), extra, maps


class _Rows:
    """Float32 data with what quantizes it, for each of its rows.

    Attributes:
        row: the shape of these numbers; parts of the data along its axes of size 1 are quantized together.
        factor, step, zero: float32 factor, step = 1 / factor, int8 zero.
    """

    def __init__(self, source: int | Lowering, shape: Shape, axes: tuple[int, ...]) -> None:
        self._source, self._shape = source, shape
        self.row = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        low = Lowering(Reduce(kind="min", axes=axes, epilogue=minimum(RESULT, 0.0)), (source,), self.row, "float32")
        size = maximum(RESULT, 0.0) - Arg(1)
        factor = select(binary("gt", size, LEAST_RANGE), 255.0 / size, 1.0)
        access = IndexMap.broadcast(self.row, self.row)
        high = Reduce(kind="max", axes=axes, epilogue=factor, operands=(access,))
        self.factor = Lowering(high, (source, low), self.row, "float32")
        self.step = self._map(1.0 / X, self.factor)
        self.zero = self._map(quantize(-(X * Y), "int8", -128), low, self.factor, dtype="int8")

    def _map(self, formula: Expr, *operands: Lowering, dtype: str = "float32") -> Lowering:
        return mapped(formula, *((operand, self.row) for operand in operands), shape=self.row, dtype=dtype)

    def stored(self, padding: Borders) -> Lowering:
        """The data as signed bytes; an image gets (top, bottom, left, right) rows and columns of zero points."""
        shape, access = self._shape, IndexMap.broadcast(self._shape, self._shape)
        if any(padding):
            top, bottom, left, right = padding
            shape = (shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3])
            access = IndexMap.along(0, 1, 2, 3, starts=(0, -top, -left, 0), fill=0.0)
        formula = quantize(unary("round", X * Y) + Cast(Z, "float32"), "int8")
        row = IndexMap.broadcast(self.row, shape)
        return Lowering(Map(formula, (access, row, row)), (self._source, self.factor, self.zero), shape, "int8")

    def operands(self, shape: Shape) -> tuple[list[Operand], list[IndexMap]]:
        """Zero and step as operands of an epilogue of `shape`, and how they are read."""
        row = self.row if len(self.row) == len(shape) else (*shape[:-1], 1)
        operands: list[Operand] = [self.seen(self.zero, row, "int8"), self.seen(self.step, row, "float32")]
        return operands, [IndexMap.broadcast(row, shape)] * 2

    def seen(self, numbers: Lowering, shape: Shape, dtype: str) -> Lowering:
        """Numbers of the rows under another shape."""
        return numbers if shape == self.row else view(numbers, shape, dtype)
