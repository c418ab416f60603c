"""Speed of TRANSPOSE on the CPU: models of one operator, jitdelegate against LiteRT with XNNPACK, interleaved.

    python -m scripts.bench_transpose [--threads 1 2] [--rounds 40] [--only TEXT] [--json]

Shapes and permutations are those of real networks. Both sides run `Interpreter.invoke`. The speed is LiteRT's time over
ours, the median of the rounds' ratios: above 1 we are faster. `GB/s` counts each byte once read and once written. The
time of a call that moves a few bytes only, measured first, says how much of the smallest times is the call itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from math import prod
from typing import Any

import numpy as np

from jitdelegate.tflite.write import ModelBuilder
from scripts.bench_latency import compare_content, geometric_mean

Shape = tuple[int, ...]
TINY: tuple[Shape, Shape] = ((2, 2), (1, 0))
NAMED: tuple[tuple[Shape, Shape], ...] = (
    ((1, 3136, 512), (0, 2, 1)),
    ((1, 512, 3136), (0, 2, 1)),
    ((1, 56, 56, 512), (0, 3, 1, 2)),
    ((1, 512, 56, 56), (0, 2, 3, 1)),
)
"""Mix-FFN of a pyramid transformer, and the way back."""
IMAGES: tuple[tuple[Shape, Shape], ...] = (
    ((1, 3, 224, 224), (0, 2, 3, 1)),
    ((1, 224, 224, 3), (0, 3, 1, 2)),
    ((1, 4, 128, 128), (0, 2, 3, 1)),
    ((1, 21, 65, 65), (0, 2, 3, 1)),
    ((1, 112, 112, 24), (0, 3, 1, 2)),
    ((1, 28, 28, 192), (0, 3, 1, 2)),
    ((1, 192, 28, 28), (0, 2, 3, 1)),
    ((1, 14, 14, 1024), (0, 3, 1, 2)),
    ((1, 2048, 7, 7), (0, 2, 3, 1)),
    ((8, 64, 32, 32), (0, 2, 3, 1)),
)
"""NCHW to NHWC and back."""
ATTENTION: tuple[tuple[Shape, Shape], ...] = (
    ((1, 196, 12, 64), (0, 2, 1, 3)),
    ((1, 12, 196, 64), (0, 2, 1, 3)),
    ((1, 8, 197, 64), (0, 1, 3, 2)),
    ((64, 49, 3, 3, 32), (2, 0, 3, 1, 4)),
    ((1, 49, 3, 3, 32), (2, 0, 3, 1, 4)),
    ((1, 384, 12, 64), (0, 2, 3, 1)),
    ((1, 1500, 384), (0, 2, 1)),
    ((1, 4, 49, 49), (0, 1, 3, 2)),
)
"""Heads of attention split off and joined, and keys turned."""
BLOCKS: tuple[tuple[Shape, Shape], ...] = (
    ((1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
    ((1, 64, 2, 2, 64, 64), (0, 1, 4, 2, 5, 3)),
    ((1, 32, 32, 16, 2, 2), (0, 1, 4, 2, 5, 3)),
    ((1, 16, 4, 4, 24, 24), (0, 1, 4, 2, 5, 3)),
    ((1, 3, 14, 16, 14, 16), (0, 2, 4, 3, 5, 1)),
    ((1, 28, 28, 2, 58), (0, 1, 2, 4, 3)),
    ((1, 2, 58, 28, 28), (0, 2, 1, 3, 4)),
    ((1, 2, 116, 14, 14), (0, 2, 1, 3, 4)),
)
"""Windows, pixel shuffles, patches and channel shuffles."""
ODD: tuple[tuple[Shape, Shape], ...] = (
    ((257, 129), (1, 0)),
    ((1023, 1025), (1, 0)),
    ((1024, 1024), (1, 0)),
    ((4096, 256), (1, 0)),
    ((5, 3), (1, 0)),
    ((1, 10, 16), (0, 2, 1)),
    ((7, 11, 13, 17), (3, 2, 1, 0)),
)
SHAPES = (*NAMED, *IMAGES, *ATTENTION, *BLOCKS, *ODD)


def model(shape: Shape, order: Shape, dtype: str = "float32") -> bytes:
    """A model of one TRANSPOSE."""
    builder = ModelBuilder()
    data, permutation = builder.input(shape, dtype), builder.constant(np.array(order, np.int32))
    out = builder.op("TRANSPOSE", [data, permutation], [shape[axis] for axis in order], dtype=dtype)
    builder.output(out)
    return builder.finish()


def compare(shape: Shape, order: Shape, threads: int, rounds: int) -> dict[str, Any]:
    """As `compare_content`, and the rate."""
    found = compare_content(model(shape, order), threads, rounds)
    rate = 2 * prod(shape) * 4 / (1e-6 * found["ours_us"])
    return {"shape": shape, "order": order, **found, "gigabytes_per_second": rate / 1e9}


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="", help="a part of the shape's text, as '56, 56'")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    chosen = [(shape, order) for shape, order in (TINY, *SHAPES) if arguments.only in str(shape)]
    results = []
    for threads in arguments.threads:
        for shape, order in chosen:
            results.append(compare(shape, order, threads, arguments.rounds))
            if not arguments.json:
                print(
                    "{shape!s:26} {order!s:19} {threads} threads {ours_us:9.1f} us {gigabytes_per_second:6.1f} GB/s  "
                    "LiteRT {litert_us:9.1f} us  speed {speed:.2f}".format(**results[-1]),
                    flush=True,
                )
        counted = [result["speed"] for result in results if result["threads"] == threads and result["shape"] != TINY[0]]
        if counted and not arguments.json:
            print(f"geometric mean of {len(counted)} shapes, {threads} threads: {geometric_mean(counted):.3f}")
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
