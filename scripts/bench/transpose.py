"""Speed of TRANSPOSE on the CPU: models of one operator, jitdelegate against LiteRT with XNNPACK, interleaved.

Shapes and permutations are those of real networks. Both sides run `Interpreter.invoke`. The speed is LiteRT's time over
ours, the median of the rounds' ratios: above 1 we are faster. GB/s count each byte once read and once written. The
time of a call that moves a few bytes only, measured first, says how much of the smallest times is the call itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from jitdelegate.commands.measurement.column import Column
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench.rounds import mean_speeds, pair_columns, versus_litert
from scripts.bench.suite import Row, Suite, add_only

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


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per number of threads, shape and order."""
    for threads, (shape, order) in product(arguments.threads, (TINY, *SHAPES)):
        if arguments.only in str(shape):
            row = versus_litert(model(shape, order), threads, arguments.rounds, "us", target="cpu")
            rate = 2 * prod(shape) * 4 / (1e-6 * row["ours_us"]) / 1e9
            yield {"shape": shape, "order": order, **row, "gigabytes_per_second": rate}


SUITE = Suite(
    columns=(
        *(Column("shape", "<26"), Column("order", "<19"), Column("threads", "7"), *pair_columns("us")),
        Column("gigabytes_per_second", "6.1f", "GB/s"),
    ),
    rows=rows,
    models=False,
    rounds=40,
    options=add_only,
    summary=lambda rows: mean_speeds((row for row in rows if row["shape"] != TINY[0]), "threads"),
)
