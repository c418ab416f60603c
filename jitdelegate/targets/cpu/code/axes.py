"""Axes of row-major tensors, and where their elements lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.vector_ir import Function, Value


@dataclass(frozen=True)
class Axis:
    """One logical axis of the input: its size and the bytes between neighbours."""

    size: int
    distance: int


def offset_of(f: Function, number: Value, axes: Sequence[Axis]) -> Value:
    """The byte offset of element `number`, counted row-major over `axes`."""
    total = f.index(0)
    *outer, last = joined(axes) or [Axis(1, 0)]
    for axis in reversed(outer):
        last_index, number = number % last.size, number // last.size
        total, last = last_index * last.distance + total, axis
    return number * last.distance + total


def joined(axes: Sequence[Axis]) -> list[Axis]:
    """The same elements with fewer axes: drops axes of size 1, and joins axes that continue each other."""
    result: list[Axis] = []
    for axis in axes:
        if axis.size > 1 and result and result[-1].distance == axis.size * axis.distance:
            result[-1] = Axis(result[-1].size * axis.size, axis.distance)
        elif axis.size > 1:
            result.append(axis)
    return result
