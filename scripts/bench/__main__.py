"""Run one suite of measurements.

    python -m scripts.bench SUITE [MODEL_OR_FOLDER ...] [--threads 1 2] [--rounds N] [--json]

Prints each row when it is measured; with --json, all rows at the end, as objects. `SUITE --help` describes a suite and
its options.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from jitdelegate.errors import DelegateWarning
from scripts.bench.suite import Suite
from scripts.models import models_in

SUITES = {
    "startup": "opening a model, and whole processes, cold, warm, and LiteRT's",
    "latency": "one inference",
    "quantized": "quantized models, with their share of the CPU's peak, sizes and compile times",
    "precision": "bfloat16 on the CPU against float32, with its error",
    "threads": "two threads against one, beside what the second CPU is worth",
    "schedule": "gains from many threads, simulated",
    "compile": "compile time, peak memory, sizes of programs",
    "decoders": "decoders with caches: start, first token, prefill, decode, memory",
    "asynchronous": "throughput of run_async",
    "call": "the cost of a call on a tiny model",
    "serving": "a server on loopback: throughput, p50 and p99 against LiteRT in the same server",
    "host": "LiteRT's interpreter with and without the delegate",
    "partitions": "the cost model's choice of partitions against others",
    "shapes": "memory, time and entries of further input shapes",
    "transpose": "TRANSPOSE of shapes of real networks",
    "fourier": "Fourier transforms, and their accuracy",
    "integer_convolutions": "integer convolutions, with their share of the CPU's peak",
    "integer_operators": "operators that move, map, pool or resample quantized values",
    "cycles": "multiply-adds a cycle of inner loops for Arm, computed by llvm-mca",
}
"""Module of a suite -> what it measures."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 measured, 1 what the suite demands does not hold, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench",
        description=__doc__,
        epilog="\n".join(f"  {name:<22}{what}" for name, what in SUITES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", choices=SUITES, metavar="SUITE")
    given = list(sys.argv[1:] if argv is None else argv)
    module = import_module(f"scripts.bench.{parser.parse_args(given[:1]).suite}")
    return run(module.SUITE, given[0], module.__doc__, given[1:])


def run(suite: Suite, name: str, description: str | None, argv: Sequence[str]) -> int:
    """Measure one suite and print its rows."""
    parser = _parser(suite, name, description)
    arguments = parser.parse_args(argv)
    if arguments.child is not None:
        assert suite.child is not None
        print(json.dumps(suite.child(arguments)))
        return 0
    warnings.simplefilter("ignore", DelegateWarning)
    rows, show = [], (lambda line: None) if arguments.json else (lambda line: print(line, flush=True))
    with tempfile.TemporaryDirectory(prefix="jitdelegate-bench-") as folder:
        arguments.folder = Path(folder)
        arguments.model = _files(parser, arguments.model)
        if suite.make and not arguments.model:
            arguments.model = [arguments.folder / f"{suite.make.__name__}.tflite"]
            arguments.model[0].write_bytes(suite.make())
        show(suite.head())
        for row in suite.rows(arguments):
            rows.append(row)
            show(suite.line(row))
    if arguments.json:
        print(json.dumps(rows, indent=2))
    for line in suite.summary(rows) if rows else ():
        show(line)
    return 0 if suite.holds(rows) else 1


def _files(parser: argparse.ArgumentParser, paths: Sequence[Path]) -> list[Path]:
    found = {path: models_in(path) for path in paths}
    if empty := [str(path) for path, files in found.items() if not files]:
        parser.error(f"there is nothing to measure, no .tflite file: {', '.join(empty)}")
    return [file for files in found.values() for file in files]


def _parser(suite: Suite, name: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m scripts.bench {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(model=[], child=None)
    if suite.models:
        default = f"a file or a folder of them; without any: {suite.make.__name__}, made here" if suite.make else ""
        number = "*" if suite.make or suite.may_name_none else "+"
        parser.add_argument("model", nargs=number, type=Path, help=default or "a file or a folder")
    if suite.threads:
        parser.add_argument("--threads", nargs="+", type=int, default=suite.threads)
    parser.add_argument("--rounds", type=int, default=suite.rounds)
    parser.add_argument("--json", action="store_true")
    if suite.child:
        parser.add_argument("--child", help=argparse.SUPPRESS)
    suite.options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
