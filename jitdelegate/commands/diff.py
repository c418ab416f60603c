"""python -m jitdelegate.diff MODEL: compare the model's outputs with LiteRT's, and find the operator that differs.

Both sides run the same inputs: seeded ones, files (--input), or pictures (--picture). The first lines are those of
LiteRT's inference_diff; a table of every output follows. --bisect names the first operator whose result departs.

  python -m jitdelegate.diff model.tflite
  python -m jitdelegate.diff model.tflite --against=reference --num_runs=3 --bisect
  python -m jitdelegate.diff model.tflite --picture cat.png --picture_range=0,1
  python -m jitdelegate.diff model.tflite --input image=image.npy --input all.npz --nrmse=1e-5
  python -m jitdelegate.diff model.tflite --signature=decode --shape tokens=1,16

Exit status: 0 all outputs are within the tolerances, 1 one departs, 2 wrong arguments, or a side cannot run the model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.progress import progress
from jitdelegate.base.tables import complain, print_line, print_table
from jitdelegate.commands.analysis.amounts import shortened
from jitdelegate.commands.arguments import add_number, add_truth, new_parser, parse_flags, write_file
from jitdelegate.commands.measurement import inputs, sides
from jitdelegate.commands.measurement.bisect import Bisection, Culprit
from jitdelegate.commands.measurement.difference import Difference, Tolerance
from jitdelegate.commands.measurement.entry import Entry, find_entry
from jitdelegate.commands.measurement.inputs import Values
from jitdelegate.commands.measurement.pictures import picture, picture_position
from jitdelegate.commands.measurement.side import Side
from jitdelegate.commands.measurement.sides import OwnSide, open_side
from jitdelegate.commands.measurement.statistics import MICRO, Statistics
from jitdelegate.commands.measurement.timing import seconds
from jitdelegate.commands.run_arguments import (
    add_model,
    add_options,
    add_shape,
    model_of,
    options_of,
    quiet,
    shapes_of,
    tell_passed_over,
    threads_of,
)
from jitdelegate.errors import JitDelegateError, OptionError

SAME, DEPARTS, FAILED = 0, 1, 2
STDOUT = "-"
RUNS = 10
"""Seeded runs, unless something else is asked for."""
LONGEST_NAME = 60
"""Characters of a tensor's name in the text."""
AGAINST = tuple(name for name in sides.NAMES if name != sides.OURS)


@dataclass
class Comparison:
    """What was found.

    Attributes:
        runs: how many.
        times: of the test side and of the reference side.
        differences: one per output.
        departed: the first inputs with which an output departed; None if none did.
    """

    runs: int
    times: tuple[Statistics, Statistics]
    differences: list[Difference]
    departed: Values | None


def main(argv: list[str] | None = None) -> int:
    """Exit status: see above."""
    parser = _parser()
    arguments = parse_flags(parser, sys.argv[1:] if argv is None else argv)
    model = model_of(parser, arguments)
    try:
        options = options_of(arguments, serialization_dir=False, prebuilt=())
    except OptionError as error:
        parser.error(str(error))
    tell_passed_over(arguments)
    try:
        with quiet():
            return _run(model, options, arguments)
    except (JitDelegateError, MemoryError) as error:
        complain(str(error) or "there is no memory for it")
        return FAILED


def _run(model: str, options: DelegateOptions, arguments: argparse.Namespace) -> int:
    entry = find_entry(model, options, arguments.signature)
    entry, given = _given(entry, arguments)
    threads = threads_of(arguments, options)

    def open_ours(entry: Entry) -> OwnSide:
        return OwnSide(sides.OURS, entry, options, threads)

    def open_theirs(entry: Entry) -> Side:
        return open_side(arguments.against, entry, options, threads)

    tolerance = Tolerance(
        nrmse=arguments.nrmse,
        steps=arguments.lsb,
        differing=arguments.differing,
        maximum=arguments.max_abs,
        mean=arguments.mean_abs,
    )
    runs = arguments.num_runs or len(given) or RUNS
    with progress(2) as bar:
        bar.begin(f"opening {sides.OURS}")
        ours = open_ours(entry)
        bar.done()
        bar.begin(f"opening {arguments.against}")
        theirs = open_theirs(entry)
    comparison = _compare(ours, theirs, list(inputs.sets(entry, arguments.seed, runs, given)), tolerance)
    report = ours.report()
    culprit = None
    if arguments.bisect and comparison.departed is not None:
        culprit = _bisect(
            Bisection(entry, open_ours, open_theirs, comparison.departed, tolerance), len(entry.graph.nodes)
        )
    departs = any(difference.departure(tolerance) for difference in comparison.differences)
    facts = _facts(entry, arguments.against, comparison, tolerance, culprit) | {
        "target": report.target,
        "departs": departs,
    }
    if arguments.json:
        _write_json(facts, arguments.json)
    if arguments.json != STDOUT:
        _print(comparison, tolerance, arguments.against, f"{report.target} {report.features}".strip())
        if arguments.bisect:
            _print_culprit(entry, comparison, culprit)
    return DEPARTS if departs else SAME


