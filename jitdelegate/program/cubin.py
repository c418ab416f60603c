"""Checks a CUDA binary before the driver reads it: the driver gets an address without a length."""

from __future__ import annotations

import struct

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import CUBIN_ALIGNMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from jitdelegate.program.program import Bytes

MAGIC = b"\x7fELF\x02\x01\x01"
"""First bytes of a 64-bit little-endian ELF file, version 1."""
CUDA_MACHINE = 190
_NO_BITS = 8
"""Type of sections without bytes in the file."""
# the formats of the ELF specification; pads are fields that nothing here depends on
_HEADER = struct.Struct("<16x2xH4x8xQQ4x2xHHHH2x")
_SEGMENT = struct.Struct("<8xQ8x8xQ8x8x")
_SECTION = struct.Struct("<4xI8x8xQQ4x4x8x8x")


def check_cubin(name: str, code: Bytes, offset: int) -> None:
    """
    Args:
        name: the entry's.
        code: all binaries of a program.
        offset: where this one starts.
    Raises:
        ProgramError: it is not a CUDA binary, or a part of it lies past the end of the code.
    """
    found = bytes(code[offset : offset + len(MAGIC)])
    # the driver would take anything but ELF for text, and read until a zero byte
    if offset % CUBIN_ALIGNMENT or found != MAGIC:
        raise ProgramError(
            f"entry {name}: {found!r} is at {offset}, expected {MAGIC!r} at a multiple of {CUBIN_ALIGNMENT}"
        )
    image = memoryview(code)[offset:]
    end = _end(name, image)
    if end > len(image):
        raise ProgramError(f"entry {name}: its binary ends {end} bytes from its start, expected at most {len(image)}")


def _end(name: str, image: memoryview) -> int:
    """End of the last part named by the binary's tables; past the image's end where a table is."""
    if len(image) < _HEADER.size:
        return _HEADER.size
    head: tuple[int, ...] = _HEADER.unpack_from(image)
    machine, segments, sections, segment_size, segment_count, section_size, section_count = head
    found, expected = (machine, segment_size, section_size), (CUDA_MACHINE, _SEGMENT.size, _SECTION.size)
    if found != expected:
        raise ProgramError(f"entry {name}: machine and sizes of the tables' rows are {found}, expected {expected}")
    after = max(segments + segment_count * _SEGMENT.size, sections + section_count * _SECTION.size)
    if after > len(image):
        return after
    segment_ends = [start + size for start, size in _rows(_SEGMENT, image, segments, segment_count)]
    kept = _rows(_SECTION, image, sections, section_count)
    section_ends = [start + size for kind, start, size in kept if kind != _NO_BITS]
    return max([after, *segment_ends, *section_ends])


def _rows(row: struct.Struct, image: memoryview, start: int, count: int) -> Iterator[tuple[int, ...]]:
    return row.iter_unpack(image[start : start + count * row.size])
