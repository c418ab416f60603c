"""Operators that cut their operand into several outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitdelegate.ir.forms import IndexMap
from jitdelegate.ops.call import Call, Shape, given, with_axis
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.registry import ANY, MAX_PARTS, QUANTIZED, Lowering, Op, moved, op
from jitdelegate.ops.shape import axis_problems, one_axis, one_axis_problems


class Parts(Op):
    """Splits the operand `data` along the axis in operand `along` into `num_splits` parts."""

    types = ANY
    quantized = QUANTIZED
    takes_empty = skips_empty = True
    data: int
    along: int

    def outputs(self, call: Call) -> int:
        return int(call.option("num_splits", 0))

    def problems(self, call: Call) -> Iterator[str]:
        if not 1 <= len(call.node.outputs) <= MAX_PARTS:
            yield f"{self.name}: {len(call.node.outputs)} parts are not between 1 and {MAX_PARTS}."
        yield from one_axis_problems(call, self.along, self.data)

    def axis(self, call: Call) -> int:
        """The axis, counted from the front."""
        return one_axis(call, self.along, self.data)

    def sizes_along(self, call: Call) -> Shape:
        """The size of each output along the axis."""
        raise NotImplementedError

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(self.data), self.axis(call)
        return tuple(with_axis(shape, axis, size) for size in self.sizes_along(call))

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        rank, axis, sizes = len(call.shape(self.data)), self.axis(call), self.sizes_along(call)
        starts = [tuple(sum(sizes[:part]) * (a == axis) for a in range(rank)) for part in range(len(sizes))]
        accesses = (IndexMap.along(*range(rank), starts=start) for start in starts)
        return tuple(moved(call.index(self.data), access) for access in accesses)


@op("SPLIT")
class Split(Parts):
    """Equal parts along the axis in the first operand."""

    data, along = 1, 0
    least = most = 2
    parameters = (0,)
    cases = (
        Case((ints(1), (2, 6, 5)), {"num_splits": 3}),
        Case((np.array(-1, np.int32), (1, 4, 4, 32)), {"num_splits": 2}),
        Case((np.array(0, np.int32), Fed((4, 3), "int64")), {"num_splits": 4}),
        Case((ints(2), (1, 2, 6, 2, 2, 2)), {"num_splits": 2}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        extent = call.shape(1)[self.axis(call)]
        if extent % len(call.node.outputs):
            yield f"SPLIT: size {extent} does not divide into {len(call.node.outputs)} parts."

    def sizes_along(self, call: Call) -> Shape:
        count = len(call.node.outputs)
        return (call.shape(1)[self.axis(call)] // count,) * count

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        axis, data = given(arrays)
        return np.split(data, attrs["num_splits"], int(axis.flat[0]))


@op("SPLIT_V")
class SplitV(Parts):
    """Parts along the axis in the third operand, with the sizes in the second; one size may be -1 for the rest."""

    data, along = 0, 2
    least = most = 3
    parameters = (1, 2)
    parameter_size = MAX_PARTS
    cases = (
        Case(((2, 6, 5), ints(1, 3, 2), ints(1)), {"num_splits": 3}),
        Case(((1, 4, 4, 40), ints(16, -1), np.array(-1, np.int32)), {"num_splits": 2}),
        Case((Fed((7, 2), "int32"), np.array([-1, 2, 2]), ints(0)), {"num_splits": 3}),
        Case(((5, 3), ints(0, 5, 0), ints(0)), {"num_splits": 3}),
        Case(((2, 4), ints(3, 0, -1, 1), ints(1)), {"num_splits": 4}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        asked, extent = call.integers(1), call.shape(0)[self.axis(call)]
        known = sum(size for size in asked if size != -1)
        whole = known == extent if -1 not in asked else known <= extent
        if len(asked) != len(call.node.outputs) or asked.count(-1) > 1 or min(asked) < -1 or not whole:
            yield f"SPLIT_V: sizes of {list(asked)} do not make up {extent} in {len(call.node.outputs)} parts."

    def sizes_along(self, call: Call) -> Shape:
        asked = call.integers(1)
        rest = call.shape(0)[self.axis(call)] - sum(size for size in asked if size != -1)
        return tuple(rest if size == -1 else size for size in asked)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, sizes, along = given(arrays)
        axis = int(along.flat[0])
        asked = np.where(sizes == -1, data.shape[axis] - sizes[sizes != -1].sum(), sizes)
        return np.split(data, np.cumsum(asked)[:-1], axis)


@op("UNPACK")
class Unpack(Op):
    """Each slice along the option `axis` as an output of its own, without that axis."""

    types = ANY
    quantized = QUANTIZED
    cases = (
        Case(((3, 4),), {"num": 3, "axis": 0}),
        Case(((2, 3, 4),), {"num": 4, "axis": -1}),
        Case(((1, 5, 2, 6),), {"num": 2, "axis": 2}),
        Case((Fed((4,), "int32"),), {"num": 4, "axis": 0}),
    )

    def outputs(self, call: Call) -> int:
        return int(call.option("num", 0))

    def problems(self, call: Call) -> Iterator[str]:
        shape, axis = call.shape(0), int(call.option("axis", 0))
        yield from axis_problems(call, axis, len(shape))
        if not 1 <= len(call.node.outputs) <= MAX_PARTS or shape[axis] != len(call.node.outputs):
            yield f"UNPACK: size {shape[axis]} does not unpack into {len(call.node.outputs)} outputs."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.option("axis", 0) % len(call.shape(0))
        return (with_axis(shape, axis),) * len(call.node.outputs)

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        rank = len(call.shape(0))
        axis = call.option("axis", 0) % rank
        dims = tuple(-1 if a == axis else a - (a > axis) for a in range(rank))
        starts = (tuple(number * (a == axis) for a in range(rank)) for number in range(call.shape(0)[axis]))
        accesses = (IndexMap.along(*dims, starts=start) for start in starts)
        return tuple(moved(call.index(0), access) for access in accesses)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        return list(np.moveaxis(data, attrs.get("axis", 0), 0))
