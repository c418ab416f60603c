"""STABLEHLO_SCATTER and STABLEHLO_GATHER: windows of a tensor at runtime indices, written and read.

Exporters write `index_copy` and assignments to parts of a tensor as the one, indexing as the other. Source:
https://openxla.org/stablehlo/spec#scatter and #gather, and LiteRT's kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from typing import Any, ClassVar, overload

import numpy as np

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.expr import Arg, Expr, evaluate, maximum, minimum
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.index_forms import Gather, Scatter, Update
from jitdelegate.ops.call import INTEGERS, Call, Shape, given
from jitdelegate.ops.case import Case, Fed, ints, named
from jitdelegate.ops.indexing import index_problems, numbered
from jitdelegate.ops.pointwise import X, Y, Z, mapped
from jitdelegate.ops.registry import ANY, NUMBERS, QUANTIZED, Lowering, Op, moved, op, view
from jitdelegate.ops.shape import reordered

COMPUTATION = "computation"
"""Our own option, set by `passes.inline_subgraphs`: the operator in the region, REPLACE for none, "" for any other."""
REPLACE = "replace"
KINDS = {
    "STABLEHLO_ADD": "sum",
    "STABLEHLO_MULTIPLY": "prod",
    "STABLEHLO_MAXIMUM": "max",
    "STABLEHLO_MINIMUM": "min",
}
"""Operators of regions -> the row of COMBINERS that combines two elements."""


@dataclass(frozen=True, slots=True)
class Windows:
    """What a STABLEHLO_SCATTER writes, and where.

    Attributes:
        positions: the sizes of the axes of `updates` that number the windows.
        order: the axes of `updates`, those first, then the ones along a window.
        sizes: of a window along each axis of the data.
        indexed: the axes of the data that an index vector is for, in its order.
        vector: the axis of `indices` that index vectors lie along; its rank where they have one index and no axis.
    """

    positions: Shape
    order: Shape
    sizes: Shape
    indexed: Shape
    vector: int

    @property
    def count(self) -> int:
        return prod(self.positions)


def windows_of(data: Shape, indices: Shape, updates: Shape, attrs: Mapping[str, Any]) -> Windows | str:
    """The windows, or what is wrong with the shapes."""
    along, inserted, indexed = (
        tuple(int(axis) for axis in attrs.get(name) or ())
        for name in ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    )
    vector, rank = int(attrs.get("index_vector_dim", 0)), len(data)
    positions = tuple(size for axis, size in enumerate(updates) if axis not in along)
    in_range = {*inserted, *indexed} <= {*range(rank)} and {*along} <= {*range(len(updates))}
    are_distinct = all(len({*axes}) == len(axes) for axes in (along, inserted, indexed))
    if not in_range or not are_distinct or len(along) + len(inserted) != rank:
        return f"STABLEHLO_SCATTER: its options do not fit data of shape {list(data)}, updates of {list(updates)}."
    if _vector_length(indices, vector) != len(indexed) or _without(indices, vector) != positions:
        return f"STABLEHLO_SCATTER: indices of shape {list(indices)} do not fit updates of shape {list(updates)}."
    sizes = iter(updates[axis] for axis in along)
    window = tuple(1 if axis in inserted else next(sizes) for axis in range(rank))
    order = (*(axis for axis in range(len(updates)) if axis not in along), *along)
    return Windows(positions, order, window, indexed, vector)


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _vector_length(indices: Shape, vector: int) -> int:
    """Numbers in an index vector; 0 where the indices lack its axis."""
    return 1 if vector == len(indices) else dict(enumerate(indices)).get(vector, 0)


@overload
def _rows(indices: np.ndarray, shape: Shape, vector: int, dtype: str) -> np.ndarray: ...
@overload
def _rows(indices: int, shape: Shape, vector: int, dtype: str) -> Lowering: ...
def _rows(indices: int | np.ndarray, shape: Shape, vector: int, dtype: str) -> Lowering | np.ndarray:
    """The index vectors in indices of this shape, one below the other."""
    own = shape if vector < len(shape) else (*shape, 1)
    order = (*(axis for axis in range(len(own)) if axis != vector), vector)
    rows = (prod(_without(own, vector)), own[vector])
    return view(reordered(indices, own, order, dtype), rows, dtype)


def _index_vectors(call: Call, vector: int) -> Lowering | np.ndarray:
    """The index vectors in operand 1, one below the other."""
    known = call.constant(1)
    indices = call.index(1) if known is None else known
    return _rows(indices, call.shape(1), vector, call.tensor(1).dtype)


def _along(call: Call, vectors: Lowering | np.ndarray, indexed: Shape, axes: Shape) -> Lowering | np.ndarray:
    """Of index vectors for the axes `indexed`, the part for `axes`: 0 along axes that are not indexed."""
    if indexed == axes:
        return vectors
    columns = {axis: number for number, axis in enumerate(indexed) if axis in axes}
    if isinstance(vectors, np.ndarray):
        spread = np.zeros((len(vectors), len(axes)), vectors.dtype)
        spread[:, [axes.index(axis) for axis in columns]] = vectors[:, list(columns.values())]
        return spread
    assert vectors.shape is not None
    dtype, parts, inputs, accesses = call.tensor(1).dtype, list[Expr](), list[Lowering | np.ndarray](), list[IndexMap]()
    for axis, number in columns.items():
        parts.append(Arg(len(inputs)) * Arg(len(inputs) + 1))
        inputs += [vectors, (np.array(axes) == axis).astype(dtype)]
        accesses += [IndexMap((0, -1), (0, number), (1, 1)), IndexMap.along(1)]
    return Lowering(Map(reduce(add, parts), tuple(accesses)), tuple(inputs), (vectors.shape[0], len(axes)), dtype)


@op("STABLEHLO_SCATTER")
class StablehloScatter(Op):
    """The data with windows replaced, or combined with the old elements, at the indices in the second operand.

    The region is empty or has one operator: STABLEHLO_ADD, STABLEHLO_MULTIPLY, STABLEHLO_MAXIMUM or STABLEHLO_MINIMUM.
    What lies outside the data is left out. Along an indexed axis, windows have one element, unless there is one window
    at constant indices.
    """

    least = most = 3
    types = ANY
    quantized = QUANTIZED
    kinds: ClassVar = {1: INTEGERS}

    def problems(self, call: Call) -> Iterator[str]:
        windows = self._windows(call)
        if isinstance(windows, str):
            yield windows
            return
        data, computation = call.shape(0), call.option(COMPUTATION, "")
        if any(size > most for size, most in zip(windows.sizes, data, strict=True)):
            yield f"STABLEHLO_SCATTER: a window of {list(windows.sizes)} does not fit into {list(data)}."
        if computation != REPLACE:
            if computation not in KINDS:
                yield "STABLEHLO_SCATTER with another region than one sum, product, maximum or minimum."
            if call.tensor(0).dtype not in NUMBERS or call.tensor(0).is_quantized:
                yield f"STABLEHLO_SCATTER: a region that computes, of {call.tensor(0).dtype} or quantized values."
            if any(size != data[axis] for axis, size in enumerate(windows.sizes) if axis not in windows.indexed):
                yield f"STABLEHLO_SCATTER: a region that computes, on windows of {list(windows.sizes)} in {list(data)}."
        if any(windows.sizes[axis] > 1 for axis in windows.indexed) and not self._is_inside(call, windows):
            yield f"STABLEHLO_SCATTER: windows of {list(windows.sizes)} along the indexed axes {list(windows.indexed)}."

    @staticmethod
    def _is_inside(call: Call, windows: Windows) -> bool:
        """Whether there is one window, which is known to lie inside the data."""
        known, data = call.constant(1), call.shape(0)
        if known is None or windows.count != 1 or call.option(COMPUTATION, "") != REPLACE:
            return False
        pairs = zip(known.flat, windows.indexed, strict=True)
        return all(0 <= start <= data[axis] - windows.sizes[axis] for start, axis in pairs)

    @staticmethod
    def _windows(call: Call) -> Windows | str:
        return windows_of(call.shape(0), call.shape(1), call.shape(2), call.node.attrs)

    def lowering(self, call: Call) -> Lowering:
        windows = self._windows(call)
        assert isinstance(windows, Windows)
        computation = call.option(COMPUTATION, "")
        if computation == REPLACE:
            return self._replaced(call, windows)
        return self._combined(call, windows, KINDS[computation])

    def _replaced(self, call: Call, windows: Windows) -> Lowering:
        several = (windows.count,) if windows.count != 1 else ()
        update = self._update(call, windows, (*several, *windows.sizes))
        return Lowering(Update(clamps=False), (call.index(0), update, self._starts(call, windows, several)))

    def _combined(self, call: Call, windows: Windows, kind: str) -> Lowering:
        """All updates of an element combined, then with the data."""
        data, dtype = call.shape(0), call.output.dtype
        order = (*windows.indexed, *(axis for axis in range(len(data)) if axis not in windows.indexed))
        inner = tuple(data[axis] for axis in order[len(windows.indexed) :])
        combiner = COMBINERS[kind]
        update = self._update(call, windows, (windows.count, *inner))
        shape = tuple(data[axis] for axis in order)
        vectors = _index_vectors(call, windows.vector)
        total = Lowering(Scatter(kind=kind, initial=combiner.identity_of(dtype)), (update, vectors), shape, dtype)
        whole = IndexMap.along(*range(len(data)))
        return Lowering(Map(combiner.step, (whole, IndexMap.along(*order))), (call.index(0), total))

    @staticmethod
    def _update(call: Call, windows: Windows, shape: Shape) -> Lowering:
        """The updates, window by window, under a shape."""
        dtype = call.tensor(2).dtype
        return view(reordered(call.index(2), call.shape(2), windows.order, dtype), shape, dtype)

    @staticmethod
    def _starts(call: Call, windows: Windows, several: Shape) -> Lowering | np.ndarray:
        """The first element of each window: 0 along axes that are not indexed."""
        rank = len(call.shape(0))
        starts = _along(call, _index_vectors(call, windows.vector), windows.indexed, tuple(range(rank)))
        return view(starts, (*several, rank), call.tensor(1).dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, indices, updates = given(arrays)
        windows = windows_of(data.shape, indices.shape, updates.shape, attrs)
        assert isinstance(windows, Windows)
        step = Y if attrs[COMPUTATION] == REPLACE else COMBINERS[KINDS[attrs[COMPUTATION]]].step
        rows = _rows(indices, indices.shape, windows.vector, "")
        parts = updates.transpose(windows.order).reshape(windows.count, *windows.sizes)
        out = data.copy()
        for row, part in zip(rows, parts, strict=True):
            start = np.zeros(data.ndim, np.int64)
            start[list(windows.indexed)] = row
            for offset in np.ndindex(*windows.sizes):
                index = tuple(start + offset)
                if all(0 <= at < size for at, size in zip(index, data.shape, strict=True)):
                    out[index] = evaluate(step, [out[index], part[offset]])
        return [out]


@dataclass(frozen=True, slots=True)
class Slices:
    """What a STABLEHLO_GATHER reads, and how its result is arranged.

    Attributes:
        positions: the sizes of the result's axes that number the slices.
        sizes: of a slice along each axis of the data; 1 along axes that the result lacks.
        room: the largest start of a slice along each axis of the data.
        indexed: the axes of the data that an index vector is for, in its order.
        vector: as in `Windows`.
        kept: the axes of the data that the result has.
        order: for each axis of the result, its place among the axes of `positions` and then those of `kept`.
    """

    positions: Shape
    sizes: Shape
    room: Shape
    indexed: Shape
    vector: int
    kept: Shape
    order: Shape

    def starts(self, rows: np.ndarray) -> np.ndarray:
        """The first element of each slice, for index vectors: moved so that the slice lies within the data."""
        start = np.zeros((len(rows), len(self.sizes)), np.int64)
        start[:, list(self.indexed)] = rows
        return np.clip(start, 0, self.room)


READING = ("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim", "slice_sizes")


def slices_of(data: Shape, indices: Shape, attrs: Mapping[str, Any]) -> Slices | str:
    """The slices, or what is wrong with the shapes."""
    offset, collapsed, indexed, lengths = (
        tuple(int(axis) for axis in attrs.get(name) or ()) for name in (*READING[:3], READING[4])
    )
    vector, rank = int(attrs.get("index_vector_dim", 0)), len(data)
    positions, kept = _without(indices, vector), tuple(axis for axis in range(rank) if axis not in collapsed)
    count = len(positions) + len(kept)
    in_range = {*collapsed, *indexed} <= {*range(rank)} and {*offset} <= {*range(count)}
    are_distinct = all(len({*axes}) == len(axes) for axes in (offset, collapsed, indexed))
    if not in_range or not are_distinct or len(lengths) != rank or len(offset) != len(kept):
        return f"STABLEHLO_GATHER: its options do not fit data of shape {list(data)}, indices of {list(indices)}."
    if _vector_length(indices, vector) != len(indexed):
        return f"STABLEHLO_GATHER: indices of shape {list(indices)} do not have {len(indexed)} along axis {vector}."
    if any(not 0 < length <= size for length, size in zip(lengths, data, strict=True)):
        return f"STABLEHLO_GATHER: a slice of {list(lengths)} does not fit into {list(data)}."
    sizes = tuple(1 if axis in collapsed else length for axis, length in enumerate(lengths))
    room = tuple(size - length for size, length in zip(data, lengths, strict=True))
    numbers, axes = iter(range(len(positions))), iter(range(len(positions), count))
    order = tuple(next(axes) if axis in offset else next(numbers) for axis in range(count))
    return Slices(positions, sizes, room, indexed, vector, kept, order)


@op("STABLEHLO_GATHER")
class StablehloGather(Op):
    """Slices of the data, all of the sizes in `slice_sizes`, at the indices in the second operand; a slice that would
    leave the data is moved so that it fits."""

    folds = 1 << 16
    least = most = 2
    types = ANY
    quantized = QUANTIZED
    kinds: ClassVar = {1: INTEGERS}
    cases = (
        Case(((5, 7), Fed((3, 1), "int32")), named(READING, (1,), (0,), (0,), 1, (1, 7)), low=-2, high=8),
        Case(((5, 7), Fed((2, 3, 1), "int64")), named(READING, (2,), (0,), (0,), 2, (1, 7)), low=0, high=5),
        Case(((4, 5, 6), Fed((2, 3), "int32")), named(READING, (0, 2), (1,), (1, 2), 0, (4, 1, 2)), low=-2, high=8),
        Case(((3, 8, 17), Fed((3,), "int32")), named(READING, (0, 1, 2), (), (0, 1, 2), 0, (1, 4, 17)), low=-3, high=9),
        Case(((3, 8, 6), Fed((4, 2), "int32")), named(READING, (1, 2), (0,), (2, 0), 1, (1, 8, 2)), low=-2, high=8),
        Case(((3, 8, 6), Fed((4, 2), "int64")), named(READING, (0,), (0, 2), (0, 2), 1, (1, 8, 1)), low=0, high=5),
        Case(((6, 5), Fed((4, 1), "int32")), named(READING, (1,), (0,), (0,), 1, (3, 2)), low=-2, high=8),
        Case(((6, 5), Fed((4, 1), "int32")), named(READING, (0, 2), (), (0,), 1, (6, 3)), low=-2, high=8),
        Case((Fed((6, 5), "bool"), ints((4,), (0,), (9,))), named(READING, (1,), (0,), (0,), 1, (1, 5))),
        Case((Fed((6, 5), "int64"), ints((4, 1), (5, 4))), named(READING, (1, 2), (), (0, 1), 1, (2, 3))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        slices = slices_of(call.shape(0), call.shape(1), call.node.attrs)
        if isinstance(slices, str):
            yield slices
            return
        box = prod(slices.sizes[slice(*self._span(slices))])
        yield from index_problems(call, prod(slices.positions) * box if box > 1 else 0)

    @staticmethod
    def _slices(call: Call) -> Slices:
        slices = slices_of(call.shape(0), call.shape(1), call.node.attrs)
        assert isinstance(slices, Slices)
        return slices

    @staticmethod
    def _moving(slices: Slices) -> Shape:
        """The axes along which slices may start elsewhere than at 0."""
        return tuple(axis for axis in slices.indexed if slices.room[axis])

    def _span(self, slices: Slices) -> tuple[int, int]:
        """(first, last + 1) of `_moving`."""
        moving = self._moving(slices)
        return min(moving, default=0), max(moving, default=-1) + 1

    def shape(self, call: Call) -> Shape:
        slices = self._slices(call)
        sizes = (*slices.positions, *(slices.sizes[axis] for axis in slices.kept))
        return tuple(sizes[place] for place in slices.order)

    def lowering(self, call: Call) -> Lowering:
        """One Gather along the axes from the first to the last of `_moving`, of the part of the data that is read along
        the others."""
        slices, dtype, rank = self._slices(call), call.output.dtype, len(call.shape(0))
        moving, (first, last) = self._moving(slices), self._span(slices)
        read = tuple(call.shape(0)[axis] if axis in moving else slices.sizes[axis] for axis in range(rank))
        source: int | Lowering = call.index(0)
        if read != call.shape(0):
            source = moved(source, IndexMap.along(*range(rank)), read, dtype)
        if not moving:
            places = [slices.order.index(len(slices.positions) + number) for number in range(len(slices.kept))]
            dims = dict(zip(slices.kept, places, strict=True))
            return moved(source, IndexMap.along(*(dims.get(axis, -1) for axis in range(rank))))
        indices = self._indices(call, slices, (first, last))
        whole = (*read[:first], prod(slices.positions), prod(slices.sizes[first:last]), *read[last:])
        gathered = Lowering(Gather(axis=first), (source, indices), whole, dtype)
        before = sum(axis < first for axis in slices.kept)
        sizes = [slices.sizes[axis] for axis in slices.kept]
        shape, count = (*sizes[:before], *slices.positions, *sizes[before:]), len(slices.positions)
        order = [
            place + before if place < count else place - count if place - count < before else place
            for place in slices.order
        ]
        return reordered(gathered, shape, tuple(order), dtype)

    def _indices(self, call: Call, slices: Slices, span: tuple[int, int]) -> Lowering | np.ndarray:
        """The index of each element of each slice along the axes of the span: [slices, elements, axes]."""
        axes, vectors, dtype = tuple(range(*span)), _index_vectors(call, slices.vector), call.tensor(1).dtype
        room = np.array(slices.room[slice(*span)], dtype)
        own = numbered(slices.sizes[slice(*span)], dtype)
        if isinstance(vectors, np.ndarray):
            known: np.ndarray = slices.starts(vectors)[:, None, slice(*span)] + own
            return known.astype(dtype)
        starts = _along(call, vectors, slices.indexed, axes)
        assert isinstance(starts, Lowering)
        shape, each = (prod(slices.positions), len(own), len(axes)), (prod(slices.positions), 1, len(axes))
        index = minimum(maximum(X, 0), Y) + Z
        return mapped(
            index, (view(starts, each, dtype), each), (room, room.shape), (own, own.shape), shape=shape, dtype=dtype
        )

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, indices = given(arrays)
        slices = slices_of(data.shape, indices.shape, attrs)
        assert isinstance(slices, Slices)
        cuts = [
            data[tuple(slice(at, at + size) for at, size in zip(start, slices.sizes, strict=True))]
            for start in slices.starts(_rows(indices, indices.shape, slices.vector, ""))
        ]
        shape = (*slices.positions, *(slices.sizes[axis] for axis in slices.kept))
        return [np.ascontiguousarray(np.stack(cuts).reshape(shape).transpose(slices.order))]
