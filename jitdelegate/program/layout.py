"""File layout of a program: the header, and the FlatBuffer tables field by field.

Writer and reader both follow these layouts, so a field is added here, in its class and in program.fbs, nowhere else.
A field's slot is its position in the list; new fields go to the end, and every change increments FORMAT_VERSION.
"""

from __future__ import annotations

import struct

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import IdleSubgraph, Kernel, Operator, Partition, Port, Program, Signature, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.program.program import Launch

MAGIC = b"\x89JITDEL\n"
FORMAT_VERSION = 11
TABLE_IDENTIFIER = b"JITD"
ALIGNMENT = 4096

# magic, format version, header bytes, file bytes, (offset, bytes) of table, code and stored weights, hashes of table
# and code; the header's own hash follows, over all of these.
HEADER = struct.Struct("<8sII7Q16s16s")
HASH_BYTES = 16
HEADER_BYTES = HEADER.size + HASH_BYTES

LOAN_NUMBERS = 4
"""Numbers of one run of borrowed pages."""

STRING = "string"
INTEGER = "long"
INTEGERS = "[long]"
REALS = "[double]"


class Layout:
    """The fields of one kind of table.

    Attributes:
        name: the table's name in program.fbs.
        make: makes the object from its fields, given by keyword.
        fields: name and kind, by slot. The kind Layout is a vector of such tables, Packed a vector of integers.
    """

    __slots__ = ("fields", "make", "name")

    def __init__(
        self, name: str, make: Callable[..., Any], fields: tuple[tuple[str, str | Layout | Packed], ...]
    ) -> None:
        self.name = name
        self.make = make
        self.fields = fields


class Packed:
    """Objects stored as one vector of integers or strings, which reads faster than tables.

    Attributes:
        name: the type of the vector's elements in program.fbs, INTEGER or STRING.
        pack, unpack: convert the objects to elements, and back.
    """

    __slots__ = ("name", "pack", "unpack")

    def __init__(self, name: str, pack: Callable[[Any], Sequence[Any]], unpack: Callable[[Sequence[Any]], Any]) -> None:
        self.name = name
        self.pack = pack
        self.unpack = unpack


