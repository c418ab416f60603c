"""The memory spaces a kernel addresses: global, shared, and that of all blocks of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.memory import BASE as GLOBAL_BASE
from tests.gpu.simulator.memory import Memory
from tests.gpu.simulator.shadow import Agree, GlobalShadow, SharedShadow
from tests.gpu.simulator.types import UNSIGNED, Array

if TYPE_CHECKING:
    from tests.gpu.simulator.group import Group

SHARED_START = 1024  # as on hardware, where the first kilobyte is the system's; it also makes address 0 an error
RANK_STEP = 1 << 24
"""Distance between addresses of the same place in neighbouring blocks of a cluster; see `mapa`."""


class Space(Protocol):
    """Addresses are int64, one per active lane; values are raw columns, one element per active lane."""

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """`count` columns of elements of `width` bytes."""

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """Writes the columns one after another at each address."""


class GlobalSpace:
    """Global memory as one launch sees it."""

    def __init__(self, memory: Memory, shadow: GlobalShadow | None) -> None:
        self.memory, self.shadow = memory, shadow

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """See Space."""
        self._require_late(group, addresses, width * count, "reads")
        columns = self.memory.load(group, addresses, width, count)
        if self.shadow:
            self.shadow.on_read(group, addresses - GLOBAL_BASE, width * count)
        return columns

    def load_constant(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """As `load`, of memory that no launch writes."""
        bad = ~self.memory.is_constant(addresses, width * count)
        if bad.any():
            message = "reads through ld.global.nc what launches may write"
            raise Fault("race", message, group.active.lanes[np.flatnonzero(bad)[0]])
        return self.load(group, addresses, width, count)

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """See Space."""
        self._require_late(group, addresses, width * len(columns), "writes")
        self.memory.store(group, addresses, width, columns)
        if self.shadow:
            agree = _agree(self.memory.data, addresses - GLOBAL_BASE, width, columns)
            self.shadow.on_write(group, addresses - GLOBAL_BASE, width * len(columns), agree)

    def _require_late(self, group: Group, addresses: Array, nbytes: int, verb: str) -> None:
        """Fault "early" where a lane touches what a launch may be about to write or read, and has not waited for it."""
        lanes = group.active.lanes
        if not group.is_early(lanes):
            return
        assert group.early is not None
        bad = group.early[lanes] & ~self.memory.is_constant(addresses, nbytes)
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            where = self.memory.describe(int(addresses[place]))
            raise Fault("early", f"{verb} {nbytes} bytes at {where}, before the wait for other launches", lanes[place])


class SharedSpace:
    """The shared memory of a batch of blocks, `size` bytes each, from address SHARED_START on."""

    def __init__(self, blocks: int, size: int, granule: int, check_races: bool, cluster: int = 1) -> None:
        self.size = size
        self.cluster = ClusterSpace(self, cluster)
        self.stride = -(-size // 1024) * 1024 + 1024
        self.data = np.full(blocks * self.stride, 0xFF, np.uint8)
        self.shadow = SharedShadow(blocks, self.stride, granule, check_races)

    def offsets(
        self, group: Group, lanes: Array, addresses: Array, total: int, verb: str, blocks: Array | None = None
    ) -> Array:
        """Where in `data` the accesses of `total` bytes lie; Fault "out of bounds" or "misaligned".

        `blocks`: whose memory each lane accesses, its own block's by default.
        """
        relative = addresses - SHARED_START
        outside = (relative < 0) | (relative + total > self.size)
        if outside.any():
            place = int(np.flatnonzero(outside)[0])
            where = f"byte {int(relative[place])} of {self.size} bytes of shared memory"
            raise Fault("out of bounds", f"{verb} {total} bytes at {where}", lanes[place])
        crooked = relative & (total - 1) != 0
        if crooked.any():
            place = int(np.flatnonzero(crooked)[0])
            where = f"byte {int(relative[place])} of shared memory"
            raise Fault("misaligned", f"{verb} {total} bytes at {where}", lanes[place])
        blocks = group.block_in_batch[lanes] if blocks is None else blocks
        result: Array = relative + blocks * self.stride
        return result

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """See Space."""
        return self.load_lanes(group, group.active.lanes, addresses, width, count)

    def load_lanes(
        self, group: Group, lanes: Array, addresses: Array, width: int, count: int, *, together: bool = False
    ) -> list[Array]:
        """As `load`, for the lanes named; `together` as of `SharedShadow.on_read`."""
        offsets = self.offsets(group, lanes, addresses, width * count, "reads")
        self.shadow.on_read(group, lanes, offsets, width * count, together=together)
        data, first = self.data.view(UNSIGNED[width]), offsets // width
        return [data[first + column] for column in range(count)]

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """See Space."""
        offsets = self.offsets(group, group.active.lanes, addresses, width * len(columns), "writes")
        data, first = self.data.view(UNSIGNED[width]), offsets // width
        for column, values in enumerate(columns):
            data[first + column] = values
        agree = _agree(self.data, offsets, width, columns)
        self.shadow.on_write(group, group.active.lanes, offsets, width * len(columns), agree)


class ClusterSpace:
    """The shared memory of all blocks of a cluster; the blocks of a batch are whole clusters of `size`."""

    def __init__(self, shared: SharedSpace, size: int) -> None:
        self.shared, self.size = shared, size

    def _offsets(self, group: Group, addresses: Array, total: int, verb: str) -> tuple[Array, Array]:
        """(where in the shared memory the accesses lie, whether that is another block's)."""
        lanes, ranks = group.active.lanes, addresses // RANK_STEP - 1
        own = group.block_in_batch[lanes]
        wrong = ranks >= self.size
        if wrong.any():
            lane = lanes[int(np.flatnonzero(wrong)[0])]
            raise Fault("out of bounds", f"{verb} memory of a block that is not in the cluster of {self.size}", lane)
        blocks = np.where(ranks < 0, own, own // self.size * self.size + ranks)
        return self.shared.offsets(group, lanes, addresses % RANK_STEP, total, verb, blocks), blocks != own

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """See Space."""
        offsets, is_remote = self._offsets(group, addresses, width * count, "reads")
        lanes, shadow = group.active.lanes, self.shared.shadow
        shadow.on_read(group, lanes[~is_remote], offsets[~is_remote], width * count)
        shadow.on_remote(lanes[is_remote], offsets[is_remote], width * count, writes=False)
        data, first = self.shared.data.view(UNSIGNED[width]), offsets // width
        return [data[first + column] for column in range(count)]

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """See Space."""
        offsets, is_remote = self._offsets(group, addresses, width * len(columns), "writes")
        lanes, shadow = group.active.lanes, self.shared.shadow
        data, first = self.shared.data.view(UNSIGNED[width]), offsets // width
        for column, values in enumerate(columns):
            data[first + column] = values
        own = [values[~is_remote] for values in columns]
        agree = _agree(self.shared.data, offsets[~is_remote], width, own)
        shadow.on_write(group, lanes[~is_remote], offsets[~is_remote], width * len(columns), agree)
        shadow.on_remote(lanes[is_remote], offsets[is_remote], width * len(columns), writes=True)


def _agree(data: Array, offsets: Array, width: int, columns: list[Array]) -> Agree:
    """Whether memory holds the columns that each lane has just written."""

    def agree() -> Array:
        words, first = data.view(UNSIGNED[width]), offsets // width
        equal: Array = np.all([words[first + column] == values for column, values in enumerate(columns)], axis=0)
        return equal

    return agree
