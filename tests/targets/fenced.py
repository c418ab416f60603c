"""Runs compiled graphs in memory that lies between protected pages: one byte read or written beyond is a crash."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from math import prod

import numpy as np

from jitdelegate.base.targets import EXACT
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.program.program import Program
from jitdelegate.runtime.cpu import workers
from jitdelegate.runtime.memory import TEAM, load_code
from jitdelegate.targets.cpu.generate import generate
from tests.targets.execute import program_of

Shape = tuple[int, ...]


class Fenced:
    """`size` bytes of 0xFF, NaN as floats, between protected pages: right before one, or right after one.

    Args:
        align: of the address; what lies between the end and the protected page is then less than this.
    """

    def __init__(self, size: int, align: int, *, at_end: bool) -> None:
        page = mmap.PAGESIZE
        inside = -(-max(size, 1) // page) * page
        self._pages = mmap.mmap(-1, inside + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        libc = ctypes.CDLL(None)
        for fence in (start, start + page + inside):
            assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
        self.size = size
        self.address = start + page + ((inside - size) // align * align if at_end else 0)

    def fill(self, content: bytes | None = None) -> None:
        """Write `content`, or NaN everywhere."""
        if content is None:
            ctypes.memset(self.address, 0xFF, self.size)
        else:
            ctypes.memmove(self.address, content, len(content))

    def array(self, shape: Shape, dtype: str = "float32") -> np.ndarray:
        size = np.dtype(dtype).itemsize * prod(shape)
        return np.frombuffer(ctypes.string_at(self.address, size), dtype).reshape(shape)


def _buffer(tensor: Tensor, *, at_end: bool) -> Fenced:
    """Memory for a graph's input or output."""
    nbytes = np.dtype(tensor.dtype).itemsize
    return Fenced(nbytes * tensor.size, nbytes, at_end=at_end)


class Machine:
    """One compiled graph with its workers, as `runtime.cpu.session.Session` runs it, in fenced memory."""

    def __init__(self, graph: Graph, program: Program, threads: int, *, at_end: bool) -> None:
        self.graph, self.threads = graph, threads
        self.code = load_code(program)
        self.arena, self.weights, self.sync = (
            Fenced(size, 64, at_end=at_end) for size in (program.arena_bytes, len(program.weights), program.sync_bytes)
        )
        self.scratches = [Fenced(program.scratch_bytes, 64, at_end=at_end) for _ in range(threads)]
        self.weights.fill(bytes(program.weights))
        self.sync.fill(bytes(program.sync_bytes))
        ports = (*graph.inputs, *graph.outputs)
        self.buffers = [_buffer(graph.tensors[i], at_end=at_end) for i in ports]
        constants = [self.weights.address + page * mmap.PAGESIZE for page in program.large_constants[::2]]
        addresses = [*(buffer.address for buffer in self.buffers), *constants]
        self.io = (ctypes.c_uint64 * len(addresses))(*addresses)
        if program.sync_bytes:  # threads share some step
            ctypes.c_int32.from_address(self.sync.address + TEAM).value = threads
        self.given = [
            (6 * ctypes.c_void_p)(*self._arguments(scratch), thread)
            for thread, scratch in enumerate(self.scratches[1:], 1)
        ]
        self.workers: list[ctypes.c_void_p] = []
        for given in self.given:
            workers.start(self.code.work, ctypes.addressof(given), self.workers)

    def _arguments(self, scratch: Fenced) -> tuple[int, int, int, int, int]:
        io = ctypes.addressof(self.io)
        return self.arena.address, self.weights.address, io, self.sync.address, scratch.address

    def run(self, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs; all memory that the code may write is NaN before."""
        for fence in (self.arena, *self.scratches, *self.buffers):
            fence.fill()
        for buffer, feed in zip(self.buffers, feeds, strict=False):
            buffer.fill(feed.tobytes())
        self.code.run(*self._arguments(self.scratches[0]))
        outputs = self.buffers[len(self.graph.inputs) :]
        for buffer, feed in zip(self.buffers, feeds, strict=False):
            assert buffer.array(feed.shape, str(feed.dtype)).tobytes() == feed.tobytes(), "an input was written"
        results = zip(outputs, (self.graph.tensors[i] for i in self.graph.outputs), strict=True)
        return [buffer.array(tensor.shape, tensor.dtype) for buffer, tensor in results]

    def close(self) -> None:
        self.code.stop(*self._arguments(self.scratches[0]))
        for worker in self.workers:
            workers.join(worker)
        self.code.close()


def run_fenced(
    graph: Graph, feeds: Sequence[np.ndarray], features: str, *, at_end: bool, precision: str = EXACT
) -> list[np.ndarray]:
    """The outputs of a lowered graph, by one thread."""
    program = program_of(graph, generate(graph, features, precision=precision), features)
    machine = Machine(graph, program, 1, at_end=at_end)
    try:
        return machine.run(feeds)
    finally:
        machine.close()
