"""Places of tensors in a caller's memory, and bindings: places for one program, checked once and used for many runs."""

from __future__ import annotations

import ctypes

from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.runtime.buffers import alignment_of
from jitdelegate.runtime.memory import ALIGNMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import Port, Program
    from jitdelegate.runtime.buffers import Borrowed

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

    def hand_over(self, stream: int) -> bool:
        """Let a stream of a GPU follow the work of others on the memory; whether there may be any."""
        return False

    def load(self, target: int, nbytes: int) -> None:
        """Copy the first bytes to an address of the host."""
        ctypes.memmove(target, self.address, nbytes)

    def store(self, source: int, nbytes: int) -> None:
        """Copy bytes from an address of the host to the start."""
        ctypes.memmove(self.address, source, nbytes)

    def is_at(self, other: Place) -> bool:
        """Whether the two begin with the same byte."""
        return self.gpu == other.gpu and self.address == other.address

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


def borrowed_place(memory: Borrowed) -> Place:
    """The memory of a caller's object, which the place holds."""
    return Place(memory.address, memory.nbytes, memory)


class Binding:
    """Where a program's inputs and outputs lie in the caller's memory; `IOBinding.bind` makes it.

    An output may lie where an input lies. A run writes it there if they are a pair of `Program.aliases` and no other
    input lies there; else it is written to spare memory, and copied there after the run. Tensors on a GPU are copied
    from and to spare memory, for a program that runs elsewhere.

    Attributes:
        addresses: of all inputs, then of all outputs, as `IOBinding.run_on` takes them.
        places: the caller's, in the same order.
        copies: (target, source, bytes) of outputs in spare memory whose place is on the host, which `finish` makes.
        staged: (position, spare memory) of tensors on a GPU, which `start` and `finish` copy.
        is_direct: whether there are none of both.
        changes_inputs: whether an output lies where an input lies, so that a second run has other inputs.
    """

    __slots__ = (
        *("_inputs", "_ports", "_spares", "addresses", "changes_inputs", "copies", "is_direct", "places", "staged"),
    )

    def __init__(self, program: Program, places: Sequence[Place]) -> None:
        """
        Args:
            places: of all inputs, then of all outputs.
        Raises:
            TensorError: a wrong number of places, or one that does not fit its tensor or overlaps another.
            DeviceError: out of memory for spare memory.
        """
        self._inputs = len(program.inputs)
        self._ports = ports = (*program.inputs, *program.outputs)
        if len(places) != len(ports):
            raise TensorError(f"{len(places)} tensors are given, expected {len(ports)}")
        self.places = tuple(places)
        self.addresses = [place.address for place in places]
        self._spares: list[Place] = []
        self.copies: list[tuple[int, int, int]] = []
        self.staged: list[tuple[int, Place]] = []
        for position, (place, port) in enumerate(zip(places, ports, strict=True)):
            check_place(place, port)
            if place.is_readonly and position >= self._inputs:
                raise TensorError(f"the memory of output {port.title!r} is read-only")
            if place.gpu != HOST:
                self._reach(position)
        aliases = {self._inputs + made: given for given, made in program.aliases if given < self._inputs}
        shared = overlaps(self.places, self._inputs)
        self.changes_inputs = bool(shared)
        for position, others in shared:
            for other in others:
                if other >= self._inputs or not self.places[position].is_at(self.places[other]):
                    raise overlapping(ports[position], ports[other])
            if others != [aliases.get(position)]:
                self._separate(position)
        self.is_direct = not (self.copies or self.staged)

    def _reach(self, position: int) -> None:
        """Let the run read or write a tensor that lies on a GPU."""
        spare = host_place(self._ports[position].nbytes)
        self.staged.append((position, spare))
        self.addresses[position] = spare.address

    def _separate(self, position: int) -> None:
        """Let the run write an output elsewhere that lies where an input lies."""
        place, nbytes = self.places[position], self._ports[position].nbytes
        if place.gpu != HOST:
            return  # it is elsewhere already
        spare = host_place(nbytes)
        self._spares.append(spare)
        self.copies.append((place.address, spare.address, nbytes))
        self.addresses[position] = spare.address

    def start(self) -> None:
        """Copy inputs from where they lie to spare memory, before a run."""
        for position, spare in self.staged:
            if position < self._inputs:
                self.places[position].load(spare.address, self._ports[position].nbytes)

    def finish(self) -> None:
        """Copy outputs from spare memory to their places, after a run."""
        for target, source, nbytes in self.copies:
            ctypes.memmove(target, source, nbytes)
        for position, spare in self.staged:
            if position >= self._inputs:
                self.places[position].store(spare.address, self._ports[position].nbytes)


def overlapping(port: Port, other: Port) -> TensorError:
    """The error about memory that two tensors cannot share."""
    return TensorError(
        f"the memory of output {port.title!r} overlaps that of tensor {other.title!r}, expected memory of its own, or"
        " that of a whole input"
    )


def overlaps(places: Sequence[Place], inputs: int) -> list[tuple[int, list[int]]]:
    """(position of an output, the other places that share a byte with it), for outputs that have any."""
    sharing: dict[int, list[int]] = {}
    active: list[tuple[int, int]] = []
    for start, end, position in sorted((place.address, place.end, number) for number, place in enumerate(places)):
        if active:
            active = [other for other in active if other[0] > start]
        for _, other in active:
            if places[position].overlaps(places[other]):
                for one, another in ((position, other), (other, position)):
                    if one >= inputs:
                        sharing.setdefault(one, []).append(another)
        active.append((end, position))
    return list(sharing.items())


def check_place(place: Place, port: Port) -> None:
    """
    Raises:
        TensorError: the place is too small for the tensor, or not aligned to its elements.
    """
    if place.nbytes < port.nbytes:
        raise TensorError(f"tensor {port.title!r} has memory of {place.nbytes} bytes, expected {port.nbytes}")
    alignment = alignment_of(port.dtype)
    if place.address % alignment:
        raise TensorError(f"tensor {port.title!r} begins at {place.address:#x}, expected a multiple of {alignment}")
