"""Operators that are evaluated only while compiling: sparse weights, and shape arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.graph import DimensionMetadata, Graph, Node, Sparsity
from jitdelegate.ops.call import INTEGERS, Call, Shape, given
from jitdelegate.ops.registry import ANY, MAX_ELEMENTS, NATIVE, NUMBERS, QUANTIZED, Lowering, Op, op


class Folded(Op):
    """An operator without a kernel: `check` refuses the nodes that remain after folding."""

    def check(self, graph: Graph, node: Node) -> str | None:
        call = Call(graph, node)
        return next(self.structure(call), f"{self.name} is supported on constants only.")

    def lowering(self, call: Call) -> Lowering:
        raise AssertionError(f"{self.name} passed a check that always refuses")


@op("DENSIFY")
class Densify(Folded):
    """The dense form of a sparse constant."""

    types = NATIVE

    def problems(self, call: Call) -> Iterator[str]:
        source = call.tensor(0)
        if source.data is None:
            yield f"DENSIFY: input 0 ('{source.title}') is not a constant."
        if source.sparsity is not None:
            yield from sparsity_problems(source.shape, source.sparsity, source.data)
        elif call.constant(0) is None:
            yield "DENSIFY: input 0 is a packed constant."

    def foldable(self, call: Call) -> bool:
        return call.tensor(0).is_constant

    def fold(self, call: Call) -> list[np.ndarray]:
        source = call.tensor(0)
        assert source.data is not None
        return [densified(source.data, source.shape, source.sparsity) if source.sparsity else source.data]


def _extents(shape: Shape, sparsity: Sparsity) -> Shape:
    """The size of every traversed dimension: outer dimensions in their own order, then the dimensions of the blocks."""
    blocks = tuple(sparsity.dimensions[len(shape) + k].dense_size for k in range(len(sparsity.block_map)))
    outer = list(shape)
    for block, axis in zip(blocks, sparsity.block_map, strict=True):
        outer[axis] //= block
    return (*outer, *blocks)


def sparsity_problems(shape: Shape, sparsity: Sparsity, data: np.ndarray | None) -> Iterator[str]:
    """Reasons why the stored values do not form a dense array of `shape`."""
    rank, blocks = len(shape), len(sparsity.block_map)
    if sorted(sparsity.traversal_order) != list(range(rank + blocks)) or len(sparsity.dimensions) != rank + blocks:
        yield f"DENSIFY: traversal order {list(sparsity.traversal_order)} does not fit rank {rank}, {blocks} blocks."
    if any(not 0 <= axis < rank for axis in sparsity.block_map):
        yield f"DENSIFY: block map {list(sparsity.block_map)} does not fit rank {rank}."
    inner = sparsity.dimensions[rank:]
    if sorted(sparsity.traversal_order[rank:]) != list(range(rank, rank + blocks)) or any(d.sparse for d in inner):
        yield "DENSIFY: blocks that are sparse or not innermost are not supported."
    sizes = [dimension.dense_size for dimension in inner]
    if any(n < 1 or shape[axis] % n for n, axis in zip(sizes, sparsity.block_map, strict=True)):
        yield f"DENSIFY: blocks of {sizes} do not divide the shape {list(shape)}."
    yield from _level_problems(shape, sparsity, data)


def _level_problems(shape: Shape, sparsity: Sparsity, data: np.ndarray | None) -> Iterator[str]:
    extents, count = _extents(shape, sparsity), 1
    for level, axis in enumerate(sparsity.traversal_order):
        dimension = sparsity.dimensions[level]
        if not dimension.sparse:
            count *= extents[axis]
            if dimension.dense_size != extents[axis]:
                yield f"DENSIFY: dimension {level} has size {dimension.dense_size}, expected {extents[axis]}."
        else:
            if not _is_csr(dimension, count, extents[axis]):
                yield f"DENSIFY: the segments and indices of dimension {level} do not fit."
            count = len(dimension.indices)
    if data is None or data.ndim != 1 or len(data) != count:
        yield f"DENSIFY: {count} values are expected, {0 if data is None else data.size} are stored."


def _is_csr(dimension: DimensionMetadata, rows: int, size: int) -> bool:
    segments, indices = np.array(dimension.segments, np.int64), np.array(dimension.indices, np.int64)
    if len(segments) != rows + 1 or segments[0] != 0 or segments[-1] != len(indices) or (np.diff(segments) < 0).any():
        return False
    return bool(((indices >= 0) & (indices < size)).all())


def densified(values: np.ndarray, shape: Shape, sparsity: Sparsity) -> np.ndarray:
    """The dense array of `shape` with the non-zero elements `values`, which are in traversal order."""
    extents = _extents(shape, sparsity)
    coordinates: list[np.ndarray] = []
    for level, axis in enumerate(sparsity.traversal_order):
        dimension, count = sparsity.dimensions[level], len(coordinates[0]) if coordinates else 1
        segments = np.array(dimension.segments, np.int64)
        repeats = np.diff(segments) if dimension.sparse else np.full(count, extents[axis])
        coordinates = [np.repeat(column, repeats) for column in coordinates]
        here = np.array(dimension.indices) if dimension.sparse else np.tile(np.arange(extents[axis]), count)
        coordinates.append(here)
    traversed = dict(zip(sparsity.traversal_order, coordinates, strict=True))
    index = [traversed[axis] for axis in range(len(shape))]
    for number, axis in enumerate(sparsity.block_map):
        index[axis] = index[axis] * extents[len(shape) + number] + traversed[len(shape) + number]
    dense = np.zeros(shape, values.dtype)
    dense[tuple(index)] = values
    return dense


@op("SHAPE")
class ShapeOf(Folded):
    """The sizes of the data; they may be known where the data's elements are not."""

    types: ClassVar[tuple[str, ...]] = (*ANY, "string")
    quantized = QUANTIZED
    results: ClassVar[Mapping[int, tuple[str, ...]]] = {0: INTEGERS}
    takes_empty = True

    def foldable(self, call: Call) -> bool:
        return True

    def shape(self, call: Call) -> Shape:
        return (len(call.shape(0)),)

    def fold(self, call: Call) -> list[np.ndarray]:
        return [np.array(call.shape(0), np.int64)]


