"""Where elements of a tensor lie in memory, after any chain of reshapes and permutations: sizes with distances.

A run of `Axis`es, outermost first, says of the elements that are counted in row-major order over these sizes how far
from the first one each of them lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from jitdelegate.ir.forms import Shape


class Axis(NamedTuple):
    """`size` elements, or groups of them, `distance` elements apart."""

    size: int
    distance: int


Axes = tuple[Axis, ...]


def split(axes: Axes, shape: Shape) -> list[Axes] | None:
    """The elements of `axes` as a tensor of `shape`: for each of its axes, the axes that it consists of, merged where
    distances continue. None where an axis of the shape ends within a size that it does not divide.
    """
    rest, parts = [axis for axis in axes if axis.size > 1], list[Axes]()
    for size in reversed(shape):
        own, missing = list[Axis](), size
        while missing > 1:
            axis = rest.pop()
            if missing % axis.size == 0:
                own.insert(0, axis)
                missing //= axis.size
            elif axis.size % missing == 0:
                own.insert(0, Axis(missing, axis.distance))
                rest.append(Axis(axis.size // missing, axis.distance * missing))
                missing = 1
            else:
                return None
        parts.insert(0, merged(own))
    return parts


def merged(axes: Iterable[Axis]) -> Axes:
    """The same elements with as few axes as possible."""
    joined = list[Axis]()
    for axis in axes:
        if joined and joined[-1].distance == axis.size * axis.distance:
            joined[-1] = Axis(joined[-1].size * axis.size, axis.distance)
        elif axis.size > 1:
            joined.append(axis)
    return tuple(joined)


def common(runs: Sequence[Axes]) -> list[tuple[int, tuple[int, ...]]] | None:
    """Several runs of equally many elements over the same sizes: (size, one distance per run), outermost first.

    Neighbouring axes are merged where all runs allow it. None where no sizes divide those of all runs.
    """
    rests = [[axis for axis in run if axis.size > 1] for run in runs]
    assert len({prod(axis.size for axis in run) for run in runs}) == 1, runs
    shared = list[tuple[int, tuple[int, ...]]]()
    while all(rests):
        size = min(rest[-1].size for rest in rests)
        if any(rest[-1].size % size for rest in rests):
            return None
        distances = tuple(rest[-1].distance for rest in rests)
        for rest in rests:
            axis = rest.pop()
            if axis.size > size:
                rest.append(Axis(axis.size // size, axis.distance * size))
        if shared and distances == tuple(shared[0][0] * inner for inner in shared[0][1]):
            shared[0] = size * shared[0][0], shared[0][1]
        else:
            shared.insert(0, (size, distances))
    return shared


def composed(axes: Axes, offset: int, inner: Axes) -> tuple[Axes, int] | None:
    """The elements at `offset` and `axes` of a tensor, whose own elements lie at `inner`, as axes and offset there.

    None where an axis goes on from one axis of `inner` to the next.
    """
    after, places = 1, list[tuple[int, Axis]]()  # an axis of the tensor, and the elements from one index to the next
    for axis in reversed(inner):
        places.insert(0, (after, axis))
        after *= axis.size
    reached = [offset // step % axis.size for step, axis in places]
    start = sum(index * axis.distance for index, (_, axis) in zip(reached, places, strict=True))
    mapped, rest = list[Axis](), list(axes)
    while rest:
        size, distance = rest.pop()
        if distance == 0 or size == 1:
            mapped.insert(0, Axis(size, 0))
            continue
        number = next((at for at, (step, _) in enumerate(places) if step <= distance), None)
        if number is None or distance % places[number][0]:
            return None
        step, axis = places[number]
        stride = distance // step
        fitting = -(-axis.size // stride)
        if size > fitting:
            if axis.size % stride or size % fitting:
                return None
            rest.append(Axis(size // fitting, step * axis.size))
            size = fitting
        reached[number] += (size - 1) * stride
        if reached[number] >= axis.size:
            return None
        mapped.insert(0, Axis(size, stride * axis.distance))
    return merged(mapped), start
