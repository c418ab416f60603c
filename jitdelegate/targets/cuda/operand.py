"""How a kernel reads an operand at an index of the output: part of templates, with the sizes as arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from jitdelegate.ir.expr import Expr
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import Element
from jitdelegate.targets.cuda.epilogue import load_run
from jitdelegate.targets.cuda.index_map import CanonicalMap, Walk
from jitdelegate.targets.scalar.expression import emit


class Neighbours(Enum):
    """What neighbouring outputs, a vector of them, read."""

    VECTOR = "vector"  # neighbours, from a multiple of the vector's width on
    SAME = "same"  # one and the same element
    APART = "apart"  # elements at the distance of an argument


@dataclass(frozen=True, slots=True)
class Operand:
    """Part of a template.

    Attributes:
        checked: per axis, whether indices must be compared with limits; outside them the value is `fill`.
    """

    element: Element
    neighbours: Neighbours
    checked: tuple[bool, ...]
    fill: float

    @property
    def count(self) -> int:
        """How many arguments `numbers` answers."""
        axes = len(self.checked)
        return (1 + axes if self.neighbours is Neighbours.APART else axes) + 2 * sum(self.checked)

    def numbers(self, walk: Walk) -> list[int]:
        """The walk as int32 arguments, in the order in which `read` takes them."""
        strides = walk.strides if self.neighbours is Neighbours.APART else walk.strides[:-1]
        limits = (limit for limit, checked in zip(walk.limits, self.checked, strict=True) if checked)
        return [walk.offset, *strides, *(number for limit in limits for number in limit)]

    def read(
        self, code: Code, base: Value, numbers: Iterator[Value], coordinates: Sequence[Value], width: int
    ) -> list[Value]:
        """The values for `width` outputs from `coordinates` on along the last axis.

        Args:
            base: pointer to the operand.
            numbers: arguments; those of `numbers` are taken from it.
        """
        *outer, last = coordinates
        offset = next(numbers)
        for coordinate in outer:
            offset = offset + coordinate * next(numbers)
        if self.neighbours is not Neighbours.APART:
            return self._read_once(code, base, numbers, coordinates, width, offset)
        stride = next(numbers)
        limits = self._limits(numbers)
        places = [last + k for k in range(width)]
        return [
            self._load(code, base, self._inside(limits, [*outer, place]), offset + place * stride, 1)[0]
            for place in places
        ]

    def _read_once(
        self,
        code: Code,
        base: Value,
        numbers: Iterator[Value],
        coordinates: Sequence[Value],
        width: int,
        offset: Value,
    ) -> list[Value]:
        inside = self._inside(self._limits(numbers), coordinates)
        if self.neighbours is Neighbours.SAME:
            return self._load(code, base, inside, offset, 1) * width
        return self._load(code, base, inside, offset + coordinates[-1], width)

    def _limits(self, numbers: Iterator[Value]) -> list[tuple[int, Value, Value]]:
        """(axis, low, high) of every checked axis."""
        return [(axis, next(numbers), next(numbers)) for axis, checked in enumerate(self.checked) if checked]

    def _inside(self, limits: Sequence[tuple[int, Value, Value]], coordinates: Sequence[Value]) -> Value | None:
        """Whether all checked coordinates are within their limits; None if there are none."""
        inside = None
        for axis, low, high in limits:
            within = (coordinates[axis] >= low) & (coordinates[axis] < high)
            inside = within if inside is None else inside & within
        return inside

    def _load(self, code: Code, base: Value, inside: Value | None, offset: Value, width: int) -> list[Value]:
        """Where it is outside, the first elements are read instead, and not used."""
        if inside is None:
            return load_run(code, self.element, base, offset, width)
        found = load_run(code, self.element, base, code.select(inside, offset, 0), width)
        fill = code.constant(self.element.dtype, self.fill)
        return [code.select(inside, value, fill) for value in found]


def operands_of(index_map: CanonicalMap, elements: Sequence[Element], width: int) -> tuple[Operand, ...]:
    """How to read all walks in vectors of `width` along the last axis, from operands stored as `elements`."""
    pairs = zip(index_map.walks, elements, strict=True)
    return tuple(_operand(walk, element, index_map.checked(walk), width) for walk, element in pairs)


def _operand(walk: Walk, element: Element, checked: tuple[bool, ...], width: int) -> Operand:
    limits = walk.limits[-1] if checked[-1] else ()
    whole = not any(limit % width for limit in limits)
    aligned = not any(number % width for number in (walk.offset, *walk.strides[:-1]))
    if walk.strides[-1] == 0 and whole:
        neighbours = Neighbours.SAME
    elif walk.strides[-1] == 1 and aligned and whole:
        neighbours = Neighbours.VECTOR
    else:
        neighbours = Neighbours.APART
    return Operand(element, neighbours, checked, walk.fill if any(checked) else 0.0)


def apply(
    code: Code,
    expr: Expr,
    operands: Sequence[Operand],
    pointers: Sequence[Value],
    numbers: Iterator[Value],
    coordinates: Sequence[Value],
    width: int,
    dtype: str,
) -> list[Value]:
    """`expr` over the operands for `width` outputs of type `dtype` from `coordinates` on; arguments as for
    `Operand.read`."""
    columns = [one.read(code, base, numbers, coordinates, width) for one, base in zip(operands, pointers, strict=True)]
    types = [one.element.dtype for one in operands]
    return [emit(code, expr, [column[k] for column in columns], types, dtype) for k in range(width)]
