"""The instruction set that this CPU and the operating system support.

glibc 2.33 and later has asked the CPU when the process began, and answers at once; in a virtual machine the instruction
CPUID itself takes a tenth of a millisecond. Elsewhere the kernel's list of flags answers.
"""

from __future__ import annotations

import ctypes
import os
import sys

from jitdelegate.base.targets import LEVELS
from jitdelegate.runtime.memory import libc

_EAX, _EBX, _ECX = 0, 1, 2
_LEAVES = 7
"""glibc's numbers 0, 1, 2 and 6 are the CPUID leaves 1, 7, 0x80000001 and 7 with subleaf 1."""
_WORDS = 8
"""What glibc knows of a leaf: eax, ebx, ecx and edx, then the same with the bits only that the system lets us use."""
_USABLE = 4

_BITS = {
    **{name: (0, _ECX, bit) for name, bit in (("fma", 12), ("sse4_2", 20), ("movbe", 22), ("popcnt", 23))},
    **{name: (0, _ECX, bit) for name, bit in (("avx", 28), ("f16c", 29))},
    **{name: (1, _EBX, bit) for name, bit in (("bmi1", 3), ("avx2", 5), ("bmi2", 8), ("avx512f", 16))},
    **{name: (1, _EBX, bit) for name, bit in (("avx512dq", 17), ("avx512cd", 28), ("avx512bw", 30), ("avx512vl", 31))},
    "abm": (2, _ECX, 5),
    **{name: (1, _ECX, bit) for name, bit in (("avx512vbmi", 1), ("avx512_vnni", 11))},
    "avx_vnni": (6, _EAX, 4),
}
"""Linux's name of a flag -> number of its leaf, register, bit."""
_known: tuple[str, ...] = ()


def levels() -> tuple[str, ...]:
    """The levels that this machine offers, the fastest last; the first is "generic".

    It is the only one if the CPU is not x86-64, or the system is not Linux.
    """
    global _known
    if not _known:
        _known = _ask()
    return _known


def level() -> str:
    """The fastest level of this machine."""
    return levels()[-1]


def _ask() -> tuple[str, ...]:
    host = os.uname().machine if sys.platform == "linux" and sys.maxsize >= 1 << 32 else ""
    possible = [level for level in LEVELS.values() if level.host in ("", host)]
    flags = {*(_flags_of_libc() or _flags_of_kernel())} if any(level.host for level in possible) else set()
    return tuple(level.name for level in possible if flags.issuperset(level.flags))


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
