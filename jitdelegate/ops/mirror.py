"""Operators that read their operand in reverse order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitdelegate.ir.forms import Concat, IndexMap
from jitdelegate.ops.call import Call, Shape, given, with_axis
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.padding import Padding
from jitdelegate.ops.registry import ANY, QUANTIZED, Lowering, Op, moved, op
from jitdelegate.ops.shape import axis_problems


def backwards(rank: int, first: Mapping[int, int]) -> IndexMap:
    """Reads these axes in reverse order, from first[axis] on, and all others in their own order."""
    axes = range(rank)
    return IndexMap(tuple(axes), tuple(first.get(a, 0) for a in axes), tuple(-1 if a in first else 1 for a in axes))


@op("REVERSE_V2")
class ReverseV2(Op):
    """The data in reverse order along the axes in the second operand, which must be adjacent."""

    types = ANY
    quantized = QUANTIZED
    least = most = 2
    parameters = (1,)
    cases = (
        Case(((2, 3, 5), ints(1))),
        Case(((1, 4, 5, 6), ints(-1))),
        Case((Fed((4, 3), "int64"), ints(0, 1))),
        Case((Fed((17,), "bool"), ints(0))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        axes, rank = call.integers(1), len(call.shape(0))
        for axis in axes:
            yield from axis_problems(call, axis, rank)
        chosen = sorted(axis % rank for axis in axes)
        if not chosen or chosen != list(range(chosen[0], chosen[0] + len(chosen))):
            yield f"REVERSE_V2: the axes {list(axes)} are not neighbours, each once."

    def lowering(self, call: Call) -> Lowering:
        shape = call.shape(0)
        chosen = (axis % len(shape) for axis in call.integers(1))
        return moved(call.index(0), backwards(len(shape), {axis: shape[axis] - 1 for axis in chosen}))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, axes = given(arrays)
        return [np.flip(data, tuple(axes.flat))]


@op("MIRROR_PAD")
class MirrorPad(Padding):
    """Pads the data with its own elements in reverse order, from the border (SYMMETRIC) or one further (REFLECT) on."""

    cases = tuple(
        Case((data, paddings), {"mode": mode})
        for mode in ("REFLECT", "SYMMETRIC")
        for data, paddings in (
            ((1, 4, 5, 6), ints((0, 0), (1, 2), (3, 1), (0, 0))),
            ((3, 4), ints((2, 2), (0, 3))),
            ((7,), np.array([[4, 0]])),
            (Fed((2, 3, 4, 1, 5), "int32"), ints((1, 1), (2, 0), (0, 0), (0, 0), (4, 4))),
        )
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        own = self._kept(call.node.attrs)
        for size, borders in zip(call.shape(0), self.borders(call), strict=True):
            if max(borders) > size - own:
                yield f"MIRROR_PAD: a border of {max(borders)} is more than an axis of size {size} mirrors."

    @staticmethod
    def _kept(attrs: Mapping[str, Any]) -> int:
        """The number of elements next to the border that are not repeated."""
        return 1 if attrs.get("mode", "REFLECT") == "REFLECT" else 0

    def lowering(self, call: Call) -> Lowering:
        """One axis after another, so that corners are mirrored twice."""
        source: int | Lowering = call.index(0)
        shape = call.shape(0)
        for axis, borders in enumerate(self.borders(call)):
            if any(borders):
                source = self._widened(call, source, shape, axis)
                shape = with_axis(shape, axis, sum(borders) + shape[axis])
        return source if isinstance(source, Lowering) else moved(source, IndexMap.broadcast(shape, shape))

    def _widened(self, call: Call, source: int | Lowering, shape: Shape, axis: int) -> Lowering:
        (before, after), kept, size = self.borders(call)[axis], self._kept(call.node.attrs), shape[axis]
        dtype = call.output.dtype

        def mirrored(first: int, count: int) -> tuple[Lowering, ...]:
            """`count` elements from `first` on, in reverse order; no part if `count` is 0."""
            access = backwards(len(shape), {axis: first})
            return (moved(source, access, with_axis(shape, axis, count), dtype),) if count else ()

        parts = (*mirrored(before - 1 + kept, before), source, *mirrored(size - 1 - kept, after))
        return Lowering(Concat(axis=axis), parts, with_axis(shape, axis, before + size + after), dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, paddings = given(arrays)
        mode = "reflect" if self._kept(attrs) else "symmetric"
        return [np.pad(data, paddings, mode=mode)]  # type: ignore[call-overload]
