"""Speed of integer convolutions on the CPU: jitdelegate against LiteRT with XNNPACK, interleaved in one process.

    python -m scripts.bench_integer_convolutions [--threads 1 2] [--rounds 40] [--only TEXT] [--dtype int8] [--json]

Models are chains of one to three CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED, shapes those of real networks: in a
chain, data comes from another layer as in a network, not from the caller. Both sides run `Interpreter.invoke`. The
speed is LiteRT's time over ours, the median of the rounds' ratios: above 1 we are faster. `peak` is the share of the
multiply-adds per second that a loop of the level's own instruction for products of bytes reaches on one thread, which
is measured first.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from jitdelegate.base.targets import LEVELS
from jitdelegate.ir.graph import Quant
from jitdelegate.runtime.cpu.features import level
from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.machine import compile_object, triple
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Module
from jitdelegate.targets.cpu.entry.link import link
from jitdelegate.targets.cpu.multiply.products import ByteProducts, PairProducts
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench_latency import compare_content, geometric_mean

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
SUMS = 24


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


def peak() -> float:
    """Multiply-adds of bytes per second and thread."""
    machine = LEVELS[level()]
    products = (ByteProducts if machine.plus_bytes else PairProducts)(machine, is_signed=False)
    module = Module(machine)
    f = module.function("loop", [("data", POINTER), ("count", INDEX)], exported=True)
    data, count = f.parameters
    one = products.data(f, data)
    starts = [f.load(products.sum_type, data + 64 * k) for k in range(SUMS)]
    ends = f.loop(count, lambda i, *sums: [products.add(f, one, one, each) for each in sums], *starts)
    for k, end in enumerate(ends):
        f.store(end, data + 64 * k)
    f.finish()
    blob, entries = link(compile_object(module.text(triple(machine.name)), machine.name))
    code, memory, times = 1 << 16, Memory(64 * SUMS), 20
    space = Memory(len(blob))
    space.write(blob)
    space.make_executable()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(space.address + entries["loop"])
    found = min(_thread_seconds(lambda: run(memory.address, code)) for _ in range(times))
    return code * SUMS * machine.lanes * products.channels / found


def _thread_seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def compare(name: str, dtype: str, threads: int, rounds: int, most: float) -> dict[str, Any]:
    """As `compare_content`, and the share of the peak, `most` multiply-adds per second and thread."""
    content, work = model(*(LAYERS | DEPTHWISE)[name], dtype, depthwise=name in DEPTHWISE)
    found = compare_content(content, threads, rounds)
    return {"layers": name, **found, "peak": work / (1e-6 * found["ours_us"]) / most / threads}


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="", help="a part of the layers' name")
    parser.add_argument("--dtype", choices=["int8", "uint8", "int16"], default="int8")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    most, results = peak(), []
    for threads in arguments.threads:
        for name in (name for name in (*LAYERS, *DEPTHWISE) if arguments.only in name):
            results.append(compare(name, arguments.dtype, threads, arguments.rounds, most))
            if not arguments.json:
                print(
                    "{layers:38} {threads} threads {ours_us:9.1f} us  LiteRT {litert_us:9.1f} us  speed {speed:.2f}  "
                    "peak {peak:4.0%}  {}".format("equal" if results[-1]["equal"] else "DIFFERENT", **results[-1]),
                    flush=True,
                )
        counted = [result["speed"] for result in results if result["threads"] == threads]
        if counted and not arguments.json:
            print(f"geometric mean of {len(counted)} models, {threads} threads: {geometric_mean(counted):.3f}")
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
