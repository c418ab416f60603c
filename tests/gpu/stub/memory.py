"""Device memory that is bytes of the host: bounds are checked, and addresses are none of the host's."""

from __future__ import annotations

from typing import Protocol

from tests.gpu.stub.capture import Touch

ALIGNMENT = 256
_FIRST = 0x7F00_0000_0000
_GUARD = 1 << 16


class DeviceMemory(Protocol):
    """What the stub needs of device memory.

    Attributes:
        touched: what was read and written since somebody wants to know; None if nobody does.
    """

    touched: list[Touch] | None

    def allocate(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def write(self, address: int, content: bytes) -> None: ...
    def read(self, address: int, nbytes: int) -> bytes: ...


class HostMemory:
    """Ranges with room between them; new memory holds no zeros, so that nobody relies on them."""

    def __init__(self) -> None:
        self._ranges: dict[int, bytearray] = {}
        self._next = _FIRST
        self.touched: list[Touch] | None = None

    def allocate(self, nbytes: int) -> int:
        address = self._next
        self._next += -(-nbytes // ALIGNMENT) * ALIGNMENT + _GUARD
        self._ranges[address] = bytearray(b"\xa5" * nbytes)
        return address

    def free(self, address: int) -> None:
        del self._ranges[address]

    def write(self, address: int, content: bytes) -> None:
        self._note(address, len(content), writes=True)
        room, start = self._find(address, len(content))
        room[start : start + len(content)] = content

    def read(self, address: int, nbytes: int) -> bytes:
        self._note(address, nbytes, writes=False)
        room, start = self._find(address, nbytes)
        return bytes(room[start : start + nbytes])

    def _note(self, address: int, nbytes: int, *, writes: bool) -> None:
        if self.touched is not None:
            self.touched.append((address, address + nbytes, writes))

    def _find(self, address: int, nbytes: int) -> tuple[bytearray, int]:
        for start, room in self._ranges.items():
            if start <= address and address + nbytes <= start + len(room):
                return room, address - start
        raise IndexError(f"{nbytes} bytes at {address:#x} are outside of every allocation")
