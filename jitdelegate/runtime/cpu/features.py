"""The instruction set that this CPU and the operating system support.

glibc 2.33 and later has asked the CPU when the process began, and answers at once; in a virtual machine the instruction
CPUID itself takes a tenth of a millisecond. Elsewhere the kernel's list of flags answers.
"""

from __future__ import annotations

import ctypes
import os
import sys

from jitdelegate.runtime.memory import libc

_EBX, _ECX = 1, 2
_LEAVES = 3
"""glibc's numbers 0, 1 and 2 are the CPUID leaves 1, 7 and 0x80000001."""
_WORDS = 8
"""What glibc knows of a leaf: eax, ebx, ecx and edx, then the same with the bits only that the system lets us use."""
_USABLE = 4

_BITS = {
    **{name: (0, _ECX, bit) for name, bit in (("fma", 12), ("sse4_2", 20), ("movbe", 22), ("popcnt", 23))},
    **{name: (0, _ECX, bit) for name, bit in (("avx", 28), ("f16c", 29))},
    **{name: (1, _EBX, bit) for name, bit in (("bmi1", 3), ("avx2", 5), ("bmi2", 8), ("avx512f", 16))},
    **{name: (1, _EBX, bit) for name, bit in (("avx512dq", 17), ("avx512cd", 28), ("avx512bw", 30), ("avx512vl", 31))},
    "abm": (2, _ECX, 5),
}
"""Linux's name of a flag -> number of its leaf, register, bit."""
_V4_ONLY = ("avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl")

_known = ""


def level() -> str:
    """The widest level of this machine: "x86-64-v4", "x86-64-v3" or "generic".

    It is also "generic" if the CPU is not x86-64, or the system is not Linux.
    """
    global _known
    if not _known:
        _known = _ask()
    return _known


def _ask() -> str:
    if sys.platform != "linux" or os.uname().machine != "x86_64" or sys.maxsize < 1 << 32:
        return "generic"
    flags = _flags_of_libc() or _flags_of_kernel()
    missing = {name for name in _BITS if name not in flags}
    if not missing:
        return "x86-64-v4"
    return "x86-64-v3" if missing <= {*_V4_ONLY} else "generic"


def _flags_of_libc() -> list[str]:
    """The usable flags by the C library; none if it does not tell."""
    tell = getattr(libc, "__x86_get_cpuid_feature_leaf", None)
    if tell is None:
        return []
    tell.restype = ctypes.c_void_p
    leaves = [(ctypes.c_uint32 * _WORDS).from_address(tell(number)) for number in range(_LEAVES)]
    return [name for name, (leaf, register, bit) in _BITS.items() if leaves[leaf][_USABLE + register] >> bit & 1]


def _flags_of_kernel() -> list[str]:
    """The usable flags of the first CPU by the kernel; none if it does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        return []