def _flat(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [text for pair in pairs for text in pair]


def _pairs(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if len(texts) % 2:
        raise ProgramError(f"a key of {len(texts)} texts, expected names and values")
    return tuple(zip(texts[::2], texts[1::2], strict=True))


def _groups(what: str, size: int) -> Packed:
    """Tuples of `size` numbers each, in one list of numbers."""

    def unpack(numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        if len(numbers) % size:
            raise ProgramError(f"{what} of {len(numbers)} numbers, expected {size} for each")
        return tuple(tuple(numbers[at : at + size]) for at in range(0, len(numbers), size))

    return Packed(INTEGER, lambda groups: [number for group in groups for number in group], unpack)


def _place(name: str, at: int) -> tuple[str, int]:
    return name, at


PLACE = Layout("Place", _place, (("name", STRING), ("at", INTEGER)))
PORT = Layout(
    "Port",
    Port,
    (
        ("name", STRING),
        ("index", INTEGER),
        ("shape", INTEGERS),
        ("shape_signature", INTEGERS),
        ("dtype", STRING),
        ("scales", REALS),
        ("zero_points", INTEGERS),
        ("axis", INTEGER),
        ("nbytes", INTEGER),
    ),
)
SIGNATURE = Layout("Signature", Signature, (("key", STRING), ("graph", INTEGER), ("inputs", PLACE), ("outputs", PLACE)))
OPERATOR = Layout(
    "Operator",
    Operator,
    (
        ("index", INTEGER),
        ("op", STRING),
        ("place", STRING),
        ("reason", STRING),
        ("kernel", INTEGER),
        ("partition", INTEGER),
        ("code", INTEGER),
        ("execution", STRING),
    ),
)
KERNEL = Layout(
    "Kernel",
    Kernel,
    (
        ("name", STRING),
        ("form", STRING),
        ("chunks", INTEGER),
        ("threads", INTEGER),
        ("registers", INTEGER),
        ("spill_bytes", INTEGER),
        ("stack_bytes", INTEGER),
        ("shared_bytes", INTEGER),
    ),
)
STATE = Layout(
    "State",
    State,
    (
        ("name", STRING),
        ("nbytes", INTEGER),
        ("initial", INTEGER),
        ("is_resource", INTEGER),
        ("index", INTEGER),
        ("shape", INTEGERS),
        ("dtype", STRING),
    ),
)
PARTITION = Layout(
    "Partition",
    Partition,
    (
        ("place", STRING),
        ("nodes", INTEGERS),
        ("inputs", INTEGERS),
        ("outputs", INTEGERS),
        ("offset", INTEGER),
        ("nbytes", INTEGER),
        ("hash", STRING),
    ),
)
IDLE_SUBGRAPH = Layout(
    "IdleSubgraph",
    IdleSubgraph,
    (("number", INTEGER), ("num_tensors", INTEGER), ("num_nodes", INTEGER), ("ports", PORT), ("codes", INTEGERS)),
)


def _pack_launches(launches: Sequence[Launch]) -> list[int]:
    from jitdelegate.program.launch_list import pack

    return pack(launches)


def _unpack_launches(numbers: Sequence[int]) -> tuple[Launch, ...]:
    if not numbers:
        return ()
    from jitdelegate.program.launch_list import unpack  # most programs are for the CPU

    return unpack(numbers)


LAUNCHES = Packed(INTEGER, _pack_launches, _unpack_launches)
KEY = Packed(STRING, _flat, _pairs)
WINDOWS = _groups("windows", 4)
TEXTS = Packed(STRING, tuple, tuple)
ALIASES = _groups("aliases", 2)
LOANS = _groups("borrowed pages", LOAN_NUMBERS)
PROGRAM = Layout(
    "Program",
    Program,
    (
        ("key", KEY),
        ("target", STRING),
        ("features", STRING),
        ("loader", STRING),
        ("inputs", PORT),
        ("outputs", PORT),
        ("signatures", SIGNATURE),
        ("operators", OPERATOR),
        ("kernels", KERNEL),
        ("arena_bytes", INTEGER),
        ("scratch_bytes", INTEGER),
        ("sync_bytes", INTEGER),
        ("entries", PLACE),
        ("num_subgraphs", INTEGER),
        ("weights_hash", STRING),
        ("launches", LAUNCHES),
        ("input_offsets", INTEGERS),
        ("output_offsets", INTEGERS),
        ("states", STATE),
        ("shape_inputs", INTEGERS),
        ("partitions", PARTITION),
        ("between", PORT),
        ("num_tensors", INTEGER),
        ("num_nodes", INTEGER),
        ("idle", IDLE_SUBGRAPH),
        ("narrow_states", INTEGER),
        ("aliases", ALIASES),
        ("borrowed", LOANS),
        ("main_hash", STRING),
        ("large_constants", INTEGERS),
        ("notes", TEXTS),
        ("failure", STRING),
        ("refusals", TEXTS),
        ("windows", WINDOWS),
    ),
)
# Fields that only reports use; the reader decodes them on first use.
FIELDS_READ_LATER = ("operators", "kernels")


def aligned(offset: int) -> int:
    """The first multiple of ALIGNMENT at or after `offset`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


LARGEST_MEMORY = 1 << 40
"""Largest number of bytes that a program may ask for, and largest number of anything else."""


def check_range(name: str, value: int, largest: int, smallest: int = 0) -> None:
    """
    Raises:
        ProgramError: the value is out of bounds.
    """
    if not smallest <= value <= largest:
        raise ProgramError(f"{name} is {value}, expected {smallest} to {largest}")


def check_port(port: Port) -> None:
    """
    Raises:
        ProgramError: a size is out of bounds.
    """
    check_range(f"bytes of tensor {port.name}", port.nbytes, LARGEST_MEMORY)
    for size in port.shape:
        check_range(f"a size of tensor {port.name}", size, LARGEST_MEMORY)
