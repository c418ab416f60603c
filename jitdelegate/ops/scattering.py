"""Operators that combine slices at runtime indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.index_forms import Scatter
from jitdelegate.ops.call import WORDS, Call, Shape, given
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.indexing import indices_of, outside, outside_problems
from jitdelegate.ops.registry import MAX_ELEMENTS, NUMBERS, Lowering, Op, op


@op("SCATTER_ND")
class ScatterNd(Op):
    """Zeros of the shape in the third operand; the updates in the second are added at the indices in the first.

    The indices have one row per update, with one index per leading axis. At an index outside the output the run ends in
    LiteRT's error.
    """

    least = most = 3
    parameters = (2,)
    types = NUMBERS
    parameter_types = ("int32",)
    kinds: ClassVar = {0: ("int32",)}
    cases = (
        Case((Fed((5, 1), "int32"), (5, 7), ints(6, 7)), low=0, high=6),
        Case((Fed((2, 3, 2), "int32"), (2, 3, 17), ints(3, 4, 17)), low=0, high=3),
        Case((ints((1,), (3,)), Fed((2,), "int32"), ints(4))),
        Case((Fed((4, 2), "int32"), Fed((4,), "int64"), ints(3, 3)), low=0, high=3),
    )

    def problems(self, call: Call) -> Iterator[str]:
        indices, updates, shape = call.shape(0), call.shape(1), call.integers(2)
        if not indices or not 1 <= indices[-1] <= len(shape) or updates != indices[:-1] + shape[indices[-1] :]:
            shapes = f"{list(updates)} at indices of shape {list(indices)} into {list(shape)}"
            yield f"SCATTER_ND of updates of shape {shapes}."
        yield from outside_problems(call, 0, shape[: indices[-1]])

    def shape(self, call: Call) -> Shape:
        return call.integers(2)

    def lowering(self, call: Call) -> Lowering:
        sizes = call.integers(2)[: call.shape(0)[-1]]
        refusal = outside("scatter_nd index out of bounds", sizes) if call.constant(0) is None else ""
        return Lowering(Scatter(refusal=refusal), (call.index(1), call.index(0)))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        indices, updates, shape = given(arrays)
        out = np.zeros(tuple(shape.flat), updates.dtype)
        np.add.at(out, tuple(np.moveaxis(indices, -1, 0)), updates)
        return [out]


class UnsortedSegment(Op):
    """Combines the slices of the data with the same number in the second operand; the third operand is the number of
    segments. A slice with a negative number is skipped; at a number beyond the last segment the run ends in LiteRT's
    error."""

    least = most = 3
    parameters = (2,)
    types = WORDS
    kinds: ClassVar = {1: ("int32",)}
    kind: ClassVar[str]
    function: ClassVar[np.ufunc]
    cases = (
        Case(((6, 5), Fed((6,), "int32"), ints(4)), low=-1, high=4),
        Case(((3, 2, 17), Fed((3, 2), "int32"), np.array(3, np.int32)), low=0, high=3),
        Case((Fed((9,), "int32"), Fed((9,), "int32"), ints(5)), low=0, high=4),
    )

    def problems(self, call: Call) -> Iterator[str]:
        data, numbers, count = call.shape(0), call.shape(1), call.integers(2)
        if not numbers or data[: len(numbers)] != numbers or len(count) != 1 or count[0] < 1:
            yield f"{self.name} of {list(data)} by {list(numbers)} numbers into {list(count)} segments."
        known = call.constant(1)
        if known is not None and known.max(initial=-1) >= count[0]:
            yield f"{self.name}: the number {known.max()} is beyond the {count[0]} segments."

    def shape(self, call: Call) -> Shape:
        return (*call.integers(2), *call.shape(0)[len(call.shape(1)) :])

    def lowering(self, call: Call) -> Lowering:
        indices = indices_of(call, 1, (*call.shape(1), 1))
        initial = self.initial(np.dtype(call.output.dtype))
        form = Scatter(kind=self.kind, initial=initial, refusal=self._refusal(call), skips_negative=True)
        return Lowering(form, (call.index(0), indices))

    @staticmethod
    def _refusal(call: Call) -> str:
        found = f"found the number {{}}, expected less than {call.integers(2)[0]}"
        return f"max_index < num_segments_ was not true: {found}" if call.constant(1) is None else ""

    def initial(self, dtype: np.dtype[Any]) -> float:
        """The value of a segment without slices."""
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        return float(np.clip(COMBINERS[self.kind].identity, limits.min, limits.max))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, numbers, count = given(arrays)
        shape = (int(count.flat[0]), *data.shape[numbers.ndim :])
        out = np.full(shape, self.initial(data.dtype)).astype(data.dtype)
        used = (numbers >= 0) & (numbers < shape[0])
        self.function.at(out, numbers[used], data[used])
        return [out]


@op("UNSORTED_SEGMENT_SUM")
class UnsortedSegmentSum(UnsortedSegment):
    """Sums of the slices of the data with the same number; 0 for a number without slices."""

    kind, function = "sum", np.add


@op("UNSORTED_SEGMENT_PROD")
class UnsortedSegmentProd(UnsortedSegment):
    """Products of the slices of the data with the same number; 1 for a number without slices."""

    kind, function = "prod", np.multiply


@op("UNSORTED_SEGMENT_MAX")
class UnsortedSegmentMax(UnsortedSegment):
    """The largest of the slices with the same number; the type's lowest value for a number without slices."""

    kind, function = "max", np.maximum


@op("UNSORTED_SEGMENT_MIN")
class UnsortedSegmentMin(UnsortedSegment):
    """The smallest of the slices with the same number; the type's highest value for a number without slices."""

    kind, function = "min", np.minimum


@op("SEGMENT_SUM")
class SegmentSum(Op):
    """Sums of neighbouring slices of the data with the same number in the second operand, a constant that never
    decreases; its last number is the index of the output's last row."""

    least = most = 2
    parameters = (1,)
    parameter_size = MAX_ELEMENTS
    types = WORDS
    cases = (
        Case(((6, 5), ints(0, 0, 1, 1, 1, 2))),
        Case((Fed((4, 2, 3), "int32"), ints(0, 1, 1, 2))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        data, numbers = call.shape(0), call.integers(1)
        if call.shape(1) != data[:1] or not data:
            yield f"SEGMENT_SUM of {list(data)} by {list(call.shape(1))} numbers."
        if numbers[0] != 0 or any(step not in (0, 1) for step in np.diff(numbers)):
            yield f"SEGMENT_SUM: the numbers {list(numbers)} do not rise one by one from 0."

    def shape(self, call: Call) -> Shape:
        return (call.integers(1)[-1] + 1, *call.shape(0)[1:])

    def lowering(self, call: Call) -> Lowering:
        return Lowering(Scatter(), (call.index(0), indices_of(call, 1, (*call.shape(1), 1))))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, numbers = given(arrays)
        out = np.zeros((numbers[-1] + 1, *data.shape[1:]), data.dtype)
        np.add.at(out, numbers, data)
        return [out]
