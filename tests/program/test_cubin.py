"""A CUDA binary is handed to the driver only where all of it is there."""

from __future__ import annotations

import struct

import pytest

from jitdelegate.errors import ProgramError
from jitdelegate.program.cubin import CUDA_MACHINE, MAGIC, PTX, check_cubin, check_ptx

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT, SECTION = struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ")
SECTION_AT, SEGMENT_AT, END = 96, 96 + 2 * 64, 96 + 2 * 64 + 56
PROGRAM_BITS, NO_BITS = 1, 8


def image(
    *,
    magic: bytes = MAGIC,
    machine: int = CUDA_MACHINE,
    segments: tuple[int, int, int] = (SEGMENT_AT, 56, 1),
    sections: tuple[int, int, int] = (SECTION_AT, 64, 2),
    segment: tuple[int, int] = (64, 32),
    section: tuple[int, int] = (64, 32),
    kind: int = PROGRAM_BITS,
) -> bytes:
    """Header, 32 bytes of code, two sections and a segment.

    Args:
        segments, sections: tables as (start, bytes of a row, rows).
        segment, section: parts as (start, size).
    """
    header = HEADER.pack(magic, 2, machine, 1, 0, segments[0], sections[0], 0, 64, *segments[1:], *sections[1:], 1)
    none = SECTION.pack(*[0] * 10)
    last = SECTION.pack(1, kind, 0, 0, *section, 0, 0, 1, 0)
    return header + bytes(32) + none + last + SEGMENT.pack(1, 0, segment[0], 0, 0, segment[1], 0, 8)


def refused(content: bytes, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        check_cubin("map_0", bytes(64) + content, 64)


def test_a_whole_binary_is_taken_whatever_follows_it() -> None:
    assert len(image()) == END
    for behind in (b"", b"more"):
        check_cubin("map_0", bytes(64) + image() + behind, 64)
    check_cubin("map_0", memoryview(image(kind=NO_BITS, section=(64, 1 << 40))), 0)  # which is memory, not file


def test_every_truncated_binary_is_refused() -> None:
    for length in range(END):
        refused(image()[:length], "entry map_0")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b".version 8.0\n.target sm_90", r"entry map_0: b'\.versio' is at 64, expected b'.x7fELF"),
        (image(magic=b"\x7fELF\x01\x01\x01"), "is at 64, expected"),
        (image(machine=62), r"rows are \(62, 56, 64\), expected \(190, 56, 64\)"),
        (image(segments=(SEGMENT_AT, 48, 1)), r"rows are \(190, 48, 64\)"),
        (image(sections=(SECTION_AT, 40, 2)), r"rows are \(190, 56, 40\)"),
        (image(sections=(SECTION_AT, 64, 4)), f"its binary ends 352 bytes from its start, expected at most {END}"),
        (image(segments=((1 << 64) - 1, 56, 1)), "its binary ends 18446744073709551671 bytes"),
        (image(section=(64, END)), f"its binary ends {END + 64} bytes"),
        (image(segment=(END, 1)), f"its binary ends {END + 1} bytes"),
    ],
)
def test_what_would_make_the_driver_read_elsewhere_is_refused(content: bytes, message: str) -> None:
    refused(content, message)


@pytest.mark.parametrize(
    "code, offset", [(PTX, 0), (PTX + b"\0", 1), (b"/" + PTX[2:] + b"\0", 0), (b"\0", 0), (b"", 0)]
)
def test_text_that_does_not_end_in_the_code_is_refused(code: bytes, offset: int) -> None:
    with pytest.raises(ProgramError, match="entry map_0"):
        check_ptx("map_0", bytes(offset) + code, offset)
    check_ptx("map_0", bytes(64) + PTX + b"\0more", 64)
