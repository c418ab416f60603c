"""What the addresses and handles that the driver gives out stand for, but for streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu.stub.capture import Capture, Node, Stream

SHARED_WITHOUT_LEAVE = 48 * 1024
"""Most bytes of shared memory of a block of a function whose attribute nobody set."""


@dataclass
class Function:
    """A kernel of a loaded module."""

    image: bytes
    name: str
    most_shared_bytes: int = SHARED_WITHOUT_LEAVE


@dataclass
class DeviceRange:
    """Allocated device memory."""

    nbytes: int
    context: int


@dataclass
class PinnedRange:
    """Allocated pinned memory of the host.

    Attributes:
        mapped: its address on the device, once somebody asked for it.
    """

    buffer: Any
    context: int = 0
    mapped: int = 0

    @property
    def nbytes(self) -> int:
        return len(self.buffer)


@dataclass
class Graph:
    """What a capture gave."""

    nodes: Sequence[Node]


@dataclass
class Executable:
    """A graph that can run."""

    nodes: Sequence[Node]


@dataclass
class Event:
    """When a stream passed it, and where it was recorded last.

    Attributes:
        captured: the capture in which it was recorded last, and the nodes before it there.
    """

    time: float = 0.0
    recorded: Any = (Stream(), None)
    captured: tuple[Capture, tuple[Node, ...]] | None = None


@dataclass
class GlBuffer:
    """A buffer of OpenGL.

    Attributes:
        address: on the device, while it is mapped.
        leaving: the stream after whose work it is unmapped.
    """

    content: bytes
    address: int = 0
    leaving: Stream | None = None
