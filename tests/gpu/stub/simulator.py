"""The stub's kernels and memory in the PTX simulator: whole programs run as their PTX says."""

from __future__ import annotations

from collections.abc import Mapping

from tests.gpu.simulator import Memory, Module
from tests.gpu.stub.capture import Touch
from tests.gpu.stub.library import Execute, Launched
from tests.gpu.stub.memory import DeviceMemory


class SimulatedMemory:
    """The simulator's memory as the stub's. What is freed is kept, since the simulator never uses an address again."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.allocate = memory.allocate

    @property
    def touched(self) -> list[Touch] | None:
        """See `DeviceMemory`."""
        return self.memory.touched

    @touched.setter
    def touched(self, touched: list[Touch] | None) -> None:
        self.memory.touched = touched

    def write(self, address: int, content: bytes) -> None:
        """Writes bytes, for a copy."""
        if self.touched is not None:
            self.touched.append((address, address + len(content), True))
        self.memory.write(address, content)

    def read(self, address: int, nbytes: int) -> bytes:
        """Reads bytes, for a copy."""
        if self.touched is not None:
            self.touched.append((address, address + nbytes, False))
        return self.memory.read(address, nbytes)

    def free(self, address: int) -> None:
        """Nothing."""


def simulate(modules: Mapping[str, Module]) -> Execute:
    """Runs each kernel of a program, by its name, as the PTX that it was assembled from.

    Args:
        modules: kernel name to its PTX, read.
    """

    def execute(launched: Launched, memory: DeviceMemory) -> None:
        assert isinstance(memory, SimulatedMemory)
        run_simulated(modules[launched.name], launched, memory)

    return execute


def run_simulated(module: Module, launched: Launched, memory: SimulatedMemory) -> None:
    """One launch, which may touch weights only until it waits if it may begin early."""
    for kind, value in zip(launched.kinds, launched.values, strict=True):
        if kind == "w":
            memory.memory.keep(int(value))
        if kind == "s":
            memory.memory.let_race(int(value), 8)
    module.launch(
        launched.name,
        grid=launched.grid,
        block=launched.block,
        arguments=launched.values,
        shared_bytes=launched.shared_bytes,
        memory=memory.memory,
        is_dependent=launched.is_dependent,
    )
