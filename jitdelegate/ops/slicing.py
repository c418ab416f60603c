"""Operators that cut a part out of their operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, binary, maximum, minimum, select
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.index_forms import Gather
from jitdelegate.ops.call import INTEGERS, Call, Shape, given
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.indexing import cut_out, index_problems, leading
from jitdelegate.ops.registry import ANY, QUANTIZED, Lowering, Op, moved, op, view


@op("SLICE")
class Slice(Op):
    """The box that starts at the second operand and has the size in the third; size -1 reaches to the end.

    If a runtime start leaves no room for the box, the run ends in LiteRT's error.
    """

    types = ANY
    quantized = QUANTIZED
    takes_empty = True
    kinds: ClassVar = {1: INTEGERS}
    least = most = 3
    parameters = (2,)
    shape_inputs = (1,)
    cases = (
        Case(((2, 5, 6, 7), ints(0, 1, 2, 3), ints(2, 3, -1, 2))),
        Case(((10,), ints(3), ints(4))),
        Case(((1, 8, 8, 20), ints(0, 0, 0, 0), ints(1, 8, 8, 16))),
        Case(((5, 6, 7), Fed((3,), "int32"), ints(2, 3, 4)), low=0, high=4),
        Case((Fed((9,), "int64"), Fed((1,), "int64"), np.array([4], np.int64)), low=0, high=6),
    )

    def problems(self, call: Call) -> Iterator[str]:
        data, size = call.shape(0), call.integers(2)
        if call.shape(1) != (len(data),) or len(size) != len(data) or not data:
            yield f"SLICE: a begin of {list(call.shape(1))} and size {list(size)} do not fit the shape {list(data)}."
        if call.constant(1) is None and -1 in size:
            yield f"SLICE: size {list(size)} depends on where the slice begins, which is known at run time only."
        if call.constant(1) is None:
            yield from index_problems(call, prod(size[: leading(data, size)]))
        begin = self._begin(call)
        for extent, start, count in zip(data, begin, size, strict=True):
            if not 0 <= start <= extent or count < -1 or start + count > extent:
                yield f"SLICE: begin {list(begin)} and size {list(size)} leave the input's shape {list(data)}."

    def shape(self, call: Call) -> Shape:
        triples = zip(call.shape(0), self._begin(call), call.integers(2), strict=True)
        return tuple(extent - start if count == -1 else count for extent, start, count in triples)

    @staticmethod
    def _begin(call: Call) -> Shape:
        """The start of the box; zeros if it is known only at run time."""
        return (0,) * len(call.shape(0)) if call.constant(1) is None else call.integers(1)

    def lowering(self, call: Call) -> Lowering:
        if call.constant(1) is None:
            return cut_out(call, self.shape(call))
        begin = call.integers(1)
        return moved(call.index(0), IndexMap.along(*range(len(begin)), starts=begin))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, begin, size = given(arrays)
        pairs = zip(begin.flat, size.flat, strict=True)
        return [data[tuple(slice(start, None if count == -1 else start + count) for start, count in pairs)]]


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a strided slice along one axis: `axis` of the data (-1 for a new one), the elements that are read,
    whether the output keeps the axis, and for a dropped axis its position in the operands."""

    axis: int
    start: int
    step: int
    count: int
    kept: bool
    position: int = -1


MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@op("STRIDED_SLICE")
class StridedSlice(Op):
    """numpy's basic indexing: operands (data, begin, end, strides), and masks for all that is not a plain slice.

    A begin or end that is known only at run time may select an index (shrink_axis_mask), which is clamped to the axis,
    but may not decide the output's size.
    """

    types = ANY
    quantized = QUANTIZED
    takes_empty = True
    kinds: ClassVar = {1: INTEGERS, 2: INTEGERS}
    least = most = 4
    parameters = (3,)
    shape_inputs = (1, 2)
    cases = (
        Case(((4, 6, 8), ints(1, 0, 2), ints(3, 6, 8), ints(1, 2, 3))),
        Case(((4, 6), ints(1, 0), ints(3, 6), ints(1, 1)), {"shrink_axis_mask": -1, "begin_mask": 4}),
        Case(((4, 6), ints(3, -1), ints(0, -7), ints(-1, -2))),
        Case(((4, 6), ints(0, 1), ints(0, 4), ints(1, 1)), {"begin_mask": 1, "end_mask": 1}),
        Case(((4, 6, 8), ints(2, 0, 1), ints(3, 0, 5), ints(1, 1, 1)), {"shrink_axis_mask": 1, "ellipsis_mask": 2}),
        Case(((4, 6), ints(0, 0, 1), ints(0, 0, 4), ints(1, 1, 1)), {"new_axis_mask": 1, "end_mask": 2}),
        Case(((1, 17, 5, 6), ints(0, 1, 0, 0), ints(0, 100, 0, 3), ints(1, 2, 1, 1)), {"end_mask": 5}),
        Case(((5, 6), ints(-2), ints(-1), ints(1)), {"shrink_axis_mask": 1}),
        Case(((5, 6), ints(2), ints(3), ints(1)), {"shrink_axis_mask": 1, "begin_mask": 1}),
        Case(((5, 6), ints(2, 1, 0), ints(3, 1, 5), ints(1, 1, 2)), {"shrink_axis_mask": 3, "new_axis_mask": 2}),
        Case(((5, 6), ints(2, 1), ints(3, 4), ints(1, 1)), {"offset": True}),
        Case(((2, 3, 2, 2, 2, 2), ints(0, 2, 0, 0, 1, 0), ints(2, 0, 2, 2, 2, 2), ints(1, -1, 1, 1, 1, 2))),
        Case((Fed((4, 6), "bool"), ints(1, 0), ints(3, 6), ints(1, 2))),
        Case(
            ((5, 6), Fed((2,), "int32"), Fed((2,), "int32"), ints(1, -2)),
            {"shrink_axis_mask": 1, "begin_mask": 2, "end_mask": 2},
            low=-5,
            high=5,
        ),
        Case(
            ((4, 5, 17), Fed((4,), "int32"), ints(0, 0, 0, 9), ints(1, 1, 1, 1)),
            {"shrink_axis_mask": 6, "ellipsis_mask": 0, "new_axis_mask": 1, "begin_mask": 8},
            low=0,
            high=4,
        ),
    )

    def problems(self, call: Call) -> Iterator[str]:
        shape, specs = call.shape(0), {prod(call.shape(k)) for k in (1, 2, 3)}
        if not shape:
            yield "STRIDED_SLICE: the input is a scalar, expected rank 1 or more."
        if len(specs) != 1 or any(len(call.shape(k)) != 1 for k in (1, 2, 3)):
            yield "STRIDED_SLICE: begin, end and strides are no vectors of one length."
        if 0 in call.integers(3):
            yield f"STRIDED_SLICE: the strides are {list(call.integers(3))}, expected none to be 0."
        yield from self._mask_problems(call, specs.pop())
        yield from self._offset_problems(call)
        yield from self._runtime_problems(call)
        for cut in self._cuts(call):
            if not cut.kept and not 0 <= cut.start < shape[cut.axis]:
                yield f"STRIDED_SLICE: index {cut.start} is out of range for axis {cut.axis} of {list(shape)}."

    @staticmethod
    def _mask_problems(call: Call, specs: int) -> Iterator[str]:
        """LiteRT ignores the bits of masks beyond the given positions, except those of new_axis_mask."""
        known = (1 << specs) - 1
        ellipsis, added, shrunk = (int(call.option(name, 0)) & known for name in MASKS[2:])
        if int(call.option(MASKS[3], 0)) & ~known:
            yield f"STRIDED_SLICE: new_axis_mask names positions beyond the {specs} that there are."
        if ellipsis.bit_count() > 1:
            yield "STRIDED_SLICE: ellipsis_mask names more than one position."
        taken = specs - (added | ellipsis).bit_count()
        if taken > len(call.shape(0)):
            yield f"STRIDED_SLICE: {specs} positions are more than the input's shape {list(call.shape(0))} has."
        if ellipsis and taken == len(call.shape(0)):
            yield "STRIDED_SLICE: ellipsis_mask names a position that stands for no axis, which LiteRT takes as one."
        if any(shrunk >> position & 1 and stride < 0 for position, stride in enumerate(call.integers(3))):
            yield "STRIDED_SLICE: a negative stride where shrink_axis_mask is set."

    def _runtime_problems(self, call: Call) -> Iterator[str]:
        for operand, mask in ((1, "begin_mask"), (2, "end_mask")):
            masked = int(call.option(mask, 0))
            sliced = (position for kind, position in self._positions(call) if kind == "slice")
            if call.constant(operand) is None and any(not masked >> position & 1 for position in sliced):
                yield "STRIDED_SLICE: the size of its output depends on values that are known at run time only."
        cuts = self._looked_up(call)
        if any(b.axis - a.axis != b.position - a.position or b.position - a.position != 1 for a, b in pairwise(cuts)):
            yield "STRIDED_SLICE: indices that are known at run time only, with another position between them."

    def _looked_up(self, call: Call) -> list[Cut]:
        return [cut for cut in self._cuts(call) if cut.position >= 0] if call.constant(1) is None else []

    @staticmethod
    def _offset_problems(call: Call) -> Iterator[str]:
        """With the option `offset`, LiteRT uses the ends as the output's shape."""
        if not call.option("offset", False):
            return
        if call.constant(1) is None or call.constant(2) is None:
            yield "STRIDED_SLICE with offset: begin or end is not a constant."
        shape, begin, size = call.shape(0), call.integers(1), call.integers(2)
        plain = not any(call.option(name, 0) for name in MASKS) and set(call.integers(3)) == {1}
        inside = len(begin) == len(shape) and all(
            0 <= first < first + count <= extent for first, count, extent in zip(begin, size, shape, strict=False)
        )
        if not (plain and inside):
            yield f"STRIDED_SLICE with offset from {list(begin)} on, {list(size)} of {list(shape)}."

    def _cuts(self, call: Call) -> list[Cut]:
        """The cut of every axis of the data and every new axis, in the output's order."""
        positions = self._positions(call)
        rest = len(call.shape(0)) - sum(kind not in ("all", "new") for kind, _ in positions)
        cuts: list[Cut] = []
        axis = 0
        for kind, position in positions:
            count = rest if kind == "all" else 1
            for _ in range(count):
                cuts.append(self._cut(call, kind, position, axis))
                axis += kind != "new"
        return cuts

    @staticmethod
    def _positions(call: Call) -> list[tuple[str, int]]:
        """The kind of every position; an ellipsis is added at the end where the file has none."""
        kinds = {"ellipsis_mask": "all", "new_axis_mask": "new", "shrink_axis_mask": "index"}
        positions: list[tuple[str, int]] = []
        for position in range(len(call.integers(3))):
            kind = next((kinds[mask] for mask in kinds if call.option(mask, 0) >> position & 1), "slice")
            positions.append((kind, position))
        return positions if ("all" in dict(positions)) else [*positions, ("all", -1)]

    @staticmethod
    def _cut(call: Call, kind: str, position: int, axis: int) -> Cut:
        if kind == "new":
            return Cut(-1, 0, 1, 1, True)
        extent = call.shape(0)[axis]
        if kind == "all":
            return Cut(axis, 0, 1, extent, True)
        begin, end, step = (0 if call.constant(k) is None else call.integers(k)[position] for k in (1, 2, 3))
        first = None if call.option("begin_mask", 0) >> position & 1 else begin
        if kind == "index":
            index = begin + extent if begin < 0 else begin
            return Cut(axis, 0, 1, 1, False) if first is None else Cut(axis, index, 1, 1, False, position)
        end += begin if call.option("offset", False) else 0
        last = None if call.option("end_mask", 0) >> position & 1 else end
        reached = range(*slice(first, last, step).indices(extent))
        return Cut(axis, reached.start, step, len(reached), True)

    def shape(self, call: Call) -> Shape:
        return tuple(cut.count for cut in self._cuts(call) if cut.kept)

    def lowering(self, call: Call) -> Lowering:
        entries: list[tuple[int, int, int]] = []
        written = 0
        for cut in self._cuts(call):
            if cut.axis >= 0:
                entries.append((written if cut.kept else -1, cut.start, cut.step))
            written += cut.kept
        dims, starts, steps = zip(*entries, strict=True)
        cuts = self._looked_up(call)
        source = self._look_up(call, cuts) if cuts else call.index(0)
        return moved(source, IndexMap(dims, starts, steps))

    @staticmethod
    def _look_up(call: Call, cuts: Sequence[Cut]) -> Lowering:
        """The data at the runtime indices; the indexed axes stay, with size 1."""
        shape, dtype, data = call.shape(0), call.tensor(1).dtype, call.output.dtype
        first, count = cuts[0].axis, len(cuts)
        sizes = np.array(shape[first : first + count], dtype)
        wrapped = select(binary("lt", Arg(0), 0), Arg(0) + Arg(1), Arg(0))
        nearest = minimum(maximum(wrapped, 0), Arg(1) - 1)
        form = Map(nearest, (IndexMap.along(1, starts=(cuts[0].position,)), IndexMap.along(1)))
        indices = Lowering(form, (call.index(1), sizes), (1, count), dtype)
        rest = shape[first + count :]
        taken = Lowering(Gather(axis=first), (call.index(0), indices), (*shape[:first], 1, *rest), data)
        return view(taken, (*shape[:first], *(1,) * count, *rest), data)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, begin, end, strides = given(arrays)
        begin_mask, end_mask, ellipsis, added, shrunk = (attrs.get(name, 0) for name in MASKS)
        index: list[Any] = []
        for position in range(begin.size):
            first, step = int(begin[position]), int(strides[position])
            last = int(end[position]) + (first if attrs.get("offset") else 0)
            bounds = (None if begin_mask >> position & 1 else first), (None if end_mask >> position & 1 else last)
            special = [
                (ellipsis, Ellipsis),
                (added, np.newaxis),
                (shrunk, 0 if begin_mask >> position & 1 else first),
            ]
            index.append(next((what for mask, what in special if mask >> position & 1), slice(*bounds, step)))
        return [np.asarray(data[tuple(index)])]
