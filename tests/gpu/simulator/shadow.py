"""Who touched which memory since the last barrier: the check for races, early reads and reads of nothing.

One 32-bit word a cell: bits 0-7 the warp (plus 1) that wrote it, bits 8-15 the warp that read it (255: several),
bit 16 whether it was ever written, bit 17 whether a cp.async to it is under way. Since the last barrier of the cluster:
bits 18 and 19 whether its block read and wrote it, bits 20 and 21 whether another block did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.types import Array

if TYPE_CHECKING:
    from tests.gpu.simulator.group import Group

WRITER, READER, INITIALISED, IN_FLIGHT = 0xFF, 0xFF00, 1 << 16, 1 << 17
READ, WRITTEN, READ_REMOTELY, WRITTEN_REMOTELY = 1 << 18, 1 << 19, 1 << 20, 1 << 21
CLUSTER = READ | WRITTEN | READ_REMOTELY | WRITTEN_REMOTELY


class SharedShadow:
    """The state of the shared memory of a batch of blocks, in cells of `granule` bytes."""

    def __init__(self, blocks: int, stride: int, granule: int, check_races: bool) -> None:
        self.granule, self.check_races = granule, check_races
        self.cells_per_block = stride // granule
        self.state = np.zeros(blocks * self.cells_per_block, np.int32)

    def cells(self, offsets: Array, nbytes: int) -> Array:
        """Cell numbers [accesses, cells of one access]."""
        return (offsets // self.granule)[:, None] + np.arange(max(1, nbytes // self.granule))

    def on_read(self, group: Group, lanes: Array, offsets: Array, nbytes: int) -> None:
        """Notes a read by each of `lanes`; Fault "uninitialised", "in flight" or "race"."""
        cells = self.cells(offsets, nbytes)
        state = self.state[cells]
        if not self.check_races:
            _require(lanes, state & INITIALISED != 0, "uninitialised", "reads shared memory that nobody wrote")
            return
        _require(lanes, state & WRITTEN_REMOTELY == 0, "race", "reads shared memory that another block wrote")
        mine = group.warp_tag[lanes][:, None]
        status = state & ~READER & ~CLUSTER
        good = (status == INITIALISED) | (status == INITIALISED | mine)
        if not good.all():
            _explain_read(lanes, state, mine)
        self._note_readers(cells, state, mine << 8)

    def _note_readers(self, cells: Array, state: Array, mine: Array) -> None:
        readers = state & READER
        if (((readers == mine) | (readers == READER)) & (state & READ != 0)).all():
            return
        new = np.where((readers == 0) | (readers == mine), mine, READER) | (state & ~READER) | READ
        self.state[cells] = new
        lost = self.state[cells] != new
        if lost.any():
            self.state[cells[lost]] |= READER

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

    def on_write(self, group: Group, lanes: Array, offsets: Array, nbytes: int) -> None:
        """Notes a write by each of `lanes`; Fault "race" where another warp read or wrote since the barrier."""
        cells = self.cells(offsets, nbytes)
        if not self.check_races:
            self.state[cells] |= INITIALISED
            return
        self._claim(group, lanes, cells, INITIALISED, "writes")

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

    def _claim(self, group: Group, lanes: Array, cells: Array, flag: int, verb: str) -> None:
        state = self.state[cells]
        remote = READ_REMOTELY | WRITTEN_REMOTELY
        _require(lanes, state & remote == 0, "race", f"{verb} shared memory that another block touched")
        mine = group.warp_tag[lanes][:, None]
        writer, reader = state & WRITER, state & READER
        good = ((writer == 0) | (writer == mine)) & ((reader == 0) | (reader == mine << 8))
        _require(lanes, good, "race", f"{verb} shared memory that another warp touched since the last barrier")
        _require(
            lanes, state & IN_FLIGHT == 0, "race", f"{verb} shared memory that a cp.async under way will overwrite"
        )
        self.state[cells] = state & ~WRITER | mine | flag | WRITTEN
        alone = self.state[cells] & WRITER == mine
        _require(lanes, alone, "race", f"{verb} shared memory at the same time as another warp")

    def on_barrier(self, released: Array) -> None:
        """Forgets who touched the memory of the released blocks."""
        by_block = self.state.reshape(-1, self.cells_per_block)
        if released.all():
            by_block &= INITIALISED | IN_FLIGHT | CLUSTER
        else:
            by_block[released] &= INITIALISED | IN_FLIGHT | CLUSTER

    def on_cluster_barrier(self, released: Array) -> None:
        """Forgets that other blocks touched the memory of the released blocks."""
        self.state.reshape(-1, self.cells_per_block)[released] &= INITIALISED | IN_FLIGHT

    def is_open(self) -> bool:
        """Whether a block touched another one's memory since the last barrier of its cluster."""
        return bool((self.state & (READ_REMOTELY | WRITTEN_REMOTELY)).any())