def _given(entry: Entry, arguments: argparse.Namespace) -> tuple[Entry, list[dict[int, Any]]]:
    """The entry with the shapes that the arguments ask for, and given values: a set for each picture, or for all files.

    Raises:
        TensorError: a file cannot be read, or fits no input.
    """
    entry = entry.with_shapes(shapes_of(arguments, entry))
    files: dict[int, Any] = {}
    for text in arguments.input:
        name, equals, path = text.rpartition("=")
        files |= inputs.from_file(path, entry, entry.position(name) if equals else None)
    position = entry.position(arguments.picture_input) if arguments.picture_input else None
    sets = []
    for path in arguments.picture:
        where = picture_position(entry) if position is None else position
        sets.append(files | {where: picture(path, entry, where, arguments.picture_range)})
    sets = sets or ([files] if files else [])
    shapes = [inputs.shapes_of(values) for values in sets]
    if any(shape != shapes[0] for shape in shapes):
        raise JitDelegateError(
            "the pictures have several sizes, and the model takes any; expected one size, by --shape"
        )
    return entry.with_shapes(shapes[0] if shapes else {}), sets


def _compare(ours: Side, theirs: Side, runs: list[Values], tolerance: Tolerance) -> Comparison:
    differences = [Difference(port) for port in ours.entry.outputs]
    departed = None
    times: tuple[list[float], list[float]] = [], []
    with progress(len(runs), still=True) as bar:
        bar.begin("runs")
        for values in runs:
            outputs = []
            for side, taken in zip((ours, theirs), times, strict=True):
                side.set_inputs(values)
                taken.append(seconds(side.run))
                outputs.append(side.outputs())
            for difference, found, expected in zip(differences, *outputs, strict=True):
                difference.add(found, expected)
            if departed is None and any(difference.departure(tolerance) for difference in differences):
                departed = values
            bar.done()
    return Comparison(len(runs), (Statistics(tuple(times[0])), Statistics(tuple(times[1]))), differences, departed)


def _bisect(bisection: Bisection, operators: int) -> Culprit | None:
    with progress(operators.bit_length()) as bar:

        def show(low: int, high: int) -> None:
            bar.begin(f"operators {low + 1} to {high}")
            bar.done()

        return bisection.search(show)


def _print(comparison: Comparison, tolerance: Tolerance, against: str, target: str) -> None:
    ours, theirs = comparison.times
    print_line(f"Num evaluation runs: {comparison.runs}")
    print_line(f"Reference run latency: avg={MICRO * theirs.average:g}(us), std_dev={MICRO * theirs.deviation:.0f}(us)")
    print_line(f"Test run latency: avg={MICRO * ours.average:g}(us), std_dev={MICRO * ours.deviation:.0f}(us)")
    for position, difference in enumerate(comparison.differences):
        print_line(f"OutputDiff[{position}]: avg_error={difference.mean:g}, std_dev={difference.deviation:g}")
    print_line(f"\njitdelegate ({target}) against {against}")
    headings = ("output", "name", "type", "max", "mean", "NRMSE", "LSB", "differing", "NaN", "verdict")
    print_table(headings, list(_rows(comparison.differences, tolerance)), right=(0, 3, 4, 5, 6, 7, 8))


def _rows(differences: list[Difference], tolerance: Tolerance) -> Iterator[tuple[str, ...]]:
    for position, difference in enumerate(differences):
        reason = difference.departure(tolerance)
        yield (
            str(position),
            shortened(difference.interface.name, LONGEST_NAME),
            f"{difference.interface.dtype}{list(difference.interface.shape)}",
            f"{difference.maximum:.3g}",
            f"{difference.mean:.3g}",
            f"{difference.nrmse:.2e}",
            "" if difference.steps is None else f"{difference.steps:g}",
            f"{difference.differing:,} of {difference.elements:,}",
            f"{difference.nans[0]} / {difference.nans[1]}",
            f"departs: {reason}" if reason else "same" if not difference.differing else "close",
        )


