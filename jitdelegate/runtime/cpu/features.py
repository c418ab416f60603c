"""The instruction set that this CPU and the operating system support, read from the CPU itself.

Two functions of a few bytes of x86-64 machine code, CPUID and XGETBV, run in executable anonymous memory: 0.3 ms, where
llvmlite's answer would cost importing llvmlite.
"""

from __future__ import annotations

import ctypes
import os
import sys

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.arena import Memory

# void cpuid(uint32 leaf, uint32 subleaf, uint32 registers[4]): eax, ebx, ecx, edx
_CPUID = bytes.fromhex(
    "53"  #        push rbx
    "89f8"  #      mov eax, edi
    "89f1"  #      mov ecx, esi
    "4989d0"  #    mov r8, rdx
    "0fa2"  #      cpuid
    "418900"  #    mov [r8], eax
    "41895804"  #  mov [r8+4], ebx
    "41894808"  #  mov [r8+8], ecx
    "4189500c"  #  mov [r8+12], edx
    "5b"  #        pop rbx
    "c3"  #        ret
)
# uint64 xgetbv(): the register file that the system saves, XCR0
_XGETBV = bytes.fromhex(
    "31c9"  #      xor ecx, ecx
    "0f01d0"  #    xgetbv
    "48c1e220"  #  shl rdx, 32
    "4809d0"  #    or rax, rdx
    "c3"  #        ret
)
_XGETBV_OFFSET = 64

_EXTENDED = 0x80000000
_EBX, _ECX = 1, 2

# (leaf, register, bits by name)
_X86_64_V3 = (
    (1, _ECX, {"fma": 12, "sse4.2": 20, "movbe": 22, "popcnt": 23, "osxsave": 27, "avx": 28, "f16c": 29}),
    (7, _EBX, {"bmi1": 3, "avx2": 5, "bmi2": 8}),
    (_EXTENDED + 1, _ECX, {"lzcnt": 5}),
)
_X86_64_V4 = ((7, _EBX, {"avx512f": 16, "avx512dq": 17, "avx512cd": 28, "avx512bw": 30, "avx512vl": 31}),)
# XCR0: the system saves xmm and ymm; and also the mask registers and both parts of zmm
_YMM_STATE = 0b110
_ZMM_STATE = 0b11100110

_known = ""


def level() -> str:
    """The widest level of this machine: "x86-64-v4", "x86-64-v3" or "generic".

    It is also "generic" if the CPU is not x86-64, or the system is not Linux or does not allow executable memory.
    """
    global _known
    if not _known:
        _known = _ask()
    return _known


def _ask() -> str:
    if sys.platform != "linux" or os.uname().machine != "x86_64" or sys.maxsize < 1 << 32:
        return "generic"
    try:
        code = Memory(_XGETBV_OFFSET + len(_XGETBV))
    except DeviceError:
        return "generic"
    try:
        code.write(_CPUID.ljust(_XGETBV_OFFSET, b"\xcc") + _XGETBV)
        code.make_executable()
        return _level(code.address)
    except DeviceError:
        return "generic"
    finally:
        code.close()


def _level(code: int) -> str:
    # One type for both, since making one takes as long as a call to the CPU: XGETBV ignores arguments.
    function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    cpuid, xgetbv = function(code), function(code + _XGETBV_OFFSET)
    asked: dict[int, tuple[int, ...]] = {}

    def ask(leaf: int) -> tuple[int, ...]:
        """eax, ebx, ecx, edx; each leaf is asked once, since a virtual machine answers in tens of microseconds."""
        if leaf not in asked:
            registers = (ctypes.c_uint32 * 4)()
            cpuid(leaf, 0, ctypes.addressof(registers))
            asked[leaf] = tuple(registers)
        return asked[leaf]

    def has(leaf: int, register: int, bits: dict[str, int]) -> bool:
        if leaf < _EXTENDED and ask(0)[0] < leaf:  # the first extended leaf exists on every x86-64
            return False
        return all(ask(leaf)[register] >> bit & 1 for bit in bits.values())

    # XGETBV is an illegal instruction without OSXSAVE, which is among the bits of v3.
    if not all(has(*row) for row in _X86_64_V3) or xgetbv(0, 0, None) & _YMM_STATE != _YMM_STATE:
        return "generic"
    if not all(has(*row) for row in _X86_64_V4) or xgetbv(0, 0, None) & _ZMM_STATE != _ZMM_STATE:
        return "x86-64-v3"
    return "x86-64-v4"