@op("RANK")
class Rank(ShapeOf):
    """The number of axes of the data."""

    def shape(self, call: Call) -> Shape:
        return ()

    def fold(self, call: Call) -> list[np.ndarray]:
        return [np.array(len(call.shape(0)), np.int64)]


@op("BROADCAST_ARGS")
class BroadcastArgs(Folded):
    """The shape that two shapes broadcast to."""

    least = most = 2
    parameters = (0, 1)
    types = INTEGERS

    def problems(self, call: Call) -> Iterator[str]:
        shapes = call.integers(0), call.integers(1)
        pairs = list(zip(*(shape[::-1] for shape in shapes), strict=False))
        if min(map(min, (*pairs, (1,))), default=1) < 0 or any(1 not in pair and pair[0] != pair[1] for pair in pairs):
            yield f"BROADCAST_ARGS: {list(shapes[0])} and {list(shapes[1])} do not broadcast together."

    def shape(self, call: Call) -> Shape:
        return (max(len(call.integers(0)), len(call.integers(1))),)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        longer, shorter = sorted(given(arrays), key=len, reverse=True)
        padded = np.concatenate([np.ones(len(longer) - len(shorter), longer.dtype), shorter])
        return [np.where(longer == 1, padded, longer)]


@op("ZEROS_LIKE")
class ZerosLike(ShapeOf):
    """Zeros in the shape of the data."""

    types = NUMBERS
    results: ClassVar = {}

    def shape(self, call: Call) -> Shape:
        return call.shape(0)

    def fold(self, call: Call) -> list[np.ndarray]:
        return [np.zeros(call.shape(0))]


@op("RANGE")
class Range(Folded):
    """The numbers from the first operand up to, but not including, the second, in steps of the third."""

    least = most = 3
    parameters = (0, 1, 2)
    parameter_types = types = NUMBERS

    def problems(self, call: Call) -> Iterator[str]:
        numbers, dtypes = [call.constant(k) for k in range(3)], {tensor.dtype for tensor in call.operands}
        if any(number is None or number.size != 1 for number in numbers) or dtypes != {call.output.dtype}:
            yield "RANGE: start, limit, delta and the output are not single numbers of one type."
        start, limit, delta = first = [number.flat[0] for number in numbers if number is not None]
        if not delta or not np.isfinite(first).all() or not 0 <= _steps(start, limit, delta) <= MAX_ELEMENTS:
            yield f"RANGE from {start:g} to {limit:g} in steps of {delta:g} is not supported."

    def shape(self, call: Call) -> Shape:
        return (_steps(*(tensor.data.flat[0] for tensor in call.operands if tensor.data is not None)),)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        """Computed as in LiteRT, which adds the step repeatedly."""
        start, limit, delta = (array.flat[0] for array in given(arrays))
        count = _steps(start, limit, delta)
        if start.dtype.kind == "i":
            return [start + delta * np.arange(count, dtype=start.dtype)]
        steps = np.full(count, delta)
        steps[:1] = start
        return [np.add.accumulate(steps)]


def _steps(start: Any, limit: Any, delta: Any) -> int:
    """The number of steps from `start` to before `limit`, negative where the steps lead away from `limit`; more than
    any tensor holds where the number overflows a float."""
    if start.dtype.kind == "i":
        return -((int(start) - int(limit)) // int(delta))
    with np.errstate(over="ignore"):
        steps = (limit - start) / delta
    return ceil(steps) if np.isfinite(steps) else MAX_ELEMENTS + 1


@op("WHERE")
class Where(Folded):
    """The indices of all elements other than 0, one row each: int64[elements, rank].

    No kernel can compute this operator, because the number of rows depends on the values.
    """

    types = ANY
    results: ClassVar = {0: ("int64",)}

    def problems(self, call: Call) -> Iterator[str]:
        if call.constant(0) is None:
            yield "WHERE: the size of its output depends on values that are known at run time only."

    def shape(self, call: Call) -> Shape:
        data = call.array(0)
        return int(np.count_nonzero(data)), data.ndim

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return [np.argwhere(given(arrays)[0])]
