"""The relocations that a linked blob may have, a table per machine type of ELF: how an address goes into the code.

Formats: System V ABI, AMD64 supplement, 4.4; ELF for the Arm 64-bit architecture, 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

PAGE_BITS = 12


@dataclass(frozen=True, slots=True)
class Relocation:
    """A kind of relocation.

    Attributes:
        format: struct's format of what is in the code there.
        patched: (what is there, target address, address of the place) -> what is there afterwards.
    """

    format: str
    patched: Callable[[int, int, int], int]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type.

    Attributes:
        trap: an instruction that ends the process, between functions.
        kinds: the relocations by number.
    """

    trap: bytes
    kinds: dict[int, Relocation] = field(default_factory=dict)


def _difference(_: int, target: int, place: int) -> int:
    return target - place


def _bits(value: int, count: int) -> int:
    """A signed number in `count` bits."""
    if not -(1 << count - 1) <= value < 1 << count - 1:
        raise struct.error(f"{value} does not fit {count} bits")
    return value & ((1 << count) - 1)


def _branch(word: int, target: int, place: int) -> int:
    """B and BL: instructions from here."""
    return word | _bits((target - place) >> 2, 26)


def _page(word: int, target: int, place: int) -> int:
    """ADRP: pages from here, the lowest two bits apart."""
    pages = _bits((target >> PAGE_BITS) - (place >> PAGE_BITS), 21)
    return word | (pages & 3) << 29 | pages >> 2 << 5


def _in_page(scale: int) -> Relocation:
    """ADD, and loads and stores of 1 << scale bytes: the distance from the page's beginning."""

    def patched(word: int, target: int, place: int) -> int:
        offset = target & ((1 << PAGE_BITS) - 1)
        if offset & ((1 << scale) - 1):
            raise struct.error(f"offset {offset} in a page is no multiple of {1 << scale}")
        return word | offset >> scale << 10

    return Relocation("<I", patched)


MACHINES = {
    62: Machine(  # x86-64
        b"\xcc",
        {
            2: Relocation("<i", _difference),  # PC32
            4: Relocation("<i", _difference),  # PLT32
            24: Relocation("<q", _difference),  # PC64
        },
    ),
    183: Machine(  # AArch64
        b"\x00\x00\x20\xd4",
        {
            260: Relocation("<q", _difference),  # PREL64
            261: Relocation("<i", _difference),  # PREL32
            275: Relocation("<I", _page),  # ADR_PREL_PG_HI21
            276: Relocation("<I", _page),  # ADR_PREL_PG_HI21_NC
            277: _in_page(0),  # ADD_ABS_LO12_NC
            278: _in_page(0),  # LDST8_ABS_LO12_NC
            282: Relocation("<I", _branch),  # JUMP26
            283: Relocation("<I", _branch),  # CALL26
            284: _in_page(1),  # LDST16_ABS_LO12_NC
            285: _in_page(2),  # LDST32_ABS_LO12_NC
            286: _in_page(3),  # LDST64_ABS_LO12_NC
            299: _in_page(4),  # LDST128_ABS_LO12_NC
        },
    ),
}
"""By e_machine."""
