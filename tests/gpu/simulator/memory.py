"""Global device memory: every allocation stands between guard zones, every byte knows whether it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.gpu.simulator.errors import Fault, SimulationError
from tests.gpu.simulator.types import UNSIGNED, Array

if TYPE_CHECKING:
    from tests.gpu.simulator.group import Group

BASE = 0x7000_0000_0000
ALIGNMENT = 256
GUARD = 4096
ALLOCATED, WRITTEN = 1, 3


class Memory:
    """Device memory that lives over many launches.

    With `check_uninitialised=False`, never-written bytes of an allocation read as 0xFF (NaN) instead of being an error.
    """

    def __init__(self, *, check_uninitialised: bool = True) -> None:
        self.data = np.full(1 << 20, 0xFF, np.uint8)
        self.state = np.zeros(1 << 20, np.uint8)
        self.fresh = ALLOCATED if check_uninitialised else WRITTEN
        self.top = GUARD
        self.allocations: list[tuple[int, int]] = []
        self.variables: dict[tuple[object, str], int] = {}  # (module, name) -> address
        # what launches touch: start, end, whether it is written; None if nobody asks
        self.touched: list[tuple[int, int, bool]] | None = None
        self.constants: set[int] = set()  # addresses of the allocations that no launch writes
        self.raced: list[tuple[int, int]] = []  # offsets and sizes of words that all blocks may read and write

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` never-written bytes, a multiple of 256."""
        start = self.top
        self.top = -(-(start + nbytes + GUARD) // ALIGNMENT) * ALIGNMENT
        self._grow()
        self.state[start : start + nbytes] = self.fresh
        self.allocations.append((start, nbytes))
        return BASE + start

    def place(self, array: Array) -> int:
        """The address of a copy of the array's bytes in C order."""
        contents = np.ascontiguousarray(array)
        address = self.allocate(contents.nbytes)
        self.write(address, contents)
        return address

    def let_race(self, address: int, nbytes: int) -> int:
        """Notes that any of the blocks that write here may be the last, as of a status word; the address."""
        self.raced.append((address - BASE, nbytes))
        return address

    def keep(self, address: int) -> int:
        """Notes that no launch writes to the allocation with this address; the address."""
        self.constants.add(max(BASE + start for start, _ in self.allocations if BASE + start <= address))
        return address

    def is_constant(self, addresses: Array, nbytes: int) -> Array:
        """Whether no launch writes to these bytes, by address."""
        found = np.zeros(addresses.shape, np.bool_)
        for start, size in self.allocations:
            if BASE + start in self.constants:
                found |= (addresses >= BASE + start) & (addresses + nbytes <= BASE + start + size)
        return found

    def write(self, address: int, contents: bytes | Array) -> None:
        """Copies bytes to the device; SimulationError "out of bounds" where they do not fit one allocation."""
        data = contents if isinstance(contents, bytes) else np.ascontiguousarray(contents).tobytes()
        where = self._span(address, len(data))
        self.data[where] = np.frombuffer(data, np.uint8)
        self.state[where] = WRITTEN

    def read(self, address: int, nbytes: int) -> bytes:
        """Copies bytes from the device, never-written ones too (0xFF)."""
        return self.data[self._span(address, nbytes)].tobytes()

    def array(self, address: int, dtype: Any, shape: int | tuple[int, ...]) -> Array:
        """A copy of device memory as an array."""
        count = int(np.prod(shape))
        return np.frombuffer(self.read(address, count * np.dtype(dtype).itemsize), dtype).reshape(shape).copy()

    def _grow(self) -> None:
        if self.top > self.data.size:
            more = max(self.data.size, self.top - self.data.size + ALIGNMENT) // ALIGNMENT * ALIGNMENT
            self.data = np.concatenate([self.data, np.full(more, 0xFF, np.uint8)])
            self.state = np.concatenate([self.state, np.zeros(more, np.uint8)])

    def _span(self, address: int, nbytes: int) -> slice:
        start = address - BASE
        if start < 0 or start + nbytes > self.data.size or not self.state[start : start + nbytes].all():
            raise SimulationError("out of bounds", f"the host touches {nbytes} bytes at {self.describe(address)}")
        return slice(start, start + nbytes)

    def describe(self, address: int) -> str:
        """An address in words: which allocation is nearest, and how far its start and end are."""
        if not self.allocations:
            return f"{address:#x}, and nothing is allocated"
        offset = address - BASE
        number = min(range(len(self.allocations)), key=lambda n: _distance(offset, *self.allocations[n]))
        start, nbytes = self.allocations[number]
        return f"{address:#x}, byte {offset - start} of allocation {number} of {nbytes} bytes"

    def locate(self, group: Group, addresses: Array, total: int, verb: str) -> Array:
        """Offsets into `data` of aligned, valid accesses of `total` bytes; Fault otherwise."""
        offsets = addresses - BASE
        outside = (offsets < 0) | (offsets + total > self.data.size)
        if outside.any():
            self._refuse(group, addresses, outside, "out of bounds", f"{verb} {total} bytes at")
        if (offsets & (total - 1)).any():
            self._refuse(group, addresses, offsets & (total - 1) != 0, "misaligned", f"{verb} {total} bytes at")
        return offsets

    def load(self, group: Group, addresses: Array, width: int, count: int) -> list[Array]:
        """`count` columns of raw values of `width` bytes, one element per active lane."""
        offsets = self.locate(group, addresses, width * count, "reads")
        data, state = self.data.view(UNSIGNED[width]), self.state.view(UNSIGNED[width])
        first = offsets // width
        written = int.from_bytes(bytes([WRITTEN] * width), "little")
        for column in range(count):
            good = state[first + column] == written
            if not good.all():
                self._refuse_read(group, addresses + column * width, ~good, width)
        return [data[first + column] for column in range(count)]

    def store(self, group: Group, addresses: Array, width: int, columns: list[Array]) -> None:
        """Writes columns of raw values of `width` bytes, one element per active lane."""
        offsets = self.locate(group, addresses, width * len(columns), "writes")
        data, state = self.data.view(UNSIGNED[width]), self.state.view(UNSIGNED[width])
        first = offsets // width
        allocated = int.from_bytes(bytes([ALLOCATED] * width), "little")
        for column, values in enumerate(columns):
            bad = state[first + column] & state.dtype.type(allocated) != allocated
            if bad.any():
                self._refuse(group, addresses, bad, "out of bounds", f"writes {width * len(columns)} bytes at")
            data[first + column] = values
            state[first + column] = int.from_bytes(bytes([WRITTEN] * width), "little")

    def _refuse_read(self, group: Group, addresses: Array, bad: Array, width: int) -> None:
        lane = int(np.flatnonzero(bad)[0])
        offset = int(addresses[lane]) - BASE
        kind = "uninitialised" if self.state[offset : offset + width].all() else "out of bounds"
        self._refuse(group, addresses, bad, kind, f"reads {width} bytes at")

    def _refuse(self, group: Group, addresses: Array, bad: Array, kind: str, what: str) -> None:
        position = int(np.flatnonzero(bad)[0])
        raise Fault(kind, f"{what} {self.describe(int(addresses[position]))}", group.active.lanes[position])


def _distance(offset: int, start: int, nbytes: int) -> int:
    return max(start - offset, offset - (start + nbytes), 0)
