"""Records of the numbers that a launch hands to its kernel, by one name on both sides.

A record is a NamedTuple. A launch gives it with ints, `Template.write` receives it with Values. Its fields are int32
parameters of the kernel in their order; a field may be a record itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

Number = Any
"""An int in a launch, a Value in a kernel."""
Kind = str | type[tuple[Any, ...]] | tuple["Kind", ...]
"""What a kernel takes: "pointer", "int32", "float32", a record, or several of them as one tuple."""


class Divisor(NamedTuple):
    """What `division.divisor` says of a size, for `division.divided`."""

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
    """Arguments one after another, without the tuples and lists that hold them."""
    if isinstance(arguments, tuple | list):
        return [one for argument in arguments for one in flattened(argument)]
    return [arguments]


def count(kind: Kind) -> int:
    """Parameters that a kind stands for."""
    return 1 if isinstance(kind, str) else sum(map(count, members(kind)))


def filled(kind: Kind, numbers: Iterator[Any]) -> Any:
    """A number, a list for a tuple, or a record, of the next numbers."""
    if isinstance(kind, str):
        return next(numbers)
    found = [filled(one, numbers) for one in members(kind)]
    return kind(*found) if isinstance(kind, type) else found
