"""Speed of integer convolutions on the CPU: jitdelegate against LiteRT with XNNPACK, interleaved in one process.

Models are chains of one to three CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED, shapes those of real networks: in a
chain, data comes from another layer as in a network, not from the caller. Both sides run `Interpreter.invoke`. The
speed is LiteRT's time over ours, the median of the rounds' ratios: above 1 we are faster. `share` is that of the
multiply-adds per second that `multiply_speed` measures first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.machine_speed import BYTES, multiply_speed
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench.rounds import mean_speeds, pair_columns, versus_litert
from scripts.bench.suite import Row, Suite, add_only

LAYERS: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "mobilenet_v1 conv_1": (224, 3, 2, (3, 32)),
    "mobilenet_v1 112 1x1": (112, 1, 1, (32, 64)),
    "mobilenet_v1 56 1x1": (56, 1, 1, (128, 128, 128, 128)),
    "mobilenet_v1 28 1x1": (28, 1, 1, (256, 256, 256, 256)),
    "mobilenet_v1 14 1x1": (14, 1, 1, (512, 512, 512, 512)),
    "mobilenet_v1 7 1x1": (7, 1, 1, (1024, 1024, 1024)),
    "mobilenet_v2 112 1x1": (112, 1, 1, (32, 16, 96)),
    "mobilenet_v2 56 1x1": (56, 1, 1, (144, 24, 144, 24)),
    "mobilenet_v2 28 1x1": (28, 1, 1, (192, 32, 192, 32)),
    "mobilenet_v2 14 1x1": (14, 1, 1, (384, 64, 384, 64)),
    "mobilenet_v2 7 1x1": (7, 1, 1, (960, 160, 960, 320)),
    "mobilenet_v2 7 1280": (7, 1, 1, (320, 1280)),
    "resnet 56 3x3": (56, 3, 1, (64, 64, 64)),
    "resnet 28 3x3": (28, 3, 1, (128, 128, 128)),
    "resnet 14 3x3": (14, 3, 1, (256, 256, 256)),
    "resnet 7 3x3": (7, 3, 1, (512, 512, 512)),
    "resnet conv_1 7x7": (224, 7, 2, (3, 64)),
    "classifier": (0, 1, 1, (1024, 1000)),
    "autoencoder": (0, 1, 1, (640, 128, 128, 8, 128)),
}
DEPTHWISE: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "mobilenet_v1 112 depthwise": (112, 3, 1, (32, 32, 32)),
    "mobilenet_v1 56 depthwise": (56, 3, 1, (128, 128, 128)),
    "mobilenet_v1 14 depthwise": (14, 3, 1, (512, 512, 512, 512)),
    "mobilenet_v1 7 depthwise": (7, 3, 1, (1024, 1024, 1024)),
    "mobilenet_v2 112 depthwise stride 2": (112, 3, 2, (96, 96)),
    "mobilenet_v2 56 depthwise": (56, 3, 1, (144, 144, 144)),
    "mobilenet_v2 56 depthwise stride 2": (56, 3, 2, (144, 144)),
    "mobilenet_v2 28 depthwise": (28, 3, 1, (192, 192, 192)),
    "mobilenet_v2 14 depthwise": (14, 3, 1, (576, 576, 576)),
    "mobilenet_v2 7 depthwise": (7, 3, 1, (960, 960, 960)),
    "mobilenet_v3 56 depthwise 5x5 stride 2": (56, 5, 2, (72, 72)),
    "mobilenet_v3 28 depthwise 5x5": (28, 5, 1, (120, 120, 120)),
    "mobilenet_v3 14 depthwise 5x5": (14, 5, 1, (480, 480, 480)),
    "person detection 48 depthwise": (48, 3, 1, (16, 16, 16)),
    "keyword spotting 25 depthwise": (25, 3, 1, (64, 64, 64)),
    "single channels 96 depthwise": (96, 3, 1, (8, 8, 8)),
}
"""Name -> edge of the image (0 for one row of numbers), edge of the windows, stride, channels before and after each."""


def model(
    edge: int, kernel: int, stride: int, channels: tuple[int, ...], dtype: str, *, depthwise: bool
) -> tuple[bytes, int]:
    """A chain of layers with random weights, and its multiply-adds. Results fill their range."""
    random, builder = np.random.default_rng(0), ModelBuilder()
    zero, scale, work = (128 if dtype == "uint8" else 0), 0.05, 0
    shape: tuple[int, ...] = (1, edge, edge, channels[0]) if edge else (1, channels[0])
    value = builder.input(shape, dtype, quant=Quant((scale,), (zero,)))
    for depth, outputs in pairwise(channels):
        filters: tuple[int, ...] = (outputs, kernel, kernel, depth) if edge else (outputs, depth)
        filters = (1, kernel, kernel, outputs) if depthwise else filters
        taps = prod(filters) // outputs
        steps = tuple(float(each) for each in random.uniform(0.001, 0.002, outputs).astype(np.float32))
        quant = Quant(steps, (0,) * outputs, axis=3 if depthwise else 0)
        weights = builder.constant(random.integers(-127, 128, filters, np.int8), quant=quant)
        scales = tuple(float(np.float32(scale) * np.float32(each)) for each in steps)
        numbers = random.integers(-2000, 2000, outputs).astype(np.int64 if dtype == "int16" else np.int32)
        bias = builder.constant(numbers, quant=Quant(scales, (0,) * outputs))
        size = -(-shape[1] // stride) if edge else 0
        shape = (1, size, size, outputs) if edge else (1, outputs)
        work += prod(shape) * taps
        options: dict[str, Any] = {"fused_activation_function": "NONE"}
        if edge:
            options |= {"padding": "SAME", "stride_h": stride, "stride_w": stride}
        if depthwise:
            options["depth_multiplier"] = 1
        scale *= 0.0015 * 40 * taps**0.5
        name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D" if edge else "FULLY_CONNECTED"
        result = Quant((scale,), (zero,))
        value = builder.op(name, [value, weights, bias], shape, options=options, dtype=dtype, quant=result)
    builder.output(value)
    return builder.finish(), work


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per number of threads and chain of layers."""
    most = multiply_speed(BYTES)
    for threads in arguments.threads:
        for name, layers in (LAYERS | DEPTHWISE).items():
            if arguments.only in name:
                content, work = model(*layers, arguments.dtype, depthwise=name in DEPTHWISE)
                row = versus_litert(content, threads, arguments.rounds, "us", target="cpu")
                yield {"layers": name, **row, "share": work / (1e-6 * row["ours_us"]) / most / threads}


def options(parser: argparse.ArgumentParser) -> None:
    """Which layers, of which type."""
    add_only(parser)
    parser.add_argument("--dtype", choices=["int8", "uint8", "int16"], default="int8")


SUITE = Suite(
    columns=(
        *(Column("layers", "<38"), Column("threads", "7"), *pair_columns("us")),
        *(Column("share", "5.0%"), Column("equal", "<9")),
    ),
    rows=rows,
    models=False,
    rounds=40,
    options=options,
    summary=lambda rows: mean_speeds(rows, "threads"),
)
