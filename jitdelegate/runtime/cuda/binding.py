"""A binding of a CUDA session: tensors on the GPU are used where they lie, others go by way of pinned memory."""

from __future__ import annotations

import ctypes

from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.runtime.binding import HOST, Binding
from jitdelegate.runtime.cuda.driver import HOST_MEMORY, POINTER_MEMORY, try_release
from jitdelegate.runtime.cuda.memory import DevicePlace
from jitdelegate.runtime.cuda.route import Route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.binding import Place
    from jitdelegate.runtime.cuda.memory import GpuMemory


class CudaBinding(Binding):
    """Where a program's inputs and outputs lie, for runs on one GPU.

    Pinned memory of the host is copied from and to without a stop between; other memory of the host has pinned memory
    beside it, which belongs to the binding.
    """

    __slots__ = ("_apart", "_device", "_found", "_memory", "_own", "_pinned", "_program", "_rooms", "_route")

    def __init__(self, program: Program, places: Sequence[Place], memory: GpuMemory, own: Callable[[int], int]) -> None:
        """
        Args:
            memory: of the session's GPU; its context is current.
            own: offset of inputs and outputs to memory of the session.
        Raises:
            TensorError: a place does not fit its tensor, overlaps another, or is on another GPU.
            DeviceError: a place is in another context, or out of pinned memory.
        """
        self._program = program
        self._memory = memory
        self._own = own
        self._device: list[tuple[int, DevicePlace]] = []
        self._apart: set[int] = set()
        super().__init__(program, places)
        self._pinned = [0] * len(places)
        self._rooms: dict[int, Place] = {}
        for position, (place, port) in enumerate(zip(self.places, self._ports, strict=True)):
            if place.gpu == HOST and port.nbytes:
                room = place
                if memory.driver.pointer_attribute(POINTER_MEMORY, place.address) != HOST_MEMORY:
                    room = self._rooms[position] = memory.pinned_place(port.nbytes)
                self._pinned[position] = room.address
        self._found: list[int] | None = None

    @property
    def copies_on_host(self) -> bool:
        """Whether a run copies memory of the host by itself, from or to pinned memory."""
        return bool(self._rooms)

    def _reach(self, position: int) -> None:
        place, port = self.places[position], self._ports[position]
        if not isinstance(place, DevicePlace) or place.gpu != self._memory.gpu:
            raise TensorError(
                f"tensor {port.title!r} lies on GPU {place.gpu}, expected GPU {self._memory.gpu}, where the model runs,"
                " or the host"
            )
        if place.context is not self._memory.context:
            raise DeviceError(f"the memory of tensor {port.title!r} was lost when another library reset the GPU")
        self._device.append((position, place))

    def _separate(self, position: int) -> None:
        self._apart.add(position)

    def acquire(self, stream: int) -> Route:
        """The memory of a run that is enqueued in the stream next, with inputs in pinned memory; for `release`, after
        the run was enqueued.

        Raises:
            DeviceError: the driver cannot wait for the memory, or not map it.
        """
        for position, room in self._rooms.items():
            if position < self._inputs:
                ctypes.memmove(room.address, self.places[position].address, self._ports[position].nbytes)
        device, addresses = [0] * len(self.places), dict[DevicePlace, int]()
        try:
            for position, place in self._device:
                if place not in addresses:
                    addresses[place] = place.acquire(stream)
                device[position] = -addresses[place] if position in self._apart else addresses[place]
        except BaseException:
            for place in addresses:
                try_release(place.release, stream)
            raise
        if device != self._found:
            self._route = Route(self._program, self._pinned, device, self._own, self._memory.driver.mapped)
            self._found = device
        return self._route

    def release(self, stream: int) -> None:
        """Give the GPU's memory back to others, in the stream's order."""
        for place in dict.fromkeys(place for _, place in self._device):
            place.release(stream)

    def finish(self) -> None:
        """Copy outputs from pinned memory to the caller's, after a run."""
        for position, room in self._rooms.items():
            if position >= self._inputs:
                ctypes.memmove(self.places[position].address, room.address, self._ports[position].nbytes)
