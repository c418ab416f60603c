"""AArch64's machine code of the delegate: LiteRT calls C functions with (x0, x1, x2), and takes the result in x0."""

from __future__ import annotations

import struct

LARGEST_OFFSET = 4095 * 8
"""Of `user_data`, in `jump_to_slot`; it is a multiple of 8."""
PADDING = b"\0"  # udf, in words of four


def jump_to_slot(user_data: int) -> bytes:
    return _code(
        _load(9, 1, user_data),  # ldr x9, [x1, user_data]
        0xF9400129,  # ldr x9, [x9]
        0xD61F0120,  # br x9
    )


def answering(function: int, default: int) -> bytes:
    code = _code(
        0xA9BE7BFD,  # stp x29, x30, [sp, #-32]!
        0x910003FD,  # mov x29, sp
        0x58000149,  # ldr x9, default
        0xF9000BE9,  # str x9, [sp, #16]
        0x910043E3,  # add x3, sp, #16
        0x580000A9,  # ldr x9, function
        0xD63F0120,  # blr x9
        0xF9400BE0,  # ldr x0, [sp, #16]
        0xA8C27BFD,  # ldp x29, x30, [sp], #32
        0xD65F03C0,  # ret
    )
    return code + struct.pack("<Qq", function, default)


def doubling(user_data: int, tensors: int) -> bytes:
    return _code(
        _load(9, 1, user_data),  # ldr x9, [x1, user_data]: the slot
        0xF940052A,  # ldr x10, [x9, #8]: the arguments
        _load(11, 0, tensors),  # ldr x11, [x0, tensors]: the tensors
        0xA9403149,  # ldp x9, x12, [x10]: the count, where x lies
        0xF940094D,  # ldr x13, [x10, #16]: where y lies
        0xF86C696C,  # ldr x12, [x11, x12]
        0xF86D696D,  # ldr x13, [x11, x13]
        0xBC404580,  # ldr s0, [x12], #4
        0x1E202800,  # fadd s0, s0, s0
        0xBC0045A0,  # str s0, [x13], #4
        0xF1000529,  # subs x9, x9, #1
        0x54FFFF81,  # b.ne next
        0x52800000,  # mov w0, #0
        0xD65F03C0,  # ret
    )


def _code(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _load(register: int, base: int, offset: int) -> int:
    """ldr of 64 bits."""
    return 0xF9400000 | offset // 8 << 10 | base << 5 | register
