"""Index maps in canonical form: which elements of the operands are read as the output is written in row-major order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul

from jitdelegate.ir.forms import IndexMap

Shape = tuple[int, ...]
Limit = tuple[int, int]
"""A range of indices: from the first number up to, not including, the second."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Output index i reads element offset + sum of strides[d] * i[d] of an operand.

    Attributes:
        offset, strides: counted in elements.
        limits: per output axis, the indices for which the operand is read; elsewhere its value is `fill`.
    """

    offset: int
    strides: Shape
    limits: tuple[Limit, ...]
    fill: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether no index reads the operand, so that its value is always `fill`."""
        return any(low >= high for low, high in self.limits)


@dataclass(frozen=True, slots=True)
class CanonicalMap:
    """The sizes of an output, its strides and the walks of its operands, with as few axes as possible, but at least
    one."""

    sizes: Shape
    strides: Shape
    walks: tuple[Walk, ...]

    @property
    def is_dense(self) -> bool:
        """Whether neighbours in the output are neighbours in memory."""
        return self.strides == dense_strides(self.sizes)

    def checked(self, walk: Walk) -> tuple[bool, ...]:
        """Per axis, whether some of its indices lie outside the operand."""
        return tuple(limit != (0, size) for limit, size in zip(walk.limits, self.sizes, strict=True))


def dense_strides(shape: Shape) -> Shape:
    """The strides of a row-major tensor, in elements."""
    return tuple(accumulate(reversed(shape[1:]), mul, initial=1))[::-1] if shape else ()


def walk(operand: Shape, access: IndexMap, output: Shape, distances: Shape | None = None, first: int = 0) -> Walk:
    """The walk of an operand of shape `operand` by the index map `access`; a scalar output counts as shape (1,).

    Args:
        distances: the operand's strides; None where it is dense.
        first: the number of its first element.
    """
    output = output or (1,)
    distances = dense_strides(operand) if distances is None else distances
    offset, strides = first, [0] * len(output)
    limits = [(0, size) for size in output]
    entries = zip(access.dims, access.starts, access.steps, operand, distances, strict=True)
    for dim, start, step, size, distance in entries:
        offset += start * distance
        if dim >= 0:
            strides[dim] += step * distance
        if access.fill is None:
            continue
        if dim >= 0 and step != 0:
            limits[dim] = _meet(limits[dim], _inside(start, step, size))
        elif not 0 <= start < size:
            return Walk(0, tuple(strides), ((0, 0),) * len(output), access.fill)
    return Walk(offset, tuple(strides), tuple(limits), access.fill or 0.0)


def _inside(start: int, step: int, size: int) -> Limit:
    """The i for which 0 <= start + step * i < size."""
    if step > 0:
        return -(start // step), -((start - size) // step)
    return (start - size) // -step + 1, start // -step + 1


def _meet(a: Limit, b: Limit) -> Limit:
    return max(a[0], b[0]), min(a[1], b[1])


def canonical(sizes: Shape, walks: Sequence[Walk], strides: Shape | None = None) -> CanonicalMap:
    """The canonical map: without axes of size 1, and with neighbouring axes merged where every walk allows it.

    Args:
        sizes: sizes of the output.
        walks: walks of the operands; none of them is empty.
        strides: strides of the output; None where it is dense.
    """
    output = Walk(0, dense_strides(sizes) if strides is None else strides, tuple((0, size) for size in sizes))
    every = *walks, output
    kept = [axis for axis, size in enumerate(sizes) if size != 1]
    merged: list[list[int]] = []
    for axis in kept:
        if merged and all(_runs_on(walk, sizes, merged[-1][-1], axis) for walk in every):
            merged[-1].append(axis)
        else:
            merged.append([axis])
    groups = [[(sizes[axis], axis) for axis in group] for group in merged]
    joined = tuple(prod(size for size, _ in group) for group in groups)
    strides = _joined(output, groups).strides if groups else (1,)
    return CanonicalMap(joined or (1,), strides, tuple(_joined(walk, groups) for walk in walks))


def _runs_on(walk: Walk, sizes: Shape, outer: int, inner: int) -> bool:
    """Whether one step along `outer` goes as far as all steps along `inner`, and all of `inner` is within limits."""
    return walk.strides[outer] == walk.strides[inner] * sizes[inner] and walk.limits[inner] == (0, sizes[inner])


def _joined(walk: Walk, groups: Sequence[Sequence[tuple[int, int]]]) -> Walk:
    """The walk over merged axes: each group has the stride of its last axis and the limits of its first one."""
    if not groups:
        return Walk(walk.offset, (0,), ((0, 1),), walk.fill)
    strides, limits = [], []
    for group in groups:
        scale = prod(size for size, _ in group[1:])
        strides.append(walk.strides[group[-1][1]])
        low, high = walk.limits[group[0][1]]
        limits.append((low * scale, high * scale))
    return Walk(walk.offset, tuple(strides), tuple(limits), walk.fill)
