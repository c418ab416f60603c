"""Machine code of the delegate itself: x86-64, System V calling convention.

LiteRT calls C functions with (rdi, rsi, rdx), and takes the result in rax.
"""

from __future__ import annotations

import struct

from jitdelegate.errors import OptionError
from jitdelegate.runtime.memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.litert_layout import Layout

_LARGEST_DISPLACEMENT = 127
_CAPACITY = 4096


def jump_to_slot(layout: Layout) -> bytes:
    """int invoke(context, node): jump to the first word of the slot that node->user_data points at."""
    offset = layout.node["user_data"]
    if offset > _LARGEST_DISPLACEMENT:
        raise OptionError(f"user_data at byte {offset}, expected at most {_LARGEST_DISPLACEMENT}")
    return bytes((0x48, 0x8B, 0x46, offset)) + b"\xff\x20"  # mov rax, [rsi+offset]; jmp [rax]


def answering(function: int, default: int) -> bytes:
    """word f(a, b, c): call `function(a, b, c, &word)`, and return the word, which is `default` before.

    A Python callback that ends in an exception returns whatever ctypes finds on the stack. Its own `try` does not help:
    an interrupt that arrives while LiteRT computes is raised before the callback's first line.
    """
    return b"".join(
        (
            b"\x48\x83\xec\x18",  # sub rsp, 24: calls want it at a multiple of 16
            b"\x48\xc7\x44\x24\x08" + struct.pack("<i", default),  # mov qword [rsp+8], default
            b"\x48\x8d\x4c\x24\x08",  # lea rcx, [rsp+8]
            b"\x48\xb8" + struct.pack("<Q", function),  # mov rax, function
            b"\xff\xd0",  # call rax
            b"\x48\x8b\x44\x24\x08",  # mov rax, [rsp+8]
            b"\x48\x83\xc4\x18",  # add rsp, 24
            b"\xc3",  # ret
        )
    )


def load(*routines: bytes) -> tuple[int, ...]:
    """Copy routines to executable memory that is never freed; their addresses.

    Raises:
        DeviceError: executable memory is not available.
    """
    content, starts = bytearray(), []
    for routine in routines:
        starts.append(len(content))
        content += routine.ljust(-(-len(routine) // 16) * 16, b"\xcc")
    memory = Memory(max(len(content), _CAPACITY))
    memory.write(bytes(content))
    memory.make_executable()
    return tuple(memory.address + start for start in starts)
