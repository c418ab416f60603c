"""STABLEHLO_SCATTER, as which exporters write `index_copy` and assignments to parts of a tensor.

Source: https://openxla.org/stablehlo/spec#scatter, and LiteRT's kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.expr import Arg, Expr
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.index_forms import Scatter, Update
from jitdelegate.ops.call import INTEGERS, Call, Shape, given
from jitdelegate.ops.registry import ANY, NUMBERS, QUANTIZED, Lowering, Op, moved, op, view

COMPUTATION = "computation"
"""Our own option, set by `passes.inline_subgraphs`: the operator in the region, REPLACE for none, "" for any other."""
REPLACE = "replace"
KINDS: Mapping[str, tuple[str, Any]] = {
    "STABLEHLO_ADD": ("sum", np.add),
    "STABLEHLO_MULTIPLY": ("prod", np.multiply),
    "STABLEHLO_MAXIMUM": ("max", np.maximum),
    "STABLEHLO_MINIMUM": ("min", np.minimum),
}
"""Operators of regions: how the old and the new element are combined, as a row of COMBINERS and as numpy's function."""


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
    length = 1 if vector == len(indices) else dict(enumerate(indices)).get(vector)
    in_range = {*inserted, *indexed} <= {*range(rank)} and {*along} <= {*range(len(updates))}
    are_distinct = all(len({*axes}) == len(axes) for axes in (along, inserted, indexed))
    if not in_range or not are_distinct or len(along) + len(inserted) != rank:
        return f"STABLEHLO_SCATTER: its options do not fit data of shape {list(data)}, updates of {list(updates)}."
    if length != len(indexed) or _without(indices, vector) != positions:
        return f"STABLEHLO_SCATTER: indices of shape {list(indices)} do not fit updates of shape {list(updates)}."
    sizes = iter(updates[axis] for axis in along)
    window = tuple(1 if axis in inserted else next(sizes) for axis in range(rank))
    order = (*(axis for axis in range(len(updates)) if axis not in along), *along)
    return Windows(positions, order, window, indexed, vector)


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


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
        return self._combined(call, windows, KINDS[computation][0])

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
        vectors = self._index_vectors(call, windows)
        total = Lowering(Scatter(kind=kind, initial=combiner.identity_of(dtype)), (update, vectors), shape, dtype)
        whole = IndexMap.along(*range(len(data)))
        return Lowering(Map(combiner.step, (whole, IndexMap.along(*order))), (call.index(0), total))

    @staticmethod
    def _update(call: Call, windows: Windows, shape: Shape) -> Lowering:
        """The updates, window by window, under a shape."""
        own, dtype = call.shape(2), call.tensor(2).dtype
        if windows.order == tuple(range(len(own))):
            return view(call.index(2), shape, dtype)
        ordered = tuple(own[axis] for axis in windows.order)
        by_axis = IndexMap.along(*np.argsort(windows.order).tolist())
        return view(moved(call.index(2), by_axis, ordered, dtype), shape, dtype)

    @staticmethod
    def _index_vectors(call: Call, windows: Windows) -> Lowering | np.ndarray:
        """The index vectors, one below the other."""
        shape, known = (windows.count, len(windows.indexed)), call.constant(1)
        own, dtype, vector = call.shape(1), call.tensor(1).dtype, windows.vector
        if known is not None:
            rows = known if vector == known.ndim else np.moveaxis(known, vector, -1)
            return np.ascontiguousarray(rows).reshape(shape)
        if vector >= len(own) - 1:
            return view(call.index(1), shape, dtype)
        axes = (*range(vector), len(own) - 1, *range(vector, len(own) - 1))
        ordered = (*_without(own, vector), own[vector])
        return view(moved(call.index(1), IndexMap.along(*axes), ordered, dtype), shape, dtype)

    def _starts(self, call: Call, windows: Windows, several: Shape) -> Lowering | np.ndarray:
        """The first element of each window: 0 along axes that are not indexed."""
        rank, dtype = len(call.shape(0)), call.tensor(1).dtype
        vectors, shape = self._index_vectors(call, windows), (*several, rank)
        if isinstance(vectors, np.ndarray):
            starts = np.zeros((windows.count, rank), vectors.dtype)
            starts[:, list(windows.indexed)] = vectors
            return starts.reshape(shape)
        parts, inputs, accesses = list[Expr](), list[Lowering | np.ndarray](), list[IndexMap]()
        for number, axis in enumerate(windows.indexed):
            parts.append(Arg(2 * number) * Arg(2 * number + 1))
            inputs += [vectors, (np.arange(rank) == axis).astype(dtype)]
            row = (0, -1) if several else (-1, -1)
            accesses += [IndexMap(row, (0, number), (1, 1)), IndexMap.along(len(several))]
        return Lowering(Map(reduce(add, parts), tuple(accesses)), tuple(inputs), shape, dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, indices, updates = given(arrays)
        windows = windows_of(data.shape, indices.shape, updates.shape, attrs)
        assert isinstance(windows, Windows)
        combine = KINDS[attrs[COMPUTATION]][1] if attrs[COMPUTATION] != REPLACE else lambda old, new: new
        rows = indices if windows.vector == indices.ndim else np.moveaxis(indices, windows.vector, -1)
        rows = rows.reshape(windows.count, len(windows.indexed))
        parts = updates.transpose(windows.order).reshape(windows.count, *windows.sizes)
        out = data.copy()
        for row, part in zip(rows, parts, strict=True):
            start = np.zeros(data.ndim, np.int64)
            start[list(windows.indexed)] = row
            for offset in np.ndindex(*windows.sizes):
                index = tuple(start + offset)
                if all(0 <= at < size for at, size in zip(index, data.shape, strict=True)):
                    out[index] = combine(out[index], part[offset])
        return [out]
