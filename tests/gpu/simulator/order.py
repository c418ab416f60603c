"""Which accesses to a cell of memory came before others: the order that barriers make, thread by thread.

An access is one 64-bit word: bits 0-39 the thread (its block in the grid plus 1, times 1024, plus its number there),
bits 40-41 whether it stands for the reads of several, bits 42-62 the time. Time is the number of barriers that the
launch has passed. A thread comes after what others of its block did before its last `bar.sync`, and after what others
of its warp did before its last `bar.warp.sync`. Blocks have no order; those of a cluster have one of their own, in
`shadow.py`. 0 is no access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.gpu.simulator.types import Array

if TYPE_CHECKING:
    from tests.gpu.simulator.group import Group

WARP, BLOCK = 32, 1024
"""Threads; the numbers of the threads of a warp or block differ in their lowest bits only."""
SCOPE_BIT, _TIME_BIT = 40, 42
_THREAD = (1 << SCOPE_BIT) - 1
ONE, OF_A_WARP, OF_A_BLOCK, OF_SEVERAL_BLOCKS = range(4)


class Clock:
    """The time of a launch."""

    def __init__(self) -> None:
        self.now = 0

    def tick(self) -> int:
        """A barrier was passed; the time after it."""
        self.now += 1
        return self.now


def access(group: Group, lanes: Array) -> Array:
    """The word of an access by each of `lanes` now, [lane, 1]."""
    word: Array = (group.thread_tag[lanes] | (group.clock.now << _TIME_BIT))[:, None]
    return word


def is_before(group: Group, lanes: Array, words: Array, *, own: bool = True) -> Array:
    """Whether the accesses `words` [lane, cells] came before what each of `lanes` does now.

    Args:
        own: whether a thread's own access does, without a barrier.
    """
    apart, scope = (words & _THREAD) ^ group.thread_tag[lanes][:, None], words >> SCOPE_BIT & 3
    since_warp, since_block = group.since_warp[lanes][:, None], group.since_block[lanes][:, None]
    since = np.where((apart < WARP) & (scope <= OF_A_WARP), since_warp, 0)
    since = np.where((since == 0) & (apart < BLOCK) & (scope <= OF_A_BLOCK), since_block, since)
    before: Array = (words == 0) | (words >> _TIME_BIT < since)
    return before | ((apart == 0) & (scope == ONE)) if own else before


def note_reads(read: Array, group: Group, lanes: Array, cells: Array) -> None:
    """Notes in `read` that each of `lanes` reads its cells [lane, cells] now."""
    old, new = read[cells], access(group, lanes)
    if (old == new).all():
        return
    noted = np.where(is_before(group, lanes, old), new, _widened(new, old))
    read[cells] = noted
    kept = read[cells]
    lost = kept != noted
    if lost.any():  # several lanes read one cell at the same time
        noted = np.broadcast_to(new, cells.shape)[lost]
        np.maximum.at(read, cells[lost], _widened(noted, kept[lost]))


def _widened(new: Array, old: Array) -> Array:
    """The reads `old` and those of one more thread as one word."""
    apart = (new & _THREAD) ^ (old & _THREAD)
    scope = np.where(apart < WARP, OF_A_WARP, np.where(apart < BLOCK, OF_A_BLOCK, OF_SEVERAL_BLOCKS))
    scope = np.where(apart == 0, ONE, scope)
    widened: Array = new | (np.maximum(scope, old >> SCOPE_BIT & 3) << SCOPE_BIT)
    return widened
