"""This machine's CPU: its levels, and what targets have in common whose programs run on it, the CPU's own, numpy's and
LiteRT's.

A level is an instruction set that the CPU and the operating system support. On x86-64, glibc 2.33 and later has asked
the CPU when the process began, and answers at once; in a virtual machine the instruction CPUID takes a tenth of a
millisecond. With another C library, the kernel's list of flags answers. On AArch64, the kernel gives the flags to every
process that it starts.
"""

from __future__ import annotations

import ctypes
import os
import sys

from jitdelegate.base.targets import EXACT, LEVELS, Level
from jitdelegate.errors import OptionError
from jitdelegate.runtime.memory import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.passes.cost import Rates
    from jitdelegate.runtime.cache.key import Key

NO_LEVEL = Level(name="", lanes=1, slowdown=1.0)
"""What is known of code that is not for a level, such as numpy's."""
SLOWER = "generic code is slower than LiteRT's kernels"
"""Why "auto" leaves models to LiteRT on machines that have no other level: on old CPUs, and on other systems."""
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
    **{name: (2, _ECX, bit) for name, bit in (("abm", 5), ("sse4a", 6))},
    **{name: (1, _ECX, bit) for name, bit in (("avx512vbmi", 1), ("avx512_vnni", 11))},
    **{name: (6, _EAX, bit) for name, bit in (("avx_vnni", 4), ("avx512_bf16", 5))},
}
"""Linux's name of a flag of x86-64 -> number of its leaf, register, bit."""
_HWCAP, _HWCAP2 = 16, 26
_HWCAPS = {
    **{name: (_HWCAP, bit) for name, bit in (("asimd", 1), ("fphp", 9), ("asimdhp", 10), ("asimddp", 20), ("sve", 22))},
    **{name: (_HWCAP2, bit) for name, bit in (("sve2", 1), ("i8mm", 13), ("bf16", 14))},
}
"""Linux's name of a flag of AArch64 -> word of the auxiliary vector, bit."""
RANKS = ("inference_priority1", "inference_priority2", "inference_priority3")
_known: tuple[str, ...] = ()


class HostDevice:
    """This machine's CPU; see `targets.target.Device`."""

    __slots__ = ()
    name = kind = note = ""

    def usable_key(self, key: Key, options: DelegateOptions) -> tuple[Key, str]:
        return key, ""

    def precisions(self, key: Key) -> Sequence[tuple[str, Key]]:
        return ()

    def alternatives(self, key: Key) -> Sequence[Key]:
        return ()

    def difference(self, key: Key) -> str:
        return ""


class HostTarget:
    """See `targets.target.Target`.

    Attributes:
        ignored_options: names of the options that change nothing.
    """

    name: str
    left_to = "LiteRT's CPU kernels"
    is_accelerator = False
    bare_rows = 0
    ignored_options: tuple[str, ...] = (
        *("device", "inference_preference", *RANKS),
        *("is_precision_loss_allowed", "precision", "precision_bound", "precision_inputs", "stream", "tuning"),
    )

    def devices(self, text: str) -> tuple[HostDevice, ...]:
        raise OptionError(f"target is '{self.name}:{text}', expected '{self.name}': it is for this machine")

    def ignored(self, options: DelegateOptions) -> tuple[str, ...]:
        return self.ignored_options

    def refusal(self, key: Key) -> str:
        return ""

    def runs_in_litert(self, key: Key) -> bool:
        return False

    def rates(self, loader: str, features: str) -> Rates:
        from jitdelegate.passes.cost import BESIDE, INSIDE, WHOLE

        return {"delegate": INSIDE, "partitions": BESIDE}.get(loader, WHOLE).slowed(facts_of(features).slowdown)

    def multiplies_bytes(self, features: str) -> bool:
        return False

    def channel_unit(self, features: str) -> int:
        return 1


def facts_of(level: str) -> Level:
    """The row of a level; NO_LEVEL for other names."""
    return LEVELS.get(level, NO_LEVEL)


def levels() -> tuple[str, ...]:
    """The levels that this machine offers, the fastest last; the first is "generic".

    It is the only one if the CPU is neither x86-64 nor AArch64, or the system is not Linux.
    """
    global _known
    if not _known:
        _known = _ask()
    return _known


def level(precision: str = EXACT) -> str:
    """The fastest level of this machine, without those that are only for another precision."""
    return [name for name in levels() if LEVELS[name].only_for in ("", precision)][-1]


def _ask() -> tuple[str, ...]:
    host = os.uname().machine if sys.platform == "linux" and sys.maxsize >= 1 << 32 else ""
    possible = [level for level in LEVELS.values() if level.host in ("", host)]
    flags = next(filter(None, (source() for source in _sources().get(host, ()))), [])
    return tuple(level.name for level in possible if {*flags}.issuperset(level.flags))


def _sources() -> dict[str, tuple[Callable[[], list[str]], ...]]:
    """By the CPU, who knows its flags; the first one that tells is asked."""
    return {"x86_64": (_flags_of_libc, _flags_of_kernel), "aarch64": (_flags_of_start,)}


def _flags_of_start() -> list[str]:
    """The usable flags that the kernel gave to this process; none if the C library does not tell."""
    tell = getattr(libc, "getauxval", None)
    if tell is None:
        return []
    tell.restype, tell.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    words = {word: tell(word) for word in (_HWCAP, _HWCAP2)}
    return [name for name, (word, bit) in _HWCAPS.items() if words[word] >> bit & 1]


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
