"""Multiply-adds a cycle of inner loops for Arm, computed by llvm-mca, not measured: it simulates a core whose loads all
hit the first cache. The largest loop of each kernel; `most` is what the core's units for multiplications can do.

It needs llvm-mca 16 or later, of LLVM, and no Arm CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from jitdelegate.base.targets import BFLOAT16, EXACT, FLOAT16
from jitdelegate.commands.measurement.column import Column
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench.integer_convolutions import model
from scripts.bench.suite import Row, Suite, add_only
from scripts.inner_loops import Loop, assembly_of, cycles, inner_loops, llvm_mca

CORES = {"cortex-a72": "aarch64", "neoverse-n1": "aarch64-fp16", "neoverse-v2": "aarch64-i8mm"}
"""LLVM's name of a core -> the level of its code."""
CHANNELS = (64, 64)


@dataclass(frozen=True)
class Kernel:
    """A kernel on each core.

    Attributes:
        prefix: beginning of the names of its functions.
        dtype: of its data.
        channels: before and after a convolution.
        rates: multiply-adds a cycle on each of CORES that it had; a test fails where a twentieth of them is lost. 0
            where the core has no such kernel.
        most: those that the cores can do at most.
    """

    prefix: str
    dtype: str
    rates: tuple[float, ...]
    most: tuple[int, ...]
    edge: int = 32
    window: int = 3
    channels: tuple[int, ...] = CHANNELS
    depthwise: bool = False
    precision: str = EXACT

    @property
    def content(self) -> bytes:
        """A model that has it."""
        if self.prefix == "product_":
            return matrices(self.edge)
        shape = self.edge, self.window, 1, self.channels
        if self.dtype == "float32":
            return layers(*shape, depthwise=self.depthwise)
        return model(*shape, self.dtype, depthwise=self.depthwise)[0]


FLOATS, BYTES, WORDS = (4, 8, 16), (8, 32, 128), (4, 4, 8)
KERNELS = {
    "float32 convolution": Kernel("tile_", "float32", (3.99, 7.98, 15.94), FLOATS),
    "float32 convolution, 4 channels": Kernel(
        "tile_", "float32", (3.99, 7.97, 15.89), FLOATS, channels=(64, 4), window=1
    ),
    "float32 convolution, 8 channels": Kernel(
        "tile_", "float32", (3.99, 7.98, 15.92), FLOATS, channels=(64, 8), window=1
    ),
    "float32 convolution, 12 channels": Kernel(
        "tile_", "float32", (4.0, 7.98, 15.94), FLOATS, channels=(64, 12), window=1
    ),
    "float32 matrices": Kernel("product_", "float32", (4.0, 7.99, 15.95), FLOATS, edge=64),
    "float32 depthwise 3x3": Kernel(
        "depthwise_row", "float32", (3.59, 6.54, 13.05), FLOATS, depthwise=True, channels=(64, 64, 64)
    ),
    "float32 depthwise 5x5": Kernel(
        "depthwise_row", "float32", (3.99, 7.97, 15.9), FLOATS, depthwise=True, window=5, channels=(64, 64, 64)
    ),
    "float16 convolution": Kernel("tile_", "float32", (0, 15.96, 31.84), (0, 16, 32), precision=FLOAT16),
    "float16 convolution, 8 channels": Kernel(
        "tile_", "float32", (0, 15.92, 31.66), (0, 16, 32), channels=(64, 8), window=1, precision=FLOAT16
    ),
    "float16 matrices": Kernel("product_", "float32", (0, 15.97, 31.87), (0, 16, 32), edge=64, precision=FLOAT16),
    "bfloat16 matrices": Kernel("product_", "float32", (0, 0, 25.53), (0, 0, 32), edge=64, precision=BFLOAT16),
    "int8 convolution": Kernel("tile_", "int8", (7.99, 31.94, 113.24), BYTES),
    "int8 convolution, 8 channels": Kernel("tile_", "int8", (7.99, 31.93, 101.82), BYTES, channels=(64, 8), window=1),
    "int8 convolution, 12 channels": Kernel("tile_", "int8", (7.99, 31.95, 109.05), BYTES, channels=(64, 12), window=1),
    "uint8 convolution": Kernel("tile_", "uint8", (7.98, 30.06, 113.24), BYTES),
    "int16 convolution": Kernel("tile_", "int16", (4.0, 4.0, 7.99), WORDS),
    "int8 depthwise 3x3": Kernel(
        "depthwise_row", "int8", (3.97, 8.05, 16.49), BYTES, depthwise=True, channels=(64, 64, 64)
    ),
    "int8 depthwise 5x5": Kernel(
        "depthwise_row", "int8", (4.64, 13.84, 28.65), BYTES, depthwise=True, window=5, channels=(64, 64, 64)
    ),
}


def layers(edge: int, window: int, stride: int, channels: tuple[int, ...], *, depthwise: bool) -> bytes:
    """A chain of convolutions of float32 with random weights."""
    random, builder = np.random.default_rng(0), ModelBuilder()
    value = builder.input((1, edge, edge, channels[0]), "float32")
    for depth, outputs in pairwise(channels):
        filters = (1, window, window, outputs) if depthwise else (outputs, window, window, depth)
        operands = [builder.constant(random.normal(size=each).astype(np.float32)) for each in (filters, (outputs,))]
        options: dict[str, Any] = {"padding": "SAME", "stride_h": stride, "stride_w": stride}
        if depthwise:
            options["depth_multiplier"] = 1
        name, edge = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", -(-edge // stride)
        value = builder.op(name, [value, *operands], (1, edge, edge, outputs), options=options, dtype="float32")
    builder.output(value)
    return builder.finish()


def matrices(size: int) -> bytes:
    """A product of computed square matrices of float32."""
    builder, shape = ModelBuilder(), (1, size, size)
    sides = [builder.input(shape, "float32") for _ in range(2)]
    options = {"adj_x": False, "adj_y": False}
    builder.output(builder.op("BATCH_MATMUL", sides, shape, options=options, dtype="float32"))
    return builder.finish()


@cache
def loops(name: str, core: str) -> list[Loop]:
    """The inner loops of a kernel, the largest first."""
    kernel = KERNELS[name]
    return inner_loops(assembly_of(kernel.content, CORES[core], kernel.precision), kernel.prefix)


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per kernel and core."""
    if not llvm_mca():
        raise SystemExit("no llvm-mca of LLVM 16 or later is installed")
    for name, kernel in KERNELS.items():
        for core, most in zip(CORES, kernel.most, strict=True):
            if most and arguments.only in name:
                loop = loops(name, core)[0]
                (taken,) = cycles([loop], core)
                rate = loop.products / taken
                yield {
                    "kernel": name,
                    "core": core,
                    "level": CORES[core],
                    "loop": loop.function.rpartition("_")[0],
                    "products": loop.products,
                    "cycles": taken,
                    "rate": rate,
                    "share": rate / most,
                    "spills": loop.spills,
                }


SUITE = Suite(
    columns=(
        *(Column("kernel", "<34"), Column("core", "<12"), Column("level", "<15"), Column("loop", "<13")),
        *(Column("products", "8"), Column("cycles", "7.1f"), Column("rate", "6.2f", "a cycle")),
        *(Column("share", "5.0%", "of most"), Column("spills", "6")),
    ),
    rows=rows,
    models=False,
    threads=(),
    options=add_only,
)
