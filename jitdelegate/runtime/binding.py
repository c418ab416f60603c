"""Places of tensors in a caller's memory, and bindings: places for one program, checked once and used for many runs."""

from __future__ import annotations

import ctypes

from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.runtime.buffers import ELEMENTS
from jitdelegate.runtime.memory import ALIGNMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import Port, Program

HOST = -1
"""`Place.gpu` of memory that the CPU reads and writes."""


class Place:
    """Contiguous memory for one row-major tensor.

    Attributes:
        address: of its first byte.
        nbytes: its length.
        gpu: HOST, or the number of the GPU whose memory it is.
        owner: the object that keeps the memory alive.
        is_readonly: whether nobody may write to it.
    """

    __slots__ = ("address", "gpu", "is_readonly", "nbytes", "owner")

    def __init__(self, address: int, nbytes: int, owner: object, gpu: int = HOST, *, is_readonly: bool = False) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.gpu = gpu
        self.is_readonly = is_readonly

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        return self.address + self.nbytes

    def shared_address(self) -> int:
        """The address, for a library that keeps it.

        Raises:
            BufferError: the memory moves.
        """
        return self.address

    def load(self, target: int, nbytes: int) -> None:
        """Copy the first bytes to an address of the host."""
        ctypes.memmove(target, self.address, nbytes)

    def store(self, source: int, nbytes: int) -> None:
        """Copy bytes from an address of the host to the start."""
        ctypes.memmove(self.address, source, nbytes)

    def overlaps(self, other: Place) -> bool:
        """Whether the two share a byte."""
        return self.gpu == other.gpu and self.address < other.end and other.address < self.end


def host_place(nbytes: int) -> Place:
    """New memory of the host, zeroed, at a multiple of ALIGNMENT; it belongs to the place.

    Raises:
        DeviceError: out of memory.
    """
    try:
        memory = ctypes.create_string_buffer(nbytes + ALIGNMENT)
    except (MemoryError, OverflowError) as error:
        raise DeviceError(f"no memory of {nbytes} bytes for a tensor") from error
    address = ctypes.addressof(memory)
    return Place(address + -address % ALIGNMENT, nbytes, memory)


class Binding:
    """Where a program's inputs and outputs lie in the caller's memory; `IOBinding.bind` makes it.

    An output may lie where an input lies: it is written to spare memory then, and copied there after the run.

    Attributes:
        addresses: of all inputs, then of all outputs, as `IOBinding.run_on` takes them.
        places: the caller's, in the same order.
        copies: (target, source, bytes) of outputs in spare memory, which `finish` makes.
    """

    __slots__ = ("_spares", "addresses", "copies", "places")

    def __init__(self, program: Program, places: Sequence[Place]) -> None:
        """
        Args:
            places: of all inputs, then of all outputs; on the host.
        Raises:
            TensorError: a wrong number of places, or one that does not fit its tensor or overlaps another.
            DeviceError: out of memory for spare memory.
        """
        ports = (*program.inputs, *program.outputs)
        if len(places) != len(ports):
            raise TensorError(f"{len(places)} tensors are given, expected {len(ports)}")
        self.places = tuple(places)
        self.addresses = [place.address for place in places]
        self._spares: list[Place] = []
        self.copies: list[tuple[int, int, int]] = []
        for place, port in zip(places, ports, strict=True):
            check_place(place, port)
        for position in range(len(program.inputs), len(places)):
            if places[position].is_readonly:
                raise TensorError(f"the memory of output {ports[position].name!r} is read-only")
            for other in range(position):
                if places[position].overlaps(places[other]):
                    self._separate(position, other, ports, len(program.inputs))

    def _separate(self, position: int, other: int, ports: Sequence[Port], inputs: int) -> None:
        """Let the run write an output elsewhere that lies where an input lies."""
        place, port = self.places[position], ports[position]
        if other >= inputs or place.address != self.places[other].address:
            raise TensorError(f"the memory of tensor {port.name!r} overlaps that of tensor {ports[other].name!r}")
        if self.addresses[position] != place.address:
            return  # it lies where several inputs lie
        spare = host_place(port.nbytes)
        self._spares.append(spare)
        self.copies.append((place.address, spare.address, port.nbytes))
        self.addresses[position] = spare.address

    def finish(self) -> None:
        """Copy outputs from spare memory to their places, after a run."""
        for target, source, nbytes in self.copies:
            ctypes.memmove(target, source, nbytes)


def check_place(place: Place, port: Port) -> None:
    """
    Raises:
        TensorError: the place is too small for the tensor, not aligned to its elements, or not on the host.
    """
    if place.gpu != HOST:
        raise TensorError(f"tensor {port.name!r} lies on GPU {place.gpu}, expected memory of the host")
    if place.nbytes < port.nbytes:
        raise TensorError(f"tensor {port.name!r} has memory of {place.nbytes} bytes, expected {port.nbytes}")
    alignment = ctypes.alignment(ELEMENTS[port.dtype])
    if place.address % alignment:
        raise TensorError(f"tensor {port.name!r} begins at {place.address:#x}, expected a multiple of {alignment}")
