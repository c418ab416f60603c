"""A small program for a GPU, and its kernels as Python functions: y = x * weights[0] + 2.5, by way of the arena."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from jitdelegate.program.program import CUBIN_ALIGNMENT, Kernel, Launch, Port, Program
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from tests.gpu.stub.cubins import cubin
from tests.gpu.stub.library import Launched, Library, Value
from tests.gpu.stub.memory import DeviceMemory

Kernels = dict[str, Callable[[list[Value], DeviceMemory], None]]

ELEMENTS, SCALE, SHIFT = 6, 3.0, 2.5
DYNAMIC_SHARED_BYTES = 60000
BETWEEN_OFFSET, ARENA_BYTES, X_OFFSET, Y_OFFSET = 256, 512, 512, 768
X = np.arange(ELEMENTS, dtype=np.float32).reshape(2, 3)
EXPECTED = (X * np.float32(SCALE) + np.float32(SHIFT)).reshape(3, 2)
"""An input of the program, and its output."""


def floats(memory: DeviceMemory, address: int, count: int) -> np.ndarray:
    """The values at a device address."""
    return np.frombuffer(memory.read(address, 4 * count), np.float32)


def scale(values: list[Value], memory: DeviceMemory) -> None:
    """(y, x, weights, count): y = x * weights[0]"""
    y, x, weights, count = map(int, values)
    memory.write(y, (floats(memory, x, count) * floats(memory, weights, 1)).tobytes())


def shift(values: list[Value], memory: DeviceMemory) -> None:
    """(y, x, amount, negative count): y = x + amount"""
    y, x, amount, count = values
    memory.write(int(y), (floats(memory, int(x), -int(count)) + np.float32(amount)).tobytes())


KERNELS: Kernels = {"scale": scale, "shift": shift}
KINDS = {"scale": "apwi", "shift": "pafi"}


def library(kernels: Kernels = KERNELS, **arguments: Any) -> Library:
    """A stub whose kernels are Python functions."""

    def execute(launched: Launched, memory: DeviceMemory) -> None:
        kernels[launched.name](launched.values, memory)

    return Library(execute, KINDS, **arguments)


def packed(*images: bytes) -> tuple[bytes, list[int]]:
    """Images one after another as a program holds them, and where each of them is."""
    code, offsets = b"", []
    for image in images:
        offsets.append(len(code))
        code += image.ljust(-(-len(image) // CUBIN_ALIGNMENT) * CUBIN_ALIGNMENT, b"\0")
    return code, offsets


def scale_and_shift(*, weights: bytes = struct.pack("<f", SCALE) + bytes(1000), **changes: Any) -> Program:
    """The program as the compiler makes it, before it is written."""
    code, (first, second) = packed(cubin("scale"), cubin("other", "shift"))
    amount = struct.unpack("<I", struct.pack("<f", SHIFT))[0]
    own = (BETWEEN_OFFSET, X_OFFSET, 0, ELEMENTS), (Y_OFFSET, BETWEEN_OFFSET, amount, -ELEMENTS)
    scaling = Launch(kernel=0, grid=(1, 1, 1), block=(32, 1, 1), kinds=KINDS["scale"], values=own[0])
    room: dict[str, Any] = {"block": (64, 1, 1), "shared_bytes": DYNAMIC_SHARED_BYTES}
    shifting = Launch(kernel=1, grid=(2, 1, 1), kinds=KINDS["shift"], values=own[1], **room)
    values: dict[str, Any] = {
        "key": (("model", "0" * 32), ("target", "cuda")),
        "target": "cuda",
        "features": "sm_90",
        "loader": "cubin",
        "inputs": (Port(name="x", index=0, shape=(2, 3), dtype="float32", nbytes=4 * ELEMENTS),),
        "outputs": (Port(name="y", index=1, shape=(3, 2), dtype="float32", nbytes=4 * ELEMENTS),),
        "kernels": (
            Kernel(name="scale", form="Map", chunks=1, threads=32),
            Kernel(name="shift", form="Map", chunks=1, threads=64),
        ),
        "arena_bytes": ARENA_BYTES,
        "entries": (("scale", first), ("shift", second)),
        "launches": (scaling, shifting),
        "input_offsets": (X_OFFSET,),
        "output_offsets": (Y_OFFSET,),
        "code": code,
        "weights": weights,
    }
    return Program(**{**values, **changes})


def scaled_state(**changes: Any) -> Program:
    """The program with a state in place of its input: the scaled one is what the next run sees."""
    scaling, shifting = scale_and_shift().launches
    values = (BETWEEN_OFFSET, 0, *scaling.values[2:])
    scaling = Launch(kernel=0, grid=scaling.grid, block=scaling.block, kinds="aawi", values=values)
    offsets: dict[str, Any] = {"input_offsets": (0,), "output_offsets": (Y_OFFSET, BETWEEN_OFFSET)}
    return scale_and_shift(inputs=(), launches=(scaling, shifting), **{**offsets, **changes})


def opened(program: Program) -> Program:
    """The program as the runtime sees it: written and read."""
    return read(write(program))
