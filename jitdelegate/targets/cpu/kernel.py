"""Classes that all writers of kernels share: memory of operands, packed constants, chunk functions, jobs and steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, prod

import numpy as np

from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.machine import Machine
from jitdelegate.targets.cpu.vector_ir import FLOAT_BYTES, INDEX, POINTER, Function, Module, Value, vector

PARAMETERS = (("arena", POINTER), ("weights", POINTER), ("io", POINTER), ("chunk", INDEX), ("scratch", POINTER))
"""Parameters of every chunk function."""
ALIGN = 64
LEAST_WORTH = 2
"""Chunks' worth of work in the smallest step that threads share: some eight microseconds."""


@dataclass(frozen=True)
class Memory:
    """Where a tensor lies: `offset` bytes into "arena", "weights" or "scratch", or at pointer number `offset` of "io".

    The tail of a row-major tensor in "io" must be read with a mask: the caller's memory may end with the tensor.
    """

    space: str
    offset: int
    layout: Layout

    @property
    def exact(self) -> bool:
        return self.space == "io"


def distances_along(memory: Memory, shape: tuple[int, ...]) -> list[int]:
    """Bytes between neighbours along each logical axis of a row-major tensor."""
    if len(shape) == 4:
        return list(memory.layout.distances)
    return [memory.layout.element * prod(shape[axis + 1 :]) for axis in range(len(shape))]


@dataclass
class Weights:
    """The packed constants of a program, each aligned for vector loads; equal bytes are kept once.

    Code may calculate with these constants and compare them with sizes, but must not compute an address from one
    without a check: they may lie in a mapped file, which another process may overwrite. Tables from which addresses are
    computed are constants of the module instead.
    """

    content: bytearray = field(default_factory=bytearray)
    placed: dict[bytes, int] = field(default_factory=dict)

    def add(self, array: np.ndarray) -> int:
        """Add an array; returns the offset of its bytes."""
        data = np.ascontiguousarray(array).tobytes()
        if data not in self.placed:
            self.content += bytes(-len(self.content) % ALIGN)
            self.placed[data] = len(self.content)
            self.content += data
        return self.placed[data]


@dataclass(frozen=True)
class Job:
    """A chunk function and its number of chunks; chunks of one step may run at the same time.

    Attributes:
        worth: the work of all chunks, in chunks that take a few microseconds.
    """

    function: str
    chunks: int
    worth: float = inf


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


@dataclass
class Generator:
    """The module, the weights and the scratch size, to which writers add."""

    machine: Machine
    module: Module
    weights: Weights = field(default_factory=Weights)
    scratch: int = 0
    steps: list[Step] = field(default_factory=list)
    names: int = 0
    functions: dict[tuple[str, object], str] = field(default_factory=dict)

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

    def reserve_scratch(self, size: int) -> None:
        """Ensure that every thread gets at least `size` bytes of scratch memory."""
        self.scratch = max(self.scratch, size + ALIGN)

    def job(self, form: str, chunks: int, body: Callable[[Kernel], None], worth: float = inf) -> Job:
        """A chunk function whose body is emitted by `body`."""
        name = self.unique(form)
        kernel = Kernel(self, self.module.function(name, PARAMETERS))
        body(kernel)
        kernel.f.finish()
        return Job(name, chunks, worth)


class JobWriter:
    """Base class of objects that write the jobs of a form to a generator."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator


@dataclass
class Kernel:
    """A chunk function that is being written."""

    generator: Generator
    f: Function

    @property
    def chunk(self) -> Value:
        return self.f.parameters[3]

    @property
    def scratch(self) -> Value:
        return self.f.parameters[4]

    def pointer(self, memory: Memory) -> Value:
        """The address of element (0, 0, 0, 0)."""
        arena, weights, io, _, scratch = self.f.parameters
        if memory.space == "io":
            return self.f.load(POINTER, io + memory.offset * 8, 8) + memory.layout.base
        start = {"arena": arena, "weights": weights, "scratch": scratch}[memory.space]
        return start + (memory.offset + memory.layout.base)


def split(total: int, largest: int) -> list[tuple[int, int]]:
    """`total` as parts of at most `largest`: [(size, number of parts)]; sizes differ by at most one, larger first."""
    parts = -(-total // largest)
    size, more = divmod(total, parts)
    return [(s, n) for s, n in ((size + 1, more), (size, parts - more)) if n]


def divisor(total: int, largest: int) -> int:
    """The largest divisor of `total` that is at most `largest`, at least 1: the size of equal chunks."""
    return next(size for size in range(max(1, min(total, largest)), 0, -1) if total % size == 0)


def channel_vector(weights: Weights, values: np.ndarray, lanes: int) -> int:
    """Adds per-channel constants, padded to whole vectors; returns their offset in the weights."""
    padded = np.zeros(-(-values.size // lanes) * lanes, np.float32)
    padded[: values.size] = values.ravel()
    return weights.add(padded)
