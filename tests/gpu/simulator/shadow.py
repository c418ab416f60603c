"""Who touched which memory, and in which order: the check for races, early reads and reads of nothing.

What lanes of a warp do without a `bar.warp.sync` between them has no order, and what the warps of a block do has none
without a `bar.sync`, in shared memory and in global memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.order import OF_A_WARP, SCOPE_BIT, WARP, access, is_before, note_reads
from tests.gpu.simulator.types import Array

if TYPE_CHECKING:
    from tests.gpu.simulator.group import Group

INITIALISED, IN_FLIGHT = 1 << 0, 1 << 1
"""Bits of a cell of shared memory: whether it was ever written, and whether a cp.async to it is under way."""
READ, WRITTEN, READ_REMOTELY, WRITTEN_REMOTELY = 1 << 2, 1 << 3, 1 << 4, 1 << 5
"""Since the last barrier of the cluster: whether its block read and wrote it, and whether another block did."""
CLUSTER = READ | WRITTEN | READ_REMOTELY | WRITTEN_REMOTELY
Agree = Callable[[], Array]
"""Whether the memory holds what each lane wrote there, although others wrote there too."""


class SharedShadow:
    """The state of the shared memory of a batch of blocks, in cells of `granule` bytes."""

    def __init__(self, blocks: int, stride: int, granule: int, check_races: bool) -> None:
        self.granule, self.check_races = granule, check_races
        self.cells_per_block = stride // granule
        self.state = np.zeros(blocks * self.cells_per_block, np.int8)
        self.wrote, self.read = (np.zeros(self.state.size, np.int64) for _ in range(2))

    def cells(self, offsets: Array, nbytes: int) -> Array:
        """Cell numbers [accesses, cells of one access]."""
        return (offsets // self.granule)[:, None] + np.arange(max(1, nbytes // self.granule))

    def on_read(self, group: Group, lanes: Array, offsets: Array, nbytes: int, *, together: bool = False) -> None:
        """Notes a read by each of `lanes`; Fault "uninitialised", "in flight" or "race".

        Args:
            together: whether the whole warp gets what the lane reads, as of ldmatrix.
        """
        cells = self.cells(offsets, nbytes)
        state = self.state[cells]
        if not self.check_races:
            _require(lanes, state & INITIALISED != 0, "uninitialised", "reads shared memory that nobody wrote")
            return
        _require(lanes, state & WRITTEN_REMOTELY == 0, "race", "reads shared memory that another block wrote")
        _require(lanes, state & IN_FLIGHT == 0, "in flight", "reads shared memory before its cp.async was waited for")
        _require(lanes, state & INITIALISED != 0, "uninitialised", "reads shared memory that nobody wrote")
        good = is_before(group, lanes, self.wrote[cells], own=not together)
        _require(lanes, good, "race", "reads shared memory that another thread wrote since the last barrier")
        note_reads(self.read, group, lanes, cells)
        self.state[cells] |= READ

    def on_remote(self, lanes: Array, offsets: Array, nbytes: int, *, writes: bool) -> None:
        """Notes that each of `lanes` reads or writes the memory of another block of its cluster."""
        if not (lanes.size and self.check_races):
            return
        cells = self.cells(offsets, nbytes)
        state, verb = self.state[cells], "writes" if writes else "reads"
        if not writes:
            _require(lanes, state & INITIALISED != 0, "uninitialised", "reads another block's memory, nobody wrote it")
        unsettled = IN_FLIGHT | WRITTEN_REMOTELY | WRITTEN | ((READ | READ_REMOTELY) if writes else 0)
        message = f"{verb} another block's memory that was touched since the cluster's last barrier"
        _require(lanes, state & unsettled == 0, "race", message)
        self.state[cells] = state | (WRITTEN_REMOTELY | INITIALISED if writes else READ_REMOTELY)

    def on_write(self, group: Group, lanes: Array, offsets: Array, nbytes: int, agree: Agree) -> None:
        """Notes a write by each of `lanes`; Fault "race" where another thread read or wrote since the barrier."""
        cells = self.cells(offsets, nbytes)
        if not self.check_races:
            self.state[cells] |= INITIALISED
            return
        self._claim(group, lanes, cells, INITIALISED, "writes", agree)

    def on_copy_start(self, group: Group, lanes: Array, offsets: Array, nbytes: int) -> None:
        """Notes that a cp.async to these bytes began."""
        if self.check_races:
            self._claim(group, lanes, self.cells(offsets, nbytes), IN_FLIGHT, "copies into")

    def on_copy_end(self, group: Group, lanes: Array, offsets: Array, nbytes: int) -> None:
        """Notes that the bytes of a cp.async arrived for the threads that waited."""
        cells = self.cells(offsets, nbytes)
        self.state[cells] = self.state[cells] & ~IN_FLIGHT | INITIALISED
        if self.check_races:
            self._claim(group, lanes, cells, INITIALISED, "copies into")

    def _claim(
        self, group: Group, lanes: Array, cells: Array, flag: int, verb: str, agree: Agree | None = None
    ) -> None:
        state = self.state[cells]
        remote = READ_REMOTELY | WRITTEN_REMOTELY
        _require(lanes, state & remote == 0, "race", f"{verb} shared memory that another block touched")
        good = is_before(group, lanes, self.wrote[cells]) & is_before(group, lanes, self.read[cells])
        _require(lanes, good, "race", f"{verb} shared memory that another thread touched since the last barrier")
        _require(
            lanes, state & IN_FLIGHT == 0, "race", f"{verb} shared memory that a cp.async under way will overwrite"
        )
        self.state[cells] = state | flag | WRITTEN
        _claim(self.wrote, group, lanes, cells, f"{verb} shared memory at the same time as another thread", agree)

    def on_cluster_barrier(self, released: Array) -> None:
        """Forgets that other blocks touched the memory of the released blocks."""
        self.state.reshape(-1, self.cells_per_block)[released] &= INITIALISED | IN_FLIGHT

    def is_open(self) -> bool:
        """Whether a block touched another one's memory since the last barrier of its cluster."""
        return bool((self.state & (READ_REMOTELY | WRITTEN_REMOTELY)).any())


