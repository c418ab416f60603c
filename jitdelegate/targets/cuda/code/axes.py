"""Indices of dense tensors: the launch arguments and the device code that split them into coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.division import coordinates, divided, divisor, divisor_kinds
from jitdelegate.targets.cuda.code.sizes import Divisor, Number, flattened


class Rows(NamedTuple):
    """Rows along one axis of a tensor: their number, their length, and the distance between elements of a row."""

    number: Number
    length: Number
    pitch: Divisor

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> Rows:
        """The rows of a dense tensor along `axis`."""
        return Rows(prod(shape) // shape[axis], shape[axis], Divisor(*divisor(prod(shape[axis + 1 :]))))

    def first(self, code: Code, row: Value) -> Value:
        """The index of a row's first element; neighbouring rows are neighbours in memory where possible."""
        outer, inner = divided(code, row, self.pitch)
        index: Value = outer * self.length * self.pitch.size + inner
        return index


class FourAxes(NamedTuple):
    """Four axes: their number of elements, and the sizes of all axes but the first."""

    number: Number
    second: Divisor
    third: Divisor
    last: Divisor

    @staticmethod
    def of(sizes: Sequence[int]) -> FourAxes:
        """The axes with these four sizes."""
        return FourAxes(prod(sizes), *(Divisor(*divisor(size)) for size in sizes[1:]))

    def coordinates(self, code: Code, index: Value) -> list[Value]:
        """A row-major index as one index per axis."""
        return coordinates(code, index, flattened(self[1:]))


def axis_kinds(axes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds of the kernel's parameters that take sizes, as divisors, and strides of this many axes."""
    return divisor_kinds(axes), ("int32",) * axes


def offset_along(code: Code, index: Value, sizes: Sequence[Value], strides: Sequence[Value]) -> Value:
    """The offset, in elements, of a row-major index over axes with these sizes (as divisors) and strides."""
    places = coordinates(code, index, sizes)
    distances = [place * stride for place, stride in zip(places, strides, strict=True)]
    return reduce_tree(distances, lambda a, b: a + b)
