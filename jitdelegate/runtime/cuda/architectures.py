"""Kinds of GPU that programs are compiled for: an architecture, and the number of multiprocessors that kernels fill.

A kind is written "sm_90:132". Tiles are chosen so that their blocks fill the multiprocessors. So a program for one GPU
also runs on others of its architecture, with the same results, but may leave them half idle.

"compute_90:132" is code for the same architecture as PTX text, which the driver compiles when it opens the program. It
runs on all GPUs from this architecture on, those that are not known here too. Both names are NVIDIA's.
"""

from __future__ import annotations

SIZES = {
    (7, 5): (40, 68, 46, 30, 22, 14),
    (8, 0): (108, 98, 56, 42, 28, 14),
    (8, 6): (72, 82, 68, 46, 28, 20, 10),
    (8, 9): (58, 142, 128, 76, 46, 34, 24),
    (9, 0): (132, 114, 78, 60, 32, 26, 16),
    (10, 0): (148, 74, 36, 18),
    (12, 0): (170, 188, 84, 70, 48, 36, 20),
}
"""By capability, numbers of multiprocessors of GPUs and their partitions (MIG), the most common one first. A GPU with
another number takes the nearest number below: tiles for more multiprocessors leave a last wave of a few blocks, which
takes as long as a full one; tiles for fewer lose only those few."""


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


def other_sizes(kind: str) -> list[int]:
    """The other numbers of multiprocessors of an architecture, nearest first: their programs run too."""
    architecture, own = parsed(kind)
    return sorted(set(_BY_NAME[architecture]) - {own}, key=lambda size: max(size / own, own / size))


def other_kinds(kind: str) -> list[tuple[str, int]]:
    """(architecture, multiprocessors) of other kinds whose programs run too: those of the architecture first, then, of
    PTX, those of lower ones; the nearest come first."""
    architecture, _ = parsed(kind)
    kinds = [(architecture, size) for size in other_sizes(kind)]
    if is_portable(architecture):
        names = [portable_name_of(capability) for capability in SIZES]
        lower = reversed(names[: names.index(architecture)])
        kinds += [(name, size) for name in lower for size in _BY_NAME[name]]
    return kinds


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
