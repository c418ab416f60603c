"""Images that look like CUDA binaries from outside: ELF files, whose header says how long they are."""

from __future__ import annotations

import ctypes
import struct

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF64 = b"\x7fELF\x02\x01\x01"
_CUDA = 190


def cubin(*names: str) -> bytes:
    """An image that has kernels of these names, and nothing else."""
    content = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    end = HEADER.size + len(content)
    header = HEADER.pack(_ELF64.ljust(16, b"\0"), 2, _CUDA, 1, 0, 0, end, 0, HEADER.size, 56, 0, 64, 0, 0)
    return header + content


def image_at(address: int) -> bytes:
    """The bytes of the image, from the ends of its tables, which come last, or PTX; b"" for what is neither."""
    if ctypes.string_at(address, 2) == b"//":
        return ctypes.string_at(address)
    header = ctypes.string_at(address, HEADER.size)
    if not header.startswith(_ELF64):
        return b""
    *_, programs, sections, _, _, program_size, program_count, section_size, section_count, _ = HEADER.unpack(header)
    return ctypes.string_at(
        address, max(programs + program_size * program_count, sections + section_size * section_count)
    )


def has_kernel(image: bytes, name: str) -> bool:
    """Whether the name stands among the image's texts."""
    return b"\0" + name.encode() + b"\0" in image or f".entry {name}(".encode() in image
