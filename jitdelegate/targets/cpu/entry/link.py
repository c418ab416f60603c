"""Links an ELF64 object into one flat, position-independent blob, without a linker or external symbols.

Allocated sections are placed one after another, and PC-relative relocations between them are resolved
(`relocations.py`). The result runs at any multiple of 4096 bytes: AArch64's code counts in pages of that size. Objects
that would need a loader (absolute addresses, undefined symbols, writable data) are refused.
Format: System V ABI, chapter 4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from jitdelegate.targets.cpu.entry.relocations import MACHINES, Machine

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
PROGBITS, SYMTAB, RELA = 1, 2, 4
WRITE, ALLOCATE = 1, 2


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


def link(elf: bytes) -> tuple[bytes, dict[str, int]]:
    """(the blob, the offset of every global function in it).

    Raises:
        ValueError: the object needs something that a flat blob cannot hold.
    """
    sections = _sections(elf)
    machine = _machine(elf)
    blob, bases = _place(elf, sections, machine.trap)
    symbols = _symbols(elf, sections, bases)
    for section in sections:
        if section.type == RELA and section.info in bases:
            _relocate(elf, section, blob, bases[section.info], symbols, machine)
    exports = {name: address for name, address, is_global in symbols if is_global and address is not None}
    return bytes(blob), exports


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


def _place(elf: bytes, sections: list[Section], trap: bytes) -> tuple[bytearray, dict[int, int]]:
    blob, bases = bytearray(), {}
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
    return blob, bases


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
    symbols: list[tuple[str, int | None, bool]],
    machine: Machine,
) -> None:
    for at in range(section.start, section.start + section.size, RELOCATION.size):
        offset, info, addend = RELOCATION.unpack_from(elf, at)
        name, address, _ = symbols[info >> 32]
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
