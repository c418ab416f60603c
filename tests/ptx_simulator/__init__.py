"""Runs PTX on the CPU and watches every access: a test tool for kernels on machines without a GPU."""

from tests.ptx_simulator.errors import SimulationError
from tests.ptx_simulator.memory import Memory
from tests.ptx_simulator.module import Module

__all__ = ["Memory", "Module", "SimulationError"]
