"""The memory spaces a kernel addresses: shared, local, global, and generic addresses that lead to one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tests.ptx_simulator.errors import Fault
from tests.ptx_simulator.memory import BASE as GLOBAL_BASE
from tests.ptx_simulator.memory import Memory
from tests.ptx_simulator.shadow import GlobalShadow, SharedShadow
from tests.ptx_simulator.types import UNSIGNED, Array

if TYPE_CHECKING:
    from tests.ptx_simulator.group import Group

SHARED_START = 1024  # as on hardware, where the first kilobyte is the system's; it also makes address 0 an error
SHARED_WINDOW = 0x6E00_0000_0000
LOCAL_WINDOW = 0x6D00_0000_0000


class Space(Protocol):
    """Addresses are int64, one per active lane; values are raw columns, one element per active lane."""

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """`count` columns of elements of `width` bytes."""

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """Writes the columns one after another at each address."""

    def update(self, group: Group, addresses: Array, width: int) -> tuple[Array, Array]:
        """For an atomic: (memory as elements of `width` bytes, element of each lane)."""


class GlobalSpace:
    """Global memory as one launch sees it."""

    def __init__(self, memory: Memory, shadow: GlobalShadow | None) -> None:
        self.memory, self.shadow = memory, shadow

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """See Space."""
        columns = self.memory.load(group, addresses, width, count)
        if self.shadow:
            self.shadow.on_read(group, addresses - GLOBAL_BASE, width * count)
        return columns

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """See Space."""
        self.memory.store(group, addresses, width, columns)
        if self.shadow:
            self.shadow.on_write(group, addresses - GLOBAL_BASE, width * len(columns))

    def update(self, group: Group, addresses: Array, width: int) -> tuple[Array, Array]:
        """See Space."""
        self.memory.load(group, addresses, width, 1)
        return self.memory.data.view(UNSIGNED[width]), (addresses - GLOBAL_BASE) // width


class SharedSpace:
    """The shared memory of a batch of blocks, `size` bytes each, from address SHARED_START on."""

    def __init__(self, blocks: int, size: int, granule: int, check_races: bool) -> None:
        self.size = size
        self.stride = -(-size // 1024) * 1024 + 1024
        self.data = np.full(blocks * self.stride, 0xFF, np.uint8)
        self.shadow = SharedShadow(blocks, self.stride, granule, check_races)

    def offsets(self, group: Group, lanes: Array, addresses: Array, total: int, verb: str) -> Array:
        """Where in `data` the accesses of `total` bytes lie; Fault "out of bounds" or "misaligned"."""
        relative = np.where(addresses >= SHARED_WINDOW, addresses - SHARED_WINDOW, addresses) - SHARED_START
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
        result: Array = relative + group.block_in_batch[lanes] * self.stride
        return result

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """See Space."""
        return self.load_lanes(group, group.active.lanes, addresses, width, count)

    def load_lanes(self, group: Group, lanes: Array, addresses: Array, width: int, count: int) -> list[Array]:
        """As `load`, for the lanes named."""
        offsets = self.offsets(group, lanes, addresses, width * count, "reads")
        self.shadow.on_read(group, lanes, offsets, width * count)
        data, first = self.data.view(UNSIGNED[width]), offsets // width
        return [data[first + column] for column in range(count)]

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """See Space."""
        offsets = self.offsets(group, group.active.lanes, addresses, width * len(columns), "writes")
        self.shadow.on_write(group, group.active.lanes, offsets, width * len(columns))
        data, first = self.data.view(UNSIGNED[width]), offsets // width
        for column, values in enumerate(columns):
            data[first + column] = values

    def update(self, group: Group, addresses: Array, width: int) -> tuple[Array, Array]:
        """See Space."""
        lanes = group.active.lanes
        offsets = self.offsets(group, lanes, addresses, width, "updates")
        written = self.shadow.state[self.shadow.cells(offsets, width)] & (1 << 16)
        if not written.all():
            place = int(np.flatnonzero(written.min(axis=1) == 0)[0])
            raise Fault("uninitialised", "updates shared memory that nobody wrote", lanes[place])
        return self.data.view(UNSIGNED[width]), offsets // width


class LocalSpace:
    """The stack of every lane of a group, `size` bytes each."""

    def __init__(self, lanes: int, size: int) -> None:
        self.size = -(-size // 16) * 16
        self.data = np.full(lanes * self.size, 0xFF, np.uint8)

    def _offsets(self, group: Group, addresses: Array, total: int) -> Array:
        relative = np.where(addresses >= LOCAL_WINDOW, addresses - LOCAL_WINDOW, addresses)
        lanes = group.active.lanes
        for kind, bad in (
            ("out of bounds", (relative < 0) | (relative + total > self.size)),
            ("misaligned", relative & (total - 1) != 0),
        ):
            if bad.any():
                place = int(np.flatnonzero(bad)[0])
                where = f"byte {int(relative[place])} of {self.size} bytes of local memory"
                raise Fault(kind, f"touches {total} bytes at {where}", lanes[place])
        result: Array = relative + lanes * self.size
        return result

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """See Space."""
        data, first = self.data.view(UNSIGNED[width]), self._offsets(group, addresses, width * count) // width
        return [data[first + column] for column in range(count)]

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """See Space."""
        data, first = self.data.view(UNSIGNED[width]), self._offsets(group, addresses, width * len(columns)) // width
        for column, values in enumerate(columns):
            data[first + column] = values

    def update(self, group: Group, addresses: Array, width: int) -> tuple[Array, Array]:
        """See Space."""
        return self.data.view(UNSIGNED[width]), self._offsets(group, addresses, width) // width


def generic_space(group: Group, addresses: Array) -> Space:
    """The space that all generic addresses lead to; Fault where they lead to several."""
    names = np.select([addresses >= GLOBAL_BASE, addresses >= SHARED_WINDOW, addresses >= LOCAL_WINDOW], [2, 1, 0], 2)
    if (names != names[0]).any():
        place = int(np.flatnonzero(names != names[0])[0])
        raise Fault(
            "out of bounds", "generic addresses of one instruction lead to several spaces", group.active.lanes[place]
        )
    return (group.local, group.shared, group.global_space)[int(names[0])]
