"""Links ELF64 objects into one flat, position-independent blob, without a linker or external symbols.

Allocated sections are placed one after another, and PC-relative relocations between them are resolved
(`MACHINES`). The result runs at any multiple of 4096 bytes: AArch64's code counts in pages of that size. Objects
that would need a loader (absolute addresses, undefined symbols, writable data) are refused.
Formats: System V ABI, chapter 4, and AMD64 supplement, 4.4; ELF for the Arm 64-bit architecture, 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
PROGBITS, SYMTAB, RELA = 1, 2, 4
WRITE, ALLOCATE = 1, 2
PAGE_BITS = 12
NO_FUNCTIONS: Mapping[str, bytes] = {}


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


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    type: int
    flags: int
    start: int
    size: int
    link: int
    info: int
    align: int


def link(elf: bytes, functions: Mapping[str, bytes] = NO_FUNCTIONS) -> tuple[bytes, dict[str, int]]:
    """(the blob, the offset of every global function of `elf` in it).

    Args:
        functions: objects of functions that `elf` lacks, by their names in it; each has one global function.
    Raises:
        ValueError: an object needs something that a flat blob cannot hold.
    """
    blob = bytearray()
    first, *others = [_Placed(each, blob) for each in (elf, *functions.values())]
    lacked = {name: address for name, each in zip(functions, others, strict=True) for address in each.exports.values()}
    for each in (first, *others):
        each.relocate(blob, lacked)
    return bytes(blob), first.exports


class _Placed:
    """An object whose sections are in the blob, at `bases`."""

    def __init__(self, elf: bytes, blob: bytearray) -> None:
        self.elf, self.sections, self.machine = elf, _sections(elf), _machine(elf)
        self.bases = _place(elf, self.sections, self.machine.trap, blob)
        self.symbols = _symbols(elf, self.sections, self.bases)

    @property
    def exports(self) -> dict[str, int]:
        """The offset of every global function."""
        return {name: address for name, address, is_global in self.symbols if is_global and address is not None}

    def relocate(self, blob: bytearray, lacked: Mapping[str, int]) -> None:
        """Resolves the references of all sections; those to other objects by name."""
        symbols = [(name, lacked.get(name) if at is None else at) for name, at, _ in self.symbols]
        for section in self.sections:
            if section.type == RELA and section.info in self.bases:
                _relocate(self.elf, section, blob, self.bases[section.info], symbols, self.machine)


def _sections(elf: bytes) -> list[Section]:
    if elf[:4] != b"\x7fELF":
        raise ValueError(f"not an ELF object: it begins with {elf[:4]!r}")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    raw = [SECTION.unpack_from(elf, table + size * i) for i in range(count)]
    names = raw[names_index][4]
    return [Section(_text(elf, names + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], r[8]) for r in raw]


def _machine(elf: bytes) -> Machine:
    (number,) = struct.unpack_from("<H", elf, 0x12)
    if number not in MACHINES:
        raise ValueError(f"an object for the machine type {number}, expected one of {', '.join(map(str, MACHINES))}")
    return MACHINES[number]


def _text(elf: bytes, start: int) -> str:
    return elf[start : elf.index(b"\0", start)].decode()


def _place(elf: bytes, sections: list[Section], trap: bytes, blob: bytearray) -> dict[int, int]:
    bases = {}
    for index, section in enumerate(sections):
        wanted = section.type == PROGBITS and section.flags & ALLOCATE and section.size
        if not wanted or section.name.startswith(".eh_frame"):
            continue
        if section.flags & WRITE:
            raise ValueError(f"section {section.name} is writable, expected code and constants only")
        gap = -len(blob) % max(section.align, 64)
        blob += (trap * gap)[len(trap) * gap - gap :]
        bases[index] = len(blob)
        blob += elf[section.start : section.start + section.size]
    return bases


def _symbols(elf: bytes, sections: list[Section], bases: dict[int, int]) -> list[tuple[str, int | None, bool]]:
    table = next(section for section in sections if section.type == SYMTAB)
    strings = sections[table.link].start
    symbols = []
    for at in range(table.start, table.start + table.size, SYMBOL.size):
        name, info, _, section, value, _ = SYMBOL.unpack_from(elf, at)
        address = bases[section] + value if section in bases else None
        symbols.append((_text(elf, strings + name), address, info >> 4 == 1))
    return symbols


def _relocate(
    elf: bytes,
    section: Section,
    blob: bytearray,
    base: int,
    symbols: list[tuple[str, int | None]],
    machine: Machine,
) -> None:
    for at in range(section.start, section.start + section.size, RELOCATION.size):
        offset, info, addend = RELOCATION.unpack_from(elf, at)
        name, address = symbols[info >> 32]
        kind = info & 0xFFFFFFFF
        if address is None:
            raise ValueError(f"{section.name} needs the external symbol {name!r}, expected none")
        if kind not in machine.kinds:
            raise ValueError(f"{section.name} has a relocation of type {kind}, expected a PC-relative one")
        row, at = machine.kinds[kind], base + offset
        (found,) = struct.unpack_from(row.format, blob, at)
        try:
            struct.pack_into(row.format, blob, at, row.patched(found, address + addend, at))
        except struct.error as error:
            raise ValueError(
                f"{section.name} has a relocation of type {kind} for {name!r} that does not fit: {error}"
            ) from error
