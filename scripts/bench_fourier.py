"""RFFT2D with COMPLEX_ABS after it, as spectrograms have them: jitdelegate against LiteRT, and both against numpy.

    python scripts/bench_fourier.py [LENGTH ...] [--rounds 30]

Prints microseconds of a row on one thread, LiteRT's time over ours (medians of interleaved runs), and each side's
largest distance from numpy's float64 transform over the root mean square of that.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import ai_edge_litert.interpreter as litert
import numpy as np

import jitdelegate
from jitdelegate.commands.measurement.timing import ratio
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench_latency import interleaved, ready

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


def compare(path: Path, length: int, rounds: int) -> str:
    """One line of the table."""
    rows = NUMBERS // length
    path.write_bytes(spectrum(rows, length))
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, target="cpu")
    ours = ready(jitdelegate.Interpreter(str(path), num_threads=1, experimental_delegates=[delegate]))
    theirs = ready(litert.Interpreter(str(path), num_threads=1))
    times = interleaved({"ours": ours.invoke, "LiteRT": theirs.invoke}, rounds)
    speed = ratio(times["LiteRT"], times["ours"])
    signal = theirs.get_tensor(theirs.get_input_details()[0]["index"])
    exact = np.abs(np.fft.rfft(signal.astype(np.float64)))
    errors = [
        np.abs(np.asarray(side.get_tensor(side.get_output_details()[0]["index"])) - exact).max()
        / np.sqrt(np.square(exact).mean())
        for side in (ours, theirs)
    ]
    own, other = (statistics.median(times[name]) / rows * 1e6 for name in ("ours", "LiteRT"))
    return f"{length:6} {own:8.2f} {other:8.2f} {speed:7.2f} {errors[0]:10.1e} {errors[1]:10.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", type=int, nargs="*", default=LENGTHS, metavar="LENGTH")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    print("length  ours us LiteRT us   ratio ours' error LiteRT's error")
    with tempfile.TemporaryDirectory() as folder:
        for length in arguments.lengths:
            print(compare(Path(folder) / f"{length}.tflite", length, arguments.rounds))


if __name__ == "__main__":
    main()