class GlobalShadow:
    """Who wrote and read each cell of global memory during one launch."""

    def __init__(self, nbytes: int, granule: int, raced: Sequence[tuple[int, int]] = ()) -> None:
        """
        Args:
            raced: offset and size of each range that blocks may read and write in any order.
        """
        self.granule = granule
        self.wrote, self.read = (np.zeros(nbytes // granule, np.int64) for _ in range(2))
        self.may_race = np.zeros(nbytes // granule, np.bool_)
        for start, size in raced:
            self.may_race[start // granule : (start + size) // granule] = True

    def on_read(self, group: Group, offsets: Array, nbytes: int) -> None:
        """Notes a read by the active lanes; Fault "race" where another thread wrote in this launch."""
        cells, lanes = self._cells(offsets, nbytes), group.active.lanes
        wrote, may_race = self.wrote[cells], self.may_race[cells]
        good = may_race | is_before(group, lanes, wrote)
        _require(lanes, good, "race", "reads global memory that another thread writes")
        note_reads(self.read, group, lanes, cells)

    def on_write(self, group: Group, offsets: Array, nbytes: int, agree: Agree) -> None:
        """Notes a write by the active lanes; Fault "race" where another thread read or wrote in this launch."""
        cells, lanes = self._cells(offsets, nbytes), group.active.lanes
        may_race = self.may_race[cells]
        if may_race.all():
            self.wrote[cells] = access(group, lanes)
            return
        good = may_race | (is_before(group, lanes, self.wrote[cells]) & is_before(group, lanes, self.read[cells]))
        _require(lanes, good, "race", "writes global memory that another thread touches in this launch")
        _claim(self.wrote, group, lanes, cells, "writes global memory at the same time as another thread", agree)

    def touched(self, base: int) -> list[tuple[int, int, bool]]:
        """(start, end, whether it was written) of each range of addresses that the launch has touched."""
        found = []
        for owners, writes in ((self.wrote, True), (self.read, False)):
            edges = np.flatnonzero(np.diff(owners != 0, prepend=False, append=False)) * self.granule + base
            found += [(int(start), int(end), writes) for start, end in edges.reshape(-1, 2)]
        return found

    def _cells(self, offsets: Array, nbytes: int) -> Array:
        return (offsets // self.granule)[:, None] + np.arange(max(1, nbytes // self.granule))


def _require(lanes: Array, good: Array, kind: str, message: str) -> None:
    if not good.all():
        raise Fault(kind, message, lanes[np.flatnonzero(~good.all(axis=1))[0]])


def _claim(wrote: Array, group: Group, lanes: Array, cells: Array, message: str, agree: Agree | None) -> None:
    """Notes that `lanes` write their cells now. Only lanes of one warp may write one cell together, equal values."""
    mine = access(group, lanes)
    wrote[cells] = mine
    now = wrote[cells]
    if agree is not None and (now != mine).any():
        equal = ((now ^ mine) < WARP) & agree()[:, None] & (now != mine)
        now = np.where(equal, mine, now)
        wrote[cells[equal]] |= OF_A_WARP << SCOPE_BIT
    _require(lanes, now == mine, "race", message)
