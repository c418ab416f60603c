"""The stub's kernels and memory in the PTX simulator: whole programs run as their PTX says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.cuda_stub.library import Execute, Value
from tests.cuda_stub.memory import DeviceMemory

Sizes = tuple[int, int, int]


class Memory(Protocol):
    """What is used of `ptx_simulator.Memory`."""

    def allocate(self, nbytes: int) -> int: ...
    def write(self, address: int, contents: bytes) -> None: ...
    def read(self, address: int, nbytes: int) -> bytes: ...


class Module(Protocol):
    """What is used of `ptx_simulator.Module`."""

    def launch(
        self, name: str, *, grid: Sizes, block: Sizes, arguments: Sequence[Value], shared_bytes: int, memory: Memory
    ) -> object: ...


class SimulatedMemory:
    """The simulator's memory as the stub's. What is freed is kept, since the simulator never uses an address again."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.allocate = memory.allocate
        self.write = memory.write
        self.read = memory.read

    def free(self, address: int) -> None:
        """Nothing."""


def simulate(modules: Mapping[str, Module]) -> Execute:
    """Runs each kernel of a program, by its name, as the PTX that it was assembled from.

    Args:
        modules: kernel name to its PTX, read.
    """

    def execute(
        image: bytes,
        name: str,
        grid: Sizes,
        block: Sizes,
        shared_bytes: int,
        values: list[Value],
        memory: DeviceMemory,
    ) -> None:
        assert isinstance(memory, SimulatedMemory)
        modules[name].launch(
            name, grid=grid, block=block, arguments=values, shared_bytes=shared_bytes, memory=memory.memory
        )

    return execute
