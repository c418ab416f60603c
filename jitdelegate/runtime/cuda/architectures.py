"""Kinds of GPU that programs are compiled for: an architecture, and the number of multiprocessors that kernels fill.

A kind is written "sm_90:132". Tiles are chosen so that their blocks fill the multiprocessors. So a program for one GPU
also runs on others of its architecture, with the same results, but may leave them half idle.

"compute_90:132" is code for the same architecture as PTX text, which the driver compiles when it opens the program. It
runs on all GPUs from this architecture on, those that are not known here too. Both names are NVIDIA's.
"""

from __future__ import annotations

SIZES = {
    (7, 2): (8, 6),
    (7, 5): (40, 68, 46, 30, 22, 14),
    (8, 0): (108, 98, 56, 42, 28, 14),
    (8, 6): (72, 82, 68, 46, 28, 20, 10),
    (8, 7): (16, 14, 8, 4),
    (8, 9): (58, 142, 128, 76, 46, 34, 24),
    (9, 0): (132, 114, 78, 60, 32, 26, 16),
    (10, 0): (148, 74, 36, 18),
    (11, 0): (20, 12),
    (12, 0): (170, 188, 84, 70, 48, 36, 20),
    (12, 1): (48,),
}
"""By capability, numbers of multiprocessors of GPUs and their partitions (MIG), the most common one first. A GPU with
another number takes the nearest number below: tiles for more multiprocessors leave a last wave of a few blocks, which
takes as long as a full one; tiles for fewer lose only those few."""
TEGRA = ((7, 2), (8, 7), (10, 1), (11, 0))
"""Capabilities of GPUs in modules: they run no binaries of other minor versions, and no others run theirs. CUDA's
promise is for desktop GPUs only."""
BESIDE_ARM = ((7, 2), (8, 7), (11, 0), (12, 1))
"""Capabilities of GPUs that are always beside an Arm CPU: Jetson's, Thor's and Spark's."""
TOOLKITS = {(7, 2): (12,), (11, 0): (13,)}
"""By capability, the CUDA toolkits that compile for it, by major number, where not both supported ones do."""


def name_of(capability: tuple[int, int]) -> str:
    """sm_90 for (9, 0)."""
    return f"sm_{capability[0]}{capability[1]}"


def portable_name_of(capability: tuple[int, int]) -> str:
    """compute_90 for (9, 0)."""
    return f"{_PORTABLE}{capability[0]}{capability[1]}"


def is_portable(architecture: str) -> bool:
    """Whether code for it is PTX."""
    return architecture.startswith(_PORTABLE)


_PORTABLE = "compute_"
_BY_NAME = {name(one): sizes for name in (name_of, portable_name_of) for one, sizes in SIZES.items()}


def size_of(architecture: str, multiprocessors: int = 0) -> int:
    """The number of multiprocessors to compile for, given a GPU with `multiprocessors`.

    Args:
        architecture: one of SIZES, as "sm_90" or "compute_90".
        multiprocessors: 0 for the most common number.
    """
    sizes = _BY_NAME[architecture]
    if not multiprocessors:
        return sizes[0]
    return max((size for size in sizes if size <= multiprocessors), default=min(sizes))


def kind_of(architecture: str, multiprocessors: int) -> str:
    """The kind to compile for, such as "sm_90:132", given a GPU with this many multiprocessors."""
    return f"{architecture}:{size_of(architecture, multiprocessors)}"


def capability_of(architecture: str) -> tuple[int, int]:
    """(9, 0) for "sm_90" and for "compute_90"."""
    number = int(architecture.rpartition("_")[2])
    return number // 10, number % 10


def is_made_by(toolkit: int, architecture: str) -> bool:
    """Whether a CUDA toolkit with this major number compiles for an architecture; True for 0, an unknown one."""
    return not toolkit or toolkit in TOOLKITS.get(capability_of(architecture), (toolkit,))


def portable_kind(kind: str, toolkit: int) -> str:
    """PTX for the highest architecture, up to that of a kind, that a CUDA toolkit compiles for; "" if there is none."""
    architecture, multiprocessors = parsed(kind)
    own = capability_of(architecture)
    lower = [name for name in map(portable_name_of, SIZES) if capability_of(name) <= own and is_made_by(toolkit, name)]
    return plain_kind(lower[-1], size_of(lower[-1], multiprocessors)) if lower else ""


def runs_binary(compiled: tuple[int, int], capability: tuple[int, int]) -> bool:
    """Whether a binary runs on a device: the major number must be equal, and the minor number equal or higher; on Tegra
    both must be equal."""
    if compiled in TEGRA or capability in TEGRA:
        return compiled == capability
    return compiled[0] == capability[0] and compiled[1] <= capability[1]


def other_sizes(kind: str) -> list[int]:
    """The other numbers of multiprocessors of an architecture, nearest first: their programs run too."""
    architecture, own = parsed(kind)
    return sorted(set(_BY_NAME[architecture]) - {own}, key=lambda size: max(size / own, own / size))


def other_kinds(kind: str) -> list[tuple[str, int]]:
    """(architecture, multiprocessors) of other kinds whose programs run too: those of the architecture first, then
    binaries for lower ones, then PTX; the nearest come first."""
    architecture, _ = parsed(kind)
    own, lower = capability_of(architecture), list(reversed(SIZES))
    names = [] if is_portable(architecture) else [name_of(one) for one in lower if runs_binary(one, own)]
    names += [portable_name_of(one) for one in lower if one <= own]
    further = [(name, size) for name in names if name != architecture for size in _BY_NAME[name]]
    return [(architecture, size) for size in other_sizes(kind)] + further


def parsed(kind: str) -> tuple[str, int]:
    """(architecture, multiprocessors) of "sm_90:132"; "sm_90" has the most common number.

    Raises:
        ValueError: unknown architecture, or wrong number of multiprocessors.
    """
    architecture, colon, text = kind.partition(":")
    if architecture not in _BY_NAME:
        known = ", ".join(map(name_of, SIZES))
        raise ValueError(f"no GPU architecture {architecture!r}, expected one of {known}, or {_PORTABLE}75 and so on")
    if colon and not (text.isascii() and text.isdecimal() and int(text) > 0):
        usual = kind_of(architecture, 0)
        raise ValueError(f"{kind!r} has no number of multiprocessors behind the colon, expected one as in {usual!r}")
    return architecture, size_of(architecture, int(text) if colon else 0)


def plain_kind(architecture: str, multiprocessors: int) -> str:
    """Like `kind_of`, without the number if it is the most common one."""
    is_usual = multiprocessors == size_of(architecture)
    return architecture if is_usual else kind_of(architecture, multiprocessors)
