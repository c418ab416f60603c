"""Runs the NVVM IR of kernels on the CPU, by LLVM, with meanings of PTX that owe nothing to the simulator.

- `coroutine.py`: NVVM IR to a coroutine, which stops where threads wait for each other.
- `instructions.py`: what pieces of PTX mean; `tensor_core.py`: mma and ldmatrix; `libdevice.py`: NVIDIA's functions.
- `schedule.py`: the threads of a grid, one after another between two barriers.
- `module.py`: `Module`, to be used as the simulator's, and with its `Memory`.
"""

from tests.gpu.second_route.module import Module

__all__ = ["Module"]
