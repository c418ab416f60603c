"""RFFT2D with COMPLEX_ABS after it, as spectrograms have them: jitdelegate against LiteRT, and both against numpy.

Prints microseconds of a row of numbers, LiteRT's time over ours (the median of interleaved runs), and each side's
largest distance from numpy's float64 transform over the root mean square of that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from jitdelegate.commands.measurement.column import Column
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench.rounds import our_side, pair_columns, their_side, versus
from scripts.bench.suite import Row, Suite

LENGTHS = (256, 512, 1024, 2048, 4096)
NUMBERS = 1 << 17
"""Numbers of all rows together."""


def spectrum(rows: int, length: int) -> bytes:
    """A model: the magnitudes of the frequencies of `rows` rows."""
    build = ModelBuilder()
    signal = build.input((rows, 1, length))
    frequencies = build.tensor((rows, 1, length // 2 + 1), "complex64")
    build.node("RFFT2D", [signal, build.constant(np.array([1, length], np.int32))], [frequencies])
    magnitudes = build.tensor((rows, 1, length // 2 + 1))
    build.node("COMPLEX_ABS", [frequencies], [magnitudes])
    build.output(magnitudes)
    return build.finish()


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per number of threads and length of a row."""
    for threads, length in product(arguments.threads, arguments.lengths):
        count = NUMBERS // length
        content = spectrum(count, length)
        ours, theirs = our_side(content, threads, target="cpu"), their_side(content, threads)
        row = versus(ours.invoke, theirs.invoke, arguments.rounds, "us")
        row |= {name: row[name] / count for name in ("ours_us", "litert_us")}
        signal = theirs.get_tensor(theirs.get_input_details()[0]["index"])
        exact = np.abs(np.fft.rfft(signal.astype(np.float64)))
        errors = {"our_error": _error(ours, exact), "litert_error": _error(theirs, exact)}
        yield {"length": length, "threads": threads, **row, **errors}


def _error(side: Any, exact: np.ndarray) -> float:
    output = np.asarray(side.get_tensor(side.get_output_details()[0]["index"]))
    return float(np.abs(output - exact).max() / np.sqrt(np.square(exact).mean()))


def options(parser: argparse.ArgumentParser) -> None:
    """Which lengths."""
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)


SUITE = Suite(
    columns=(
        *(Column("length", "6"), Column("threads", "7"), *pair_columns("us")),
        *(Column("our_error", "10.1e", "our error"), Column("litert_error", "10.1e", "LiteRT's error")),
    ),
    rows=rows,
    models=False,
    threads=(1,),
    rounds=30,
    options=options,
)
