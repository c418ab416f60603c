"""Weights and bias of a Contract, as narrow as their values allow."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from jitdelegate.base.targets import BFLOAT16, FLOAT16, Level
from jitdelegate.errors import CompileError
from jitdelegate.ir.bfloat16 import bfloat16_bits
from jitdelegate.ir.dequantize import (
    LEAST_NARROW,
    Dequantized,
    is_half,
    requantized,
    sums_of_blocks,
    sums_of_rows,
)
from jitdelegate.ir.forms import Contract, Shape
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.multiply.bfloat_pairs import BfloatPairs
from jitdelegate.targets.cpu.multiply.choose import constant_products
from jitdelegate.targets.cpu.multiply.half_products import HalfSums, are_in_range
from jitdelegate.targets.cpu.multiply.narrow_products import NARROW, BlockBytes, NibbleBytes
from jitdelegate.targets.cpu.multiply.pairs import WordPairs
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.planning.implicit_gemm import filters_of

MOST_NIBBLES = 1 << 16
"""Weights of an output channel whose products with bytes, 16 times as large, might overflow an int32."""


@dataclass(frozen=True, eq=False)
class ContractFilters:
    """Weights and bias of a Contract.

    Attributes:
        stored: [O, kh, kw, I], float32, float16, the bits of bfloat16, or an integer; the weights are its products with
            `scales`.
        narrow: the type in panels, where that is narrower than a form needs: of floats "float16", "bfloat16", "int8" or
            "int4", of int8 "int4"; else "".
        scales: f32[O, blocks] of integers that stand for floats, each for an equal part of a filter; else None.
        bias: [O] or None.
        sums: float64[O] of the weights of bytes whose sums get the scale of their block; else None.
    """

    stored: np.ndarray
    narrow: str = ""
    scales: np.ndarray | None = None
    bias: np.ndarray | None = None
    sums: np.ndarray | None = None

    def part(self, rows: slice) -> ContractFilters:
        """The filters of some output channels."""
        parts = (None if part is None else part[rows] for part in (self.scales, self.bias, self.sums))
        return ContractFilters(self.stored[rows], self.narrow, *parts)

    def products(self, machine: Level, form: Contract, a: Layout) -> Products:
        """How panels of them are multiplied by data that lie as `a` says."""
        if self.narrow == BFLOAT16 and machine.multiplies_bfloats and form.groups == 1 and self._has_pairs(a):
            return BfloatPairs(machine)
        if self.narrow == FLOAT16 and machine.multiplies_halves and form.groups == 1:
            return HalfSums(machine)
        if not self.narrow:
            is_paired = machine.has_pairs and not machine.plus_bytes and form.accumulator == "int32"
            # each group would convert the channels of all groups, here and above
            if is_paired and form.groups == 1:
                return WordPairs(machine)
            return constant_products(machine, form, a.dtype, self.stored)
        if form.accumulator != "float32":
            return NibbleBytes(machine, is_signed=a.dtype == "int8")
        if a.dtype != "float32":
            assert self.scales is not None
            return BlockBytes(machine, is_signed=a.dtype == "int8", blocks=self.scales.shape[1])
        return NARROW[self.narrow](machine, blocks=0 if self.scales is None else self.scales.shape[1])

    def _has_pairs(self, a: Layout) -> bool:
        """Whether every channel of a pixel has another one beside it, and a block has those of four steps."""
        depth, is_short = self.stored.shape[3], a.lanes < QUAD * BfloatPairs.channels
        return depth > 1 and not (a.blocked and (depth % a.lanes == 1 or is_short))


def contract_filters(machine: Level, graph: Graph, node: Node) -> ContractFilters:
    """The filters of a Contract node; floats in the narrowest type that holds the very same numbers.

    In the precision bfloat16 they are rounded, on a level without products of pairs only where that pays: where few
    pixels wait for them, and matrices, which other programs of the model may share.
    """
    source = graph.tensors[node.inputs[1]]
    bias = None if node.inputs[2] == ABSENT else graph.tensors[node.inputs[2]].data
    if source.dtype == "float32" and graph.tensors[node.inputs[0]].dtype != "float32":
        if (filters := block_filters(source, bias)) is None:
            raise CompileError("The weights of bytes are floats, expected int4 in blocks of a multiple of 16.")
        return filters
    integers = requantized(source) if source.dtype == "float32" and source.size >= LEAST_NARROW else None
    if integers is not None and (integers[1].shape[1] == 1 or _is_blockable(source.shape, integers[1])):
        numbers, scales = filters_of(integers[0]), integers[1]
        return ContractFilters(numbers, "int4" if _are_small(numbers) else "int8", scales, bias)
    assert source.data is not None
    weights = filters_of(source.data)
    if weights.size < LEAST_NARROW:
        return ContractFilters(weights, bias=bias)
    if weights.dtype != np.float32:
        multiplies_bytes = machine.plus_bytes and isinstance(node.form, Contract) and node.form.accumulator == "int32"
        is_narrow = multiplies_bytes and weights.size < MOST_NIBBLES * len(weights) and _are_small(weights)
        return ContractFilters(weights, "int4" if is_narrow else "", bias=bias)
    is_float16 = machine.has_half and (is_half(weights) or (machine.multiplies_halves and are_in_range(weights)))
    is_few = source.data.ndim == 2 or prod(graph.tensors[node.outputs[0]].shape[:-1]) <= machine.tiles[0]
    if machine.multiplies_bfloats or (machine.precision == BFLOAT16 and is_few and not is_float16):
        return ContractFilters(bfloat16_bits(weights), BFLOAT16, bias=bias)
    if is_float16:
        return ContractFilters(weights.astype(np.float16), FLOAT16, bias=bias)
    return ContractFilters(weights, bias=bias)


def block_filters(weights: Tensor, bias: np.ndarray | None) -> ContractFilters | None:
    """The filters of bytes whose sums get the scale of their block; None where the weights are no int4 in blocks that a
    tile can walk along."""
    integers, block = requantized(weights), QUAD * BlockBytes.channels
    if integers is None or not _are_small(integers[0]) or weights.shape[-1] % (integers[1].shape[1] * block):
        return None
    stored = weights.integers if isinstance(weights, Dequantized) else None
    sums = sums_of_rows(stored) if stored is not None else sums_of_blocks(*integers)
    return ContractFilters(filters_of(integers[0]), "int4", integers[1], bias, sums)


def _are_small(numbers: np.ndarray) -> bool:
    """Whether all numbers fit in an int4."""
    return bool(numbers.dtype == np.int8 and numbers.min() >= -8 and numbers.max() <= 7)


def _is_blockable(shape: Shape, scales: np.ndarray) -> bool:
    """Whether the tile can walk along blocks: rows of a matrix, cut into whole quads."""
    outputs, *window, depth = shape
    return prod(window) == 1 and depth % (scales.size // outputs * QUAD) == 0
