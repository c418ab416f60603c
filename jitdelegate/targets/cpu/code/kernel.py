"""Classes that all writers of kernels share: memory of operands, packed constants, chunk functions, jobs and steps."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

import numpy as np

from jitdelegate.base.targets import Level
from jitdelegate.ir.layout import Layout
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.runtime.status import FOUND_BITS, LARGEST_FOUND
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, INDEX, POINTER, Function, Module, Value, vector
from jitdelegate.targets.planning.constants import Constants
from jitdelegate.targets.planning.refusals import Refusals

PARAMETERS = (("chunk", INDEX), ("scratch", POINTER))
"""Parameters of every chunk function; the addresses of its operands follow."""
ALIGN = 64
RANGES = 4
"""Most ranges of a step: one per thread of the default number."""
LEAST_WORTH = 2
"""Chunks' worth of work in the smallest step that threads share: some eight microseconds."""


@dataclass(frozen=True)
class Memory:
    """Where a tensor lies: `offset` bytes into "arena", "weights" or "scratch"; at pointer number `offset` of "io"; in
    table number `offset` of the "code". A part of another tensor begins `start` bytes after that one.

    The tail of a row-major tensor in "io" must be read with a mask: the caller's memory may end with the tensor.
    Writers see numbers of places instead, as `Generator.numbered` makes them: the same ones for equal layers.
    """

    space: str
    offset: int
    layout: Layout
    start: int = 0

    @property
    def exact(self) -> bool:
        return self.space == "io"


def distances_along(memory: Memory, shape: tuple[int, ...]) -> list[int]:
    """Bytes between neighbours along each logical axis of a row-major tensor."""
    if len(shape) == 4:
        return list(memory.layout.distances)
    return [memory.layout.apart(prod(shape[axis + 1 :])) for axis in range(len(shape))]


@dataclass(frozen=True)
class Axis:
    """One logical axis of a tensor: its size and the bytes between neighbours."""

    size: int
    distance: int


def offset_of(f: Function, number: Value, axes: Sequence[Axis]) -> Value:
    """The byte offset of element `number`, counted row-major over `axes`."""
    total = f.index(0)
    *outer, last = joined(axes) or [Axis(1, 0)]
    for axis in reversed(outer):
        last_index, number = number % last.size, number // last.size
        total, last = last_index * last.distance + total, axis
    return number * last.distance + total


def joined(axes: Sequence[Axis]) -> list[Axis]:
    """The same elements with fewer axes: drops axes of size 1, and joins axes that continue each other."""
    result: list[Axis] = []
    for axis in axes:
        if axis.size > 1 and result and result[-1].distance == axis.size * axis.distance:
            result[-1] = Axis(result[-1].size * axis.size, axis.distance)
        elif axis.size > 1:
            result.append(axis)
    return result


def axes_of(memory: Memory, shape: tuple[int, ...]) -> list[Axis]:
    """The logical axes of a row-major tensor."""
    return [Axis(*pair) for pair in zip(shape, distances_along(memory, shape), strict=True)]


@dataclass(frozen=True)
class Address:
    """An address: `distance` bytes after number `offset` of "io" or "code", or after byte `offset` of another space. In
    the space "number" it is `offset` itself, which the function takes for a number."""

    space: str
    offset: int
    distance: int = 0


@dataclass(frozen=True)
class Job:
    """A chunk function, its number of chunks, and the addresses that it takes.

    Chunks of one step may run at the same time. Jobs that differ in their addresses only have one function.

    Attributes:
        worth: the work of all chunks, in chunks that take a few microseconds.
        panels, parts: chunks are (image, panel, part of the pixels) with this many panels and parts; threads share the
            pixels rather than the panels.
    """

    function: str
    chunks: int
    addresses: tuple[Address, ...] = ()
    worth: float = inf
    panels: int = 1
    parts: int = 1


@dataclass
class Step:
    """Independent jobs. The next step starts when all their chunks are done."""

    form: str
    jobs: list[Job]
    origin: tuple[int, ...] = ()

    @property
    def chunks(self) -> int:
        """Number of chunks of all jobs."""
        return sum(job.chunks for job in self.jobs)

    @property
    def is_shared(self) -> bool:
        """Whether threads share the step; a smaller one costs the calling thread less than waiting for others."""
        return self.chunks > 1 and sum(job.worth for job in self.jobs) >= LEAST_WORTH


