"""Records of the numbers that a launch passes to its kernel, with the same names on both sides.

A record is a NamedTuple. A launch passes a record of ints, and `Template.write` receives a record of Values. Its fields
are int32 parameters of the kernel, in order; a field may be a record itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

Number = Any
"""An int in a launch, a Value in a kernel."""
Kind = str | type[tuple[Any, ...]] | tuple["Kind", ...]
"""The kind of a kernel's parameter: "pointer", "int32", "float32", a record, or a tuple of kinds."""


class Divisor(NamedTuple):
    """The numbers of `division.divisor` for a size, which `division.divided` takes."""

    size: Number
    multiplier: Number
    shift: Number


def members(kind: tuple[Kind, ...] | type[tuple[Any, ...]]) -> tuple[Kind, ...]:
    """The kinds that a tuple or a record consists of."""
    if isinstance(kind, tuple):
        return kind
    hints = get_type_hints(kind).values()
    return tuple(hint if issubclass(hint, tuple) else "int32" for hint in hints)


def flattened(arguments: Any) -> list[Any]:
    """Arguments as one flat list, without nested tuples and lists."""
    if isinstance(arguments, tuple | list):
        return [one for argument in arguments for one in flattened(argument)]
    return [arguments]


def count(kind: Kind) -> int:
    """Number of kernel parameters of a kind."""
    return 1 if isinstance(kind, str) else sum(map(count, members(kind)))


def filled(kind: Kind, numbers: Iterator[Any]) -> Any:
    """A value of this kind made from the next numbers: a number, a list for a tuple, or a record."""
    if isinstance(kind, str):
        return next(numbers)
    filled_members = [filled(one, numbers) for one in members(kind)]
    return kind(*filled_members) if isinstance(kind, type) else filled_members