class GlobalShadow:
    """Which block wrote and read each cell of global memory during one launch."""

    def __init__(self, nbytes: int, granule: int, raced: Sequence[tuple[int, int]] = ()) -> None:
        """
        Args:
            raced: offset and size of each range that blocks may read and write in any order.
        """
        self.granule = granule
        self.writer = np.zeros(nbytes // granule, np.int32)
        self.reader = np.zeros(nbytes // granule, np.int32)
        self.may_race = np.zeros(nbytes // granule, np.bool_)
        for start, size in raced:
            self.may_race[start // granule : (start + size) // granule] = True

    def on_read(self, group: Group, offsets: Array, nbytes: int) -> None:
        """Notes a read by the active lanes; Fault "race" where another block wrote in this launch."""
        cells, mine = self._cells(offsets, nbytes), group.block_tag[group.active.lanes][:, None]
        writer = self.writer[cells]
        _require(
            group.active.lanes,
            (writer == 0) | (writer == mine) | self.may_race[cells],
            "race",
            "reads global memory that another block writes",
        )
        reader = self.reader[cells]
        if ((reader == mine) | (reader < 0)).all():
            return
        new = np.where((reader == 0) | (reader == mine), mine, -1)
        self.reader[cells] = new
        self.reader[cells[self.reader[cells] != new]] = -1

    def on_write(self, group: Group, offsets: Array, nbytes: int) -> None:
        """Notes a write by the active lanes; Fault "race" where another block read or wrote in this launch."""
        cells, mine = self._cells(offsets, nbytes), group.block_tag[group.active.lanes][:, None]
        writer, reader = self.writer[cells], self.reader[cells]
        may_race = self.may_race[cells]
        good = may_race | (((writer == 0) | (writer == mine)) & ((reader == 0) | (reader == mine)))
        _require(group.active.lanes, good, "race", "writes global memory that another block touches in this launch")
        self.writer[cells] = mine
        alone = may_race | (self.writer[cells] == mine)
        _require(group.active.lanes, alone, "race", "writes global memory that another block writes in this launch")

    def touched(self, base: int) -> list[tuple[int, int, bool]]:
        """(start, end, whether it was written) of each range of addresses that the launch has touched."""
        found = []
        for owners, writes in ((self.writer, True), (self.reader, False)):
            edges = np.flatnonzero(np.diff(owners != 0, prepend=False, append=False)) * self.granule + base
            found += [(int(start), int(end), writes) for start, end in edges.reshape(-1, 2)]
        return found

    def _cells(self, offsets: Array, nbytes: int) -> Array:
        return (offsets // self.granule)[:, None] + np.arange(max(1, nbytes // self.granule))


def _require(lanes: Array, good: Array, kind: str, message: str) -> None:
    if not good.all():
        raise Fault(kind, message, lanes[np.flatnonzero(~good.all(axis=1))[0]])


def _explain_read(lanes: Array, state: Array, mine: Array) -> None:
    _require(lanes, state & IN_FLIGHT == 0, "in flight", "reads shared memory before its cp.async was waited for")
    _require(lanes, state & INITIALISED != 0, "uninitialised", "reads shared memory that nobody wrote")
    writer = state & WRITER
    good = (writer == 0) | (writer == mine)
    _require(lanes, good, "race", "reads shared memory that another warp wrote since the last barrier")
