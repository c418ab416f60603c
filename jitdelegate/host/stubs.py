"""The little machine code of the delegate itself: x86-64, System V calling convention.

LiteRT calls C functions with (rdi, rsi), and takes the answer 0 for success.
"""

from __future__ import annotations

import struct

from jitdelegate.errors import OptionError
from jitdelegate.runtime.arena import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.host.layout import Layout

SUCCESS, FAILURE = 1, 0
"""What callbacks in Python answer. ctypes answers 0 for a callback that ends in an exception, and that is no success:
an interrupt that arrives while LiteRT computes is raised before the callback's first line, outside of its `try`."""
_LARGEST_DISPLACEMENT = 127
_CAPACITY = 4096


def jump_to_slot(layout: Layout) -> bytes:
    """int invoke(context, node): go on at the first word of the slot that node->user_data points at."""
    offset = layout.node["user_data"]
    if offset > _LARGEST_DISPLACEMENT:
        raise OptionError(f"user_data at byte {offset}, expected at most {_LARGEST_DISPLACEMENT}")
    return bytes((0x48, 0x8B, 0x46, offset)) + b"\xff\x20"  # mov rax, [rsi+offset]; jmp [rax]


def inverted(function: int) -> bytes:
    """int f(a, b): 0 if `function(a, b)` answers SUCCESS, 1 if it answers FAILURE."""
    return b"".join(
        (
            b"\x48\xb8" + struct.pack("<Q", function),  # mov rax, function
            b"\x48\x83\xec\x08",  # sub rsp, 8: calls want it at a multiple of 16
            b"\xff\xd0",  # call rax
            b"\x48\x83\xc4\x08",  # add rsp, 8
            b"\x83\xf0\x01",  # xor eax, 1
            b"\xc3",  # ret
        )
    )


def load(*pieces: bytes) -> tuple[int, ...]:
    """The addresses of the pieces, in memory that is never freed.

    Raises:
        DeviceError: there is no executable memory.
    """
    content, starts = bytearray(), []
    for piece in pieces:
        starts.append(len(content))
        content += piece.ljust(-(-len(piece) // 16) * 16, b"\xcc")
    memory = Memory(max(len(content), _CAPACITY))
    memory.write(bytes(content))
    memory.make_executable()
    return tuple(memory.address + start for start in starts)
