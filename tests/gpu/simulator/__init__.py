"""Runs PTX on the CPU and watches every access: a test tool for kernels on machines without a GPU."""

from tests.gpu.simulator.errors import SimulationError
from tests.gpu.simulator.memory import Memory
from tests.gpu.simulator.module import Module

__all__ = ["Memory", "Module", "SimulationError"]
