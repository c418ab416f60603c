"""Places of tensors in a caller's memory, and bindings: places for one program, checked once and used for many runs."""

from __future__ import annotations

import ctypes

from jitdelegate.errors import TensorError
from jitdelegate.runtime.buffers import ELEMENTS, no_memory

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
    """

    __slots__ = ("address", "gpu", "nbytes", "owner")

    def __init__(self, address: int, nbytes: int, owner: object, gpu: int = HOST) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.gpu = gpu

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        return self.address + self.nbytes

    def overlaps(self, other: Place) -> bool:
        """Whether the two share a byte."""
        return self.gpu == other.gpu and self.address < other.end and other.address < self.end


class Binding:
    """Where a program's inputs and outputs lie in the caller's memory; `IOBinding.bind` makes it.

    An output may lie where an input lies. A run writes it there if they are a pair of `Program.aliases` and no other
    input lies there; else it is written to spare memory, and copied there after the run.

    Attributes:
        addresses: of all inputs, then of all outputs, as `IOBinding.run_on` takes them.
        places: the caller's, in the same order.
    """

    __slots__ = ("_copies", "_spares", "addresses", "places")

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
        self._spares: list[ctypes.Array[ctypes.c_char]] = []
        self._copies: list[tuple[int, int, int]] = []
        for place, port in zip(places, ports, strict=True):
            check_place(place, port)
        count = len(program.inputs)
        aliases = {count + made: given for given, made in program.aliases if given < count}
        for position, others in overlaps(self.places, count):
            for other in others:
                if other >= count or places[position].address != places[other].address:
                    raise overlapping(ports[position], ports[other])
            if others != [aliases.get(position)]:
                self._separate(position, ports[position])

    def _separate(self, position: int, port: Port) -> None:
        """Let the run write an output elsewhere."""
        place = self.places[position]
        try:
            spare = ctypes.create_string_buffer(port.nbytes + _SPARE)
        except MemoryError as error:
            raise no_memory(port, port.nbytes) from error
        address = ctypes.addressof(spare)
        address += -address % _SPARE
        self._spares.append(spare)
        self._copies.append((place.address, address, port.nbytes))
        self.addresses[position] = address

    def finish(self) -> None:
        """Copy outputs from spare memory to their places, after a run."""
        for target, source, nbytes in self._copies:
            ctypes.memmove(target, source, nbytes)


_SPARE = 64


def overlapping(port: Port, other: Port) -> TensorError:
    """The error about memory that two tensors cannot share."""
    return TensorError(
        f"the memory of output {port.name!r} overlaps that of tensor {other.name!r}, expected memory of its own, or"
        " that of a whole input"
    )


def overlaps(places: Sequence[Place], inputs: int) -> list[tuple[int, list[int]]]:
    """(position of an output, the other places that share a byte with it), for outputs that have any."""
    found: dict[int, list[int]] = {}
    active: list[int] = []
    for position in sorted(range(len(places)), key=lambda each: places[each].address):
        active = [each for each in active if places[each].end > places[position].address]
        for other in active:
            if places[position].overlaps(places[other]):
                for one, another in ((position, other), (other, position)):
                    if one >= inputs:
                        found.setdefault(one, []).append(another)
        active.append(position)
    return list(found.items())


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
