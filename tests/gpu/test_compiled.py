"""Kernels compiled by Numba for every kind of GPU run in the simulator as they are emitted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gpu.simulator import Memory, Module

CAPABILITIES = [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)]


@pytest.fixture(scope="module")
def cuda() -> Any:
    """numba.cuda with a working NVVM."""
    module = pytest.importorskip("numba.cuda", reason="numba.cuda is not installed")
    nvvm = pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba.cuda has no NVVM binding")
    try:
        nvvm.NVVM()
    except Exception as error:  # noqa: BLE001 - whatever keeps NVVM from loading is the reason to skip
        pytest.skip(f"NVVM does not load: {error}")
    return module


def compiled(cuda: Any, function: Callable[..., None], signature: str, capability: tuple[int, int]) -> Module:
    """The function as a PTX module with one kernel, arguments by Numba's rules."""
    text, _ = cuda.compile_ptx(function, signature, cc=capability, abi="numba", device=False)
    return Module(text)


def array_arguments(memory: Memory, array: np.ndarray[Any, Any]) -> tuple[int, list[int]]:
    """(address, the seven values Numba passes for a one-dimensional array)."""
    address = memory.place(array)
    return address, [0, 0, array.size, array.itemsize, address, array.size, array.itemsize]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_compiled_elementwise_kernel_matches_numpy(cuda, capability):
    def kernel(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = x[i] / (np.float32(1) + math.exp(-x[i])) + np.float32(i % 7)

    module = compiled(cuda, kernel, "void(float32[::1], float32[::1])", capability)
    x = np.linspace(-20, 20, 300).astype(np.float32)
    memory = Memory()
    _, first = array_arguments(memory, x)
    target, second = array_arguments(memory, np.zeros_like(x))
    (name,) = module.kernels
    module.launch(name, (5,), (64,), [*first, *second], memory=memory)
    expected = x / (1 + np.exp(-x.astype(np.float64))) + np.arange(300) % 7
    np.testing.assert_allclose(memory.array(target, np.float32, 300), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("schedule", ["lockstep", "random"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_compiled_reduction_through_shared_memory_matches_numpy(cuda, capability, schedule):
    def kernel(x, y):
        partial = cuda.shared.array(128, np.float32)
        i = cuda.threadIdx.x
        total = np.float32(0)
        for k in range(i, x.size, 128):
            total += x[k] * x[k]
        partial[i] = total
        cuda.syncthreads()
        half = 64
        while half > 0:
            if i < half:
                partial[i] += partial[i + half]
            cuda.syncthreads()
            half //= 2
        if i == 0:
            y[cuda.blockIdx.x] = math.sqrt(partial[0])

    module = compiled(cuda, kernel, "void(float32[::1], float32[::1])", capability)
    x = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
    memory = Memory()
    _, first = array_arguments(memory, x)
    target, second = array_arguments(memory, np.zeros(2, np.float32))
    (name,) = module.kernels
    module.launch(name, (2,), (128,), [*first, *second], memory=memory, schedule=schedule)
    np.testing.assert_allclose(memory.array(target, np.float32, 2), np.linalg.norm(x.astype(np.float64)), rtol=1e-5)
