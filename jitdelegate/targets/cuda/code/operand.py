"""How a kernel reads an operand at an index of the output. Templates fix how; launches pass the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import load_run
from jitdelegate.targets.cuda.code.index_map import CanonicalMap, Walk
from jitdelegate.targets.cuda.code.sizes import Kind


class Neighbours(Enum):
    """Which elements a vector of neighbouring outputs reads."""

    VECTOR = "vector"  # neighbouring elements, from a multiple of the vector's width on
    SAME = "same"  # the same element
    APART = "apart"  # elements whose distance is an argument


@dataclass(frozen=True, slots=True)
class Operand:
    """How a template reads an operand.

    Attributes:
        checked: per axis, whether indices must be compared with limits; outside the limits the value is `fill`.
    """

    element: Element
    neighbours: Neighbours
    checked: tuple[bool, ...]
    fill: float

    @property
    def kind(self) -> Kind:
        """The kind of the kernel's parameter that takes `numbers`."""
        axes = len(self.checked)
        strides = axes if self.neighbours is Neighbours.APART else axes - 1
        return "int32", ("int32",) * strides, (("int32", "int32"),) * sum(self.checked)

    def numbers(self, walk: Walk) -> tuple[Any, ...]:
        """(offset, strides, limits of the checked axes): launch arguments for `read`."""
        strides = walk.strides if self.neighbours is Neighbours.APART else walk.strides[:-1]
        limits = tuple(limit for limit, checked in zip(walk.limits, self.checked, strict=True) if checked)
        return walk.offset, strides, limits

    def read(
        self, code: Code, base: Value, numbers: Sequence[Any], coordinates: Sequence[Value], width: int
    ) -> list[Value]:
        """The values for `width` outputs from `coordinates` on along the last axis.

        Args:
            base: pointer to the operand.
            numbers: the kernel's values of `numbers`.
        """
        (offset, strides, limits), (*outer, last) = numbers, coordinates
        for coordinate, stride in zip(outer, strides, strict=False):
            offset = offset + coordinate * stride
        if self.neighbours is Neighbours.APART:
            places = [last + k for k in range(width)]
            return [
                self._load(code, base, self._inside(limits, [*outer, place]), offset + place * strides[-1], 1)[0]
                for place in places
            ]
        inside = self._inside(limits, coordinates)
        if self.neighbours is Neighbours.SAME:
            return self._load(code, base, inside, offset, 1) * width
        return self._load(code, base, inside, offset + last, width)

    def _inside(self, limits: Sequence[Sequence[Value]], coordinates: Sequence[Value]) -> Value | None:
        """Whether all checked coordinates are within their limits; None if no axis is checked."""
        checked = [coordinate for coordinate, checked in zip(coordinates, self.checked, strict=True) if checked]
        inside = None
        for coordinate, (low, high) in zip(checked, limits, strict=True):
            within = (coordinate >= low) & (coordinate < high)
            inside = within if inside is None else inside & within
        return inside

    def _load(self, code: Code, base: Value, inside: Value | None, offset: Value, width: int) -> list[Value]:
        """Loads the values; outside the limits the operand's first elements are read instead, and not used."""
        if inside is None:
            return load_run(code, self.element, base, offset, width)
        loaded = load_run(code, self.element, base, code.select(inside, offset, 0), width)
        fill = code.constant(self.element.dtype, self.fill)
        return [code.select(inside, value, fill) for value in loaded]


def operands_of(index_map: CanonicalMap, elements: Sequence[Element], width: int) -> tuple[Operand, ...]:
    """The operands of all walks, stored as `elements` and read in vectors of `width` along the last axis."""
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


def read(
    code: Code,
    operands: Sequence[Operand],
    pointers: Sequence[Value],
    numbers: Sequence[Sequence[Any]],
    coordinates: Sequence[Value],
    width: int,
) -> list[list[Value]]:
    """For each operand its values for `width` outputs from `coordinates` on; arguments as for `Operand.read`."""
    triples = zip(operands, pointers, numbers, strict=True)
    return [one.read(code, base, own, coordinates, width) for one, base, own in triples]