def _print_culprit(entry: Entry, comparison: Comparison, culprit: Culprit | None) -> None:
    if comparison.departed is None:
        print_line("\nbisect: no output departs, so that there is nothing to look for")
    elif culprit is None:
        print_line("\nbisect: nothing departs in a fresh start with the inputs that departed: it takes several runs")
    else:
        where = "operator" if len(culprit.operators) == 1 else "one of operators"
        numbers, tensor = ", ".join(map(str, culprit.operators)), culprit.difference.interface
        name = shortened(tensor.name, LONGEST_NAME)
        print_line(
            f"\nbisect: {where} {numbers} of {len(entry.graph.nodes)}, {culprit.op}, departs first: tensor "
            f"{tensor.index} {name!r} {tensor.dtype}{list(tensor.shape)}, {culprit.reason}"
        )
        if culprit.alone:
            print_line(f"        by itself, on the other side's operands: {culprit.alone}")


def _facts(
    entry: Entry, against: str, comparison: Comparison, tolerance: Tolerance, culprit: Culprit | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "model": entry.source if isinstance(entry.source, str) else "",
        "signature": entry.called,
        "against": against,
        "runs": comparison.runs,
        "test_latency": comparison.times[0].to_dict(),
        "reference_latency": comparison.times[1].to_dict(),
        "outputs": [difference.to_dict(tolerance) for difference in comparison.differences],
        "culprit": None,
    }
    if culprit is not None:
        facts["culprit"] = {
            "operators": list(culprit.operators),
            "op": culprit.op,
            "tensor_index": culprit.difference.interface.index,
            **culprit.difference.to_dict(tolerance),
            "alone": culprit.alone,
        }
    return facts


def _write_json(facts: dict[str, Any], path: str) -> None:
    """
    Raises:
        JitDelegateError: the file cannot be written.
    """
    text = json.dumps(facts, indent=2)
    if path == STDOUT:
        print_line(text)
        return
    try:
        write_file(path, text + "\n")
    except OSError as error:
        raise JitDelegateError(f"could not write {path!r}: {error.strerror}") from error


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("jitdelegate.diff", __doc__)
    add_model(parser, "--graph", "--model_file")
    parser.add_argument(
        "--against",
        choices=AGAINST,
        default=sides.LITERT,
        metavar="SIDE",
        help=f"{', '.join(AGAINST)} (default: litert)",
    )
    parser.add_argument("--signature", "--signature_to_run_for", default="", metavar="KEY", help="which one to run")
    add_truth(parser, "--bisect", "find the first operator whose result departs, if an output does")
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="all facts; without FILE, in place of text"
    )
    group = parser.add_argument_group("inputs")
    group.add_argument("--num_runs", type=_count, metavar="N", help="(default: 10, or one for each set of files)")
    add_number(group, "--seed", 0, "of the first run's values")
    add_shape(group)
    group.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE", help=".npy, .npz with names, or raw bytes"
    )
    group.add_argument("--picture", action="append", default=[], metavar="FILE", help="a run for each")
    group.add_argument("--picture_input", metavar="NAME", help="the input that takes it (default: the first that fits)")
    group.add_argument("--picture_range", type=_range, metavar="LOW,HIGH", help="of float pixels (default: -1,1)")
    group = parser.add_argument_group("tolerances; an output that exceeds one departs")
    usual = Tolerance()
    group.add_argument("--nrmse", type=float, default=usual.nrmse, metavar="X", help="of floats (default: 1e-4)")
    group.add_argument("--lsb", type=float, default=usual.steps, metavar="N", help="of quantized outputs (default: 1)")
    group.add_argument(
        "--differing", type=float, default=usual.differing, metavar="X", help="share of other outputs (default: 0)"
    )
    group.add_argument("--max_abs", type=float, metavar="X", help="largest difference of raw values (default: any)")
    group.add_argument("--mean_abs", type=float, metavar="X", help="mean difference of raw values (default: any)")
    add_options(parser)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not int(text):
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected a whole number from 1")
    return int(text)


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected two numbers, such as 0,1") from None
    return low, high