def place_constants(steps: Sequence[Step], large: Sequence[int], first: int) -> list[Step]:
    """The steps, with the addresses of large constants in "io", a pointer each, from number `first` on. So a program
    finds them where another program of the process has them.

    Args:
        large: first page and number of pages of each large constant, as in `Program.large_constants`.
    """
    starts, pages = large[::2], large[1::2]

    def address_of(address: Address) -> Address:
        number = bisect(starts, address.offset // PAGE) - 1
        if address.space != "weights" or number < 0 or address.offset >= (starts[number] + pages[number]) * PAGE:
            return address
        return Address("io", first + number, address.offset - starts[number] * PAGE + address.distance)

    def moved(job: Job) -> Job:
        return replace(job, addresses=tuple(map(address_of, job.addresses)))

    return [replace(step, jobs=[moved(job) for job in step.jobs]) for step in steps]


@dataclass
class Generator:
    """The module, the weights and the scratch size, to which writers add.

    Code may calculate with weights and compare them with sizes, but must not compute an address from one without a
    check: they may lie in a mapped file, which another process may overwrite. Tables from which addresses are computed
    are constants of the module instead; `tables` are those that are tensors.

    Attributes:
        saves_memory: whether weights are stored as they are even where larger ones would be faster.
        status: offset in the arena of the status word, which is not 0 once a run is refused.
        refusals: what it may say.
        places: (space, offset) of the places that the current task has seen, to their numbers.
        written: what writers have been asked for, to the jobs that they wrote.
    """

    machine: Level
    module: Module
    weights: Constants = field(default_factory=lambda: Constants(ALIGN))
    saves_memory: bool = False
    scratch: int = 0
    steps: list[Step] = field(default_factory=list)
    names: int = 0
    functions: dict[tuple[str, object], str] = field(default_factory=dict)
    tables: dict[bytes, int] = field(default_factory=dict)
    status: int = 0
    refusals: Refusals = field(default_factory=Refusals)
    places: dict[tuple[str, int], int] = field(default_factory=dict)
    written: dict[tuple[object, ...], Job] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        return self.machine.lanes

    @property
    def vector(self) -> str:
        return vector(self.lanes)

    @property
    def vector_bytes(self) -> int:
        return self.lanes * FLOAT_BYTES

    def unique(self, prefix: str) -> str:
        """An unused name for a function or constant."""
        self.names += 1
        return f"{prefix}_{self.names}"

    def once(self, prefix: str, key: object, write: Callable[[str], object]) -> str:
        """The name of the function of this kind and key; on first use, `write(name)` writes it."""
        kind = prefix, key
        if kind not in self.functions:
            self.functions[kind] = self.unique(prefix)
            write(self.functions[kind])
        return self.functions[kind]

    def integers(self, prefix: str, values: Sequence[int], element: str = INDEX) -> str:
        """The pointer operand of a read-only array of integers in the code, once for equal ones of this kind."""
        key = tuple(values)
        return f"@{self.once(prefix, key, lambda name: self.module.constant(name, key, element))}"

    def table(self, content: bytes) -> int:
        """The number of a table beside the code; a vector load of its tail may read beyond the end."""
        if content not in self.tables:
            self.tables[content] = len(self.tables)
            self.module.constant(table_name(self.tables[content]), content + bytes(ALIGN), "i8")
        return self.tables[content]

    def reserve_scratch(self, size: int) -> None:
        """Ensure that every thread gets at least `size` bytes of scratch memory."""
        self.scratch = max(self.scratch, size + ALIGN)

    def numbered(self, memory: Memory) -> Memory:
        """The memory with the number of its place in the current task, below 0, in place of the offset."""
        return replace(memory, offset=self.number_of(memory.space, memory.offset))

    def number_of(self, space: str, offset: int) -> int:
        """The number of a place in the current task, below 0."""
        return ~self.places.setdefault((space, offset), len(self.places))

    def offset(self, memory: Memory | Address) -> int:
        """The offset of a memory or an address that may be `numbered`."""
        return memory.offset if memory.offset >= 0 else list(self.places)[~memory.offset][1]

    def located(self, job: Job) -> Job:
        """The job of the current task with offsets in place of numbers."""
        return replace(job, addresses=tuple(replace(each, offset=self.offset(each)) for each in job.addresses))

    def once_for(self, key: tuple[object, ...], write: Callable[[], Job]) -> Job:
        """The job that `write` writes, or that it wrote for the same key: all that the code depends on, with
        `numbered` memories and without floats, of which 0.0 and -0.0 are equal."""
        found = self.written.get(key)
        if found is None:
            found = self.written[key] = write()
        return found

    def job(
        self,
        form: str,
        chunks: int,
        body: Callable[[Kernel], None],
        *,
        worth: float = inf,
        panels: int = 1,
        parts: int = 1,
    ) -> Job:
        """A chunk function whose body is emitted by `body`; for the rest see `Job`."""
        kernel = Kernel(self, self.module.function("", PARAMETERS))
        body(kernel)
        name = self.once(form, kernel.f.code, kernel.f.finish)
        return Job(name, chunks, tuple(kernel.addresses), worth, panels, parts)


def table_name(number: int) -> str:
    """The module's name of a table."""
    return f"tensor{number}"


@dataclass
class Kernel:
    """A chunk function that is being written."""

    generator: Generator
    f: Function
    addresses: dict[Address, Value] = field(default_factory=dict)

    @property
    def chunk(self) -> Value:
        return self.f.parameters[0]

    @property
    def scratch(self) -> Value:
        return self.f.parameters[1]

    def span(self, total: int, at_once: int) -> tuple[Value, Value | int]:
        """The first of this chunk's iterations out of `total`, and their number: `at_once`, fewer in the last chunk."""
        first = self.chunk * at_once
        if total % at_once == 0:
            return first, at_once
        left = self.f.index(total) - first
        return first, self.f.select(self.f.compare("ult", left, at_once), left, self.f.index(at_once))

    def pointer(self, memory: Memory, start: int = 0) -> Value:
        """The address `start` bytes after element (0, 0, 0, 0)."""
        start += memory.start + memory.layout.base
        if memory.space == "scratch":
            return self.scratch + (memory.offset + start)
        return self._address(Address(memory.space, memory.offset, start))

    def constants(self, offset: int, distance: int = 0) -> Value:
        """The address `distance` bytes after byte `offset` of the weights, or after the place of this number."""
        return self._address(Address("weights", offset, distance))

    def refuse(self, number: int, is_refused: Value, found: Callable[[], Value]) -> None:
        """Marks the run as refused, by refusal `number` for what `found` computes, an i64, where `is_refused`. Such a
        run is rare: nothing else is computed in others."""
        status, own = self._address(Address("arena", self.generator.status)), self._address(Address("number", number))
        function = self.generator.once("refuse", (), self._write_refuse)
        self.f.when(is_refused, lambda: self.f.call(function, status, own, found()))

    def _write_refuse(self, name: str) -> None:
        """`void refuse(status, number, found)`: sets the status word, unless an operator before has."""
        f = self.generator.module.function(name, [("status", POINTER), ("number", POINTER), ("found", INDEX)])
        status, number, found = f.parameters
        nearest = f.minimum(f.maximum(found, -LARGEST_FOUND), LARGEST_FOUND)
        word = (f.cast("ptrtoint", number, INDEX) << FOUND_BITS) | (nearest & ((1 << FOUND_BITS) - 1))
        f.when(f.compare("eq", f.load(INDEX, status), 0), lambda: f.store(word, status))
        f.finish()

    def _address(self, address: Address) -> Value:
        """An argument, so that kernels with other addresses share the function."""
        if address not in self.addresses:
            self.addresses[address] = self.f.add_parameter(POINTER)
        return self.addresses[address]


def split(total: int, largest: int) -> list[tuple[int, int]]:
    """`total` as parts of at most `largest`: [(size, number of parts)]; sizes differ by at most one, larger first."""
    parts = -(-total // largest)
    size, more = divmod(total, parts)
    return [(s, n) for s, n in ((size + 1, more), (size, parts - more)) if n]


def divisor(total: int, largest: int) -> int:
    """The largest divisor of `total` that is at most `largest`, at least 1: the size of equal chunks."""
    return next(size for size in range(max(1, min(total, largest)), 0, -1) if total % size == 0)


def odd_lines(nbytes: int) -> int:
    """At least so many bytes, as an odd number of cache lines: what lies so far apart competes for no sets of the
    first-level cache."""
    return (-(-nbytes // ALIGN) | 1) * ALIGN


def channel_vector(weights: Constants, values: np.ndarray, lanes: int) -> int:
    """Adds per-channel constants, padded to whole vectors; returns their offset in the weights."""
    padded = np.zeros(-(-values.size // lanes) * lanes, values.dtype)
    padded[: values.size] = values.ravel()
    return weights.add(padded)
