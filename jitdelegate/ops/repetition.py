"""Operators that write one element several times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, binary, select
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ops.call import INTEGERS, Call, Shape, given, with_axis
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.pointwise import broadcast, broadcasts
from jitdelegate.ops.registry import ANY, MAX_NUMBERED, NUMBERS, QUANTIZED, Lowering, Op, moved, op, view

EVERYWHERE = IndexMap.along()
"""The index map that reads a scalar."""


@op("FILL")
class Fill(Op):
    """An array of the shape in the first operand, filled with the scalar in the second."""

    types = ANY
    quantized = QUANTIZED
    least = most = 2
    parameters = (0,)
    cases = (
        Case((ints(2, 3, 5), ())),
        Case((ints(17), Fed((), "int64"))),
        Case((ints(1, 4, 4, 32), Fed((), "bool"))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        if min(call.integers(0), default=1) < 1 or call.shape(1) != ():
            yield f"FILL of {list(call.integers(0))} with a value of shape {list(call.shape(1))}."

    def shape(self, call: Call) -> Shape:
        return call.integers(0)

    def lowering(self, call: Call) -> Lowering:
        return moved(call.index(1), EVERYWHERE)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        shape, value = given(arrays)
        return [np.full(tuple(shape.flat), value)]


@op("BROADCAST_TO")
class BroadcastTo(Op):
    """The data repeated to the shape in the second operand, as numpy does."""

    types = ANY
    quantized = QUANTIZED
    version = 2
    least = most = 2
    parameters = (1,)
    cases = (
        Case(((5, 1), ints(2, 5, 3))),
        Case(((), ints(4, 4))),
        Case(((1, 4, 1, 6), ints(2, 4, 5, 6))),
        Case((Fed((3,), "int64"), ints(2, 1, 3))),
        Case((Fed((1, 3, 1), "bool"), np.array([2, 3, 17]))),
        Case(((2, 1, 3, 1, 2, 1), ints(2, 2, 3, 2, 2, 3))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        data, asked = call.shape(0), call.integers(1)
        fits = min(asked, default=1) > 0 and len(data) <= len(asked) and broadcasts(data, asked)
        if not fits or broadcast(data, asked) != asked:
            yield f"BROADCAST_TO: {list(data)} does not broadcast to {list(asked)}."

    def shape(self, call: Call) -> Shape:
        return call.integers(1)

    def lowering(self, call: Call) -> Lowering:
        return moved(call.index(0), IndexMap.broadcast(call.shape(0), call.output.shape))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, shape = given(arrays)
        return [np.broadcast_to(data, tuple(shape.flat))]


@op("TILE")
class Tile(Op):
    """The data repeated along every axis as often as the second operand says."""

    types = ANY
    quantized = QUANTIZED
    least = most = 2
    parameters = (1,)
    cases = (
        Case(((3, 4), ints(2, 1))),
        Case(((3, 4), ints(1, 3))),
        Case(((2, 3, 5), ints(2, 3, 2))),
        Case(((1, 1, 1, 6), ints(1, 4, 5, 1))),
        Case((Fed((1, 3), "int64"), np.array([5, 2]))),
        Case((Fed((2, 1, 2, 1, 2, 2), "bool"), ints(1, 2, 2, 1, 3, 2))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        times = call.integers(1)
        if len(times) != len(call.shape(0)) or min(times, default=1) < 1:
            yield f"TILE: {list(times)} does not fit the input's shape {list(call.shape(0))}."

    def shape(self, call: Call) -> Shape:
        return tuple(size * times for size, times in zip(call.shape(0), call.integers(1), strict=True))

    def lowering(self, call: Call) -> Lowering:
        """One axis after another, the last one first: the elements behind an axis are repeated as one block."""
        shape, times = call.shape(0), call.integers(1)
        if all(1 in pair for pair in zip(shape, times, strict=True)):
            return moved(call.index(0), IndexMap.broadcast(shape, call.output.shape))
        source: int | Lowering = call.index(0)
        for axis in reversed(range(len(shape))):
            if times[axis] > 1:
                source = self._repeated(source, shape, axis, times[axis], call.output.dtype)
                shape = with_axis(shape, axis, shape[axis] * times[axis])
        assert isinstance(source, Lowering)
        return source

    @staticmethod
    def _repeated(source: int | Lowering, shape: Shape, axis: int, times: int, dtype: str) -> Lowering:
        outer, inner = prod(shape[:axis]), prod(shape[axis:])
        rows = view(source, (outer, inner), dtype)
        return moved(rows, IndexMap.along(0, 2), (outer, times, inner), dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, times = given(arrays)
        return [np.tile(data, tuple(times.flat))]


@op("ONE_HOT")
class OneHot(Op):
    """A new axis of the size in the second operand: the third operand where the position on the axis equals the index,
    the fourth operand elsewhere."""

    types = (*NUMBERS, "bool", "int8", "uint8")
    kinds: ClassVar = {0: INTEGERS}
    least = most = 4
    parameters = (1,)
    cases = (
        Case(
            (Fed((2, 5), "int32"), np.array(7, np.int32), np.array(1, np.float32), np.array(0, np.float32)),
            {"axis": -1},
        ),
        Case((Fed((2, 5), "int64"), np.array(7, np.int32), (), ()), {"axis": 0}),
        Case((Fed((2, 3, 2), "int32"), np.array(4, np.int32), np.array(5), Fed((), "int64")), {"axis": 1}),
        Case((Fed((), "int32"), np.array(9, np.int32), np.array(True), np.array(False)), {"axis": -1}),
        Case((Fed((2, 5), "int32"), np.array(7, np.int32), np.array(-3, np.int8), Fed((), "int8")), {"axis": -1}),
        Case(
            (Fed((2, 5), "int32"), np.array(7, np.int32), np.array(200, np.uint8), np.array(7, np.uint8)), {"axis": 1}
        ),
    )

    def problems(self, call: Call) -> Iterator[str]:
        depth = call.integers(1)
        if len(depth) != 1 or depth[0] < 1:
            yield f"ONE_HOT: the depth is {list(depth)}, expected one positive number."
        if depth[0] > MAX_NUMBERED:
            yield f"ONE_HOT: the depth is {depth[0]}, at most {MAX_NUMBERED} is supported."
        if call.shape(2) != () or call.shape(3) != ():
            yield f"ONE_HOT: the values' shapes are {list(call.shape(2))} and {list(call.shape(3))}, expected scalars."
        if not -1 <= call.option("axis", 0) <= len(call.shape(0)):
            yield f"ONE_HOT: axis {call.option('axis', 0)} is neither -1 nor one of the output's."

    @staticmethod
    def _axis(rank: int, attrs: Mapping[str, Any]) -> int:
        axis: int = attrs.get("axis", 0) % (rank + 1)
        return axis

    def shape(self, call: Call) -> Shape:
        shape = call.shape(0)
        axis = self._axis(len(shape), call.node.attrs)
        return (*shape[:axis], call.integers(1)[0], *shape[axis:])

    def lowering(self, call: Call) -> Lowering:
        rank = len(call.shape(0))
        axis = self._axis(rank, call.node.attrs)
        classes = np.arange(call.integers(1)[0], dtype=call.tensor(0).dtype)
        others = tuple(a + (a >= axis) for a in range(rank))
        accesses = [IndexMap.along(*others), IndexMap.along(axis)]
        formula = select(binary("eq", Arg(0), Arg(1)), Arg(2), Arg(3))
        inputs = (call.index(0), classes, call.index(2), call.index(3))
        return Lowering(Map(formula, (*accesses, EVERYWHERE, EVERYWHERE)), inputs)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        indices, depth, on, off = given(arrays)
        axis = self._axis(indices.ndim, attrs)
        classes = np.arange(int(depth.flat[0])).reshape(-1, *(1,) * (indices.ndim - axis))
        return [np.where(np.expand_dims(indices, axis) == classes, on, off)]
