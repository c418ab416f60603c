"""python -m jitdelegate.benchmark --suite FOLDER: time all models of a folder beside LiteRT, OpenVINO, ONNX Runtime.

Each model runs in a process of its own, by each number of threads, with the same random inputs on all sides, which take
turns. ONNX Runtime takes the .onnx file of the same name beside a model. A line for each side has the median
milliseconds of the rounds, and its time over ours (above 1: ours is faster), both with their quartiles, and how far its
results are from LiteRT's: the NRMSE, or how many integers differ. Our line has the ratio to the fastest other side, and
the share of what the machine could do at most: of the multiply-adds of a loop of FMA, or of the instructions for bytes
or bfloat16, and of the speed of its memory, as a whole and for the kernels that take most time.

Geometric means and the least ratios follow. Rows are marked * where the machine was disturbed: the same loop took
longer than in other rows, other processes ran, or rounds differ much.

  python -m jitdelegate.benchmark --suite models --threads 1 4 --json suite.json --svg suite.svg

Exit status: 0 measured, even if sides failed, which have a reason in place of times; 1 a file cannot be written; 2
wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import jitdelegate
from jitdelegate.base.exit_status import FAILED, GOOD, WRONG_ARGUMENTS
from jitdelegate.base.progress import progress
from jitdelegate.base.tables import complain, print_line, print_table
from jitdelegate.commands.arguments import add_number, add_options_file, new_parser, parse_flags, threads, write_file
from jitdelegate.commands.measurement.column import head, line
from jitdelegate.commands.measurement.machine_speed import KINDS, multiply_speed, processor, read_speed
from jitdelegate.commands.measurement.other_runtimes import ONNX, OPENVINO, PACKAGES, absence, is_installed, onnx_file
from jitdelegate.commands.measurement.sides import LITERT, OURS
from jitdelegate.commands.measurement.svg import SCHEMES
from jitdelegate.commands.suite.disturbance import mark
from jitdelegate.commands.suite.figures import Row, row_of
from jitdelegate.commands.suite.job import PROFILE, Job
from jitdelegate.commands.suite.jobs import measure_in_process
from jitdelegate.commands.suite.plot import plot
from jitdelegate.commands.suite.report import COLUMNS, HEADINGS, lines, means, remarks

THREADS = (1, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: see above."""
    parser = _parser()
    arguments = parse_flags(parser, sys.argv[1:] if argv is None else argv)
    models = sorted(Path(arguments.suite).rglob("*.tflite"))
    if not models:
        complain(f"there is nothing to measure, no .tflite file in {arguments.suite!r}")
        return WRONG_ARGUMENTS
    others, rows = [LITERT, *_installed(models)], list[Row]()
    try:
        _measure(arguments, models, others, rows)
    finally:  # what was measured before Ctrl-C is not lost
        status = _conclude(arguments, rows)
    return status


def _measure(arguments: argparse.Namespace, models: Sequence[Path], others: Sequence[str], rows: list[Row]) -> None:
    """Add and print the rows of all models."""
    print_line(head(COLUMNS))
    jobs = list(product(models, dict.fromkeys(arguments.threads)))
    with progress(len(jobs), still=True) as bar:
        for model, count in jobs:
            name = str(model.relative_to(arguments.suite))
            bar.begin(f"{name}, threads {count}")
            job = _job(arguments, model, count, others)
            rows.append(row_of(name, job, measure_in_process(job)))
            mark(rows)
            for each in lines(rows[-1]):
                print_line(line(COLUMNS, each))
            bar.done()


def _conclude(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Print means and remarks, and write the files."""
    print_line("\ntheir time over ours")
    print_table(HEADINGS, means(rows), right=(0, 3, 4, 5, 6))
    for remark in remarks(rows):
        print_line(remark)
    try:
        _write(arguments, rows)
    except OSError as error:
        complain(f"could not write {error.filename!r}: {error.strerror}")
        return FAILED
    return GOOD


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("jitdelegate.benchmark", __doc__)
    parser.add_argument("--suite", required=True, metavar="FOLDER", help="of .tflite files, nested ones too")
    parser.add_argument("--threads", nargs="+", type=threads, default=THREADS, metavar="N", help="(default: 1 2)")
    add_number(parser, "--num_runs", 30, "least rounds")
    add_number(parser, "--min_secs", 1.0, "least seconds of all rounds")
    add_number(parser, "--max_secs", 60.0, "no round begins after them")
    add_options_file(parser, "options of ours, any of load, from JSON or TOML")
    parser.add_argument("--json", metavar="FILE", help="all figures, and the machine")
    parser.add_argument("--svg", metavar="FILE", help="a picture in light and dark: FILE-light.svg, FILE-dark.svg")
    return parser


def _installed(models: Sequence[Path]) -> Iterator[str]:
    """The other runtimes but LiteRT; a line says which are missing, and whether ONNX Runtime lacks models."""
    for name in (OPENVINO, ONNX):
        if not is_installed(name):
            print_line(absence(name))
            continue
        yield name
    lacking = sum(onnx_file(str(model)) is None for model in models)
    if lacking and is_installed(ONNX):
        print_line(f"{PACKAGES[ONNX]} has no times for {lacking} of {len(models)} models, which have no .onnx file")


def _job(arguments: argparse.Namespace, model: Path, count: int, others: Sequence[str]) -> Job:
    possible = [name for name in others if name != ONNX or onnx_file(str(model))]
    return Job(
        model=str(model),
        threads=count,
        sides=(OURS, *possible, PROFILE),
        options=arguments.options,
        runs=max(arguments.num_runs, 1),
        seconds=arguments.min_secs,
        most_seconds=arguments.max_secs,
    )


def _write(arguments: argparse.Namespace, rows: Sequence[Row]) -> None:
    machine = f"{processor()}, {os.cpu_count()} CPUs"
    if arguments.json:
        facts: dict[str, Any] = {
            "machine": machine,
            "multiply_adds_per_second": {kind: multiply_speed(kind) for kind in KINDS},
            "bytes_per_second": {count: read_speed(count) for count in arguments.threads},
            "versions": _versions(),
            "rows": rows,
        }
        write_file(arguments.json, json.dumps(facts, indent=2) + "\n")
    for scheme in SCHEMES if arguments.svg else ():
        write_file(f"{arguments.svg.removesuffix('.svg')}-{scheme}.svg", plot(rows, machine, scheme))


def _versions() -> dict[str, Any]:
    found = {"python": platform.python_version(), OURS: jitdelegate.__version__}
    for package in ("ai-edge-litert", *PACKAGES):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
