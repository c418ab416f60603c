"""x86-64's machine code of the delegate: LiteRT calls C functions with (rdi, rsi, rdx), and takes the result in rax."""

from __future__ import annotations

import struct

LARGEST_OFFSET = 127
"""Of `user_data`, in `jump_to_slot`."""
PADDING = b"\xcc"  # int3


def jump_to_slot(user_data: int) -> bytes:
    return bytes((0x48, 0x8B, 0x46, user_data)) + b"\xff\x20"  # mov rax, [rsi+user_data]; jmp [rax]


def answering(function: int, default: int) -> bytes:
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


def doubling(user_data: int, tensors: int) -> bytes:
    return b"".join(
        (
            b"\x48\x8b\x86" + struct.pack("<i", user_data),  # mov rax, [rsi+user_data]: the slot
            b"\x48\x8b\x50\x08",  # mov rdx, [rax+8]: the arguments
            b"\x48\x8b\x87" + struct.pack("<i", tensors),  # mov rax, [rdi+tensors]
            b"\x4c\x8b\x42\x08",  # mov r8, [rdx+8]
            b"\x4e\x8b\x04\x00",  # mov r8, [rax+r8]: x
            b"\x4c\x8b\x4a\x10",  # mov r9, [rdx+16]
            b"\x4e\x8b\x0c\x08",  # mov r9, [rax+r9]: y
            b"\x48\x8b\x0a",  # mov rcx, [rdx]: the count
            b"\xf3\x41\x0f\x10\x44\x88\xfc",  # next: movss xmm0, [r8+4*rcx-4]
            b"\xf3\x0f\x58\xc0",  # addss xmm0, xmm0
            b"\xf3\x41\x0f\x11\x44\x89\xfc",  # movss [r9+4*rcx-4], xmm0
            b"\x48\xff\xc9",  # dec rcx
            b"\x75\xe9",  # jnz next
            b"\x31\xc0",  # xor eax, eax
            b"\xc3",  # ret
        )
    )
