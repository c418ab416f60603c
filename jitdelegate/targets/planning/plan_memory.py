"""Places activations in one arena. Blocks that are alive at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Life:
    """A block of memory: bytes, and the first and last step that touch it."""

    size: int
    first: int
    last: int


def plan_memory(lives: Sequence[Life], *, align: int = 64) -> tuple[int, list[int]]:
    """Offsets in an arena, largest block first, each in the lowest gap that is free for its whole life.

    The greedy-by-size algorithm of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
    (2020), section 5.

    Args:
        lives: one entry per block.
        align: every offset is a multiple of this many bytes.
    Returns:
        (arena size in bytes, one offset in bytes per entry of `lives`).
    """
    offsets = [0] * len(lives)
    placed: list[int] = []
    for number in sorted(range(len(lives)), key=lambda n: (-lives[n].size, lives[n].first, n)):
        life = lives[number]
        others = (n for n in placed if lives[n].first <= life.last and life.first <= lives[n].last)
        taken = sorted((offsets[n], offsets[n] + lives[n].size) for n in others)
        offsets[number] = _lowest_gap(life.size, taken, align)
        placed.append(number)
    size = max((offset + life.size for offset, life in zip(offsets, lives, strict=True)), default=0)
    return -(-size // align) * align, offsets


def _lowest_gap(size: int, taken: list[tuple[int, int]], align: int) -> int:
    at = 0
    for start, end in taken:
        if at + size <= start:
            break
        at = max(at, -(-end // align) * align)
    return at
