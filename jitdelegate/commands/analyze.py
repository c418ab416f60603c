"""python -m jitdelegate.analyze MODEL [MODEL ...]: where each operator would run, why, and what to change.

The verdict is that of the runtime; no cache is read or written. --target cuda:sm_90 analyzes for a GPU that this
machine may lack.

To say what a program costs, the model is compiled, but not stored. Times of runs are estimates, on one thread.

  python -m jitdelegate.analyze model.tflite --open
  python -m jitdelegate.analyze float.tflite quantized.tflite --compare

--json prints these names, each documented in jitdelegate/commands/analysis/facts.py; for several models a list:

schema, model, headline, error, bytes, fingerprint, description, asked, notes
subgraphs: index, name, headline, entry, signatures, target, features, loader, how, shape_inputs, inputs, outputs
    totals: operators, delegated, folded, litert, multiply_adds, unknown_work, share_of_work_delegated,
        share_of_work_in_integers, crossing_bytes, saved_seconds_estimate
        places: by place operators, partitions, multiply_adds, bytes
    costs: compile_seconds, entry_bytes, code_bytes, weights_bytes, arena_bytes, scratch_bytes, run_seconds_estimate
    quantizing: kind, float_bytes, quantized_bytes_estimate, run_seconds_estimate
    partitions: index, place, nodes, inputs, outputs, multiply_adds, bytes, crossing_bytes, saved_seconds_estimate
    nodes: index, op, code, version, custom, delegated, place, reason, partition, kernel, execution, multiply_adds,
        bytes
        inputs, outputs: index, name, shape, shape_signature, type, quantized, constant, variable
suggestions: rule, subgraph, nodes, change, why, gain
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitdelegate.base.exit_status import FAILED, GOOD, status_of
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.progress import progress
from jitdelegate.base.tables import complain, print_line, print_table
from jitdelegate.commands.arguments import Target, add_options_file, add_target, new_parser, target, write_file
from jitdelegate.errors import JitDelegateError, OptionError

if TYPE_CHECKING:
    from jitdelegate.commands.analysis.facts import Analysis

STDOUT = "-"


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all models run, 1 one is refused or an output cannot be written, 2 wrong arguments, or a model's
    file cannot be opened."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        options = _all_options(arguments)
    except OptionError as error:
        parser.error(str(error))
    if arguments.model_explorer and len(arguments.model) > 1:
        parser.error(f"--model-explorer is about one model, but {len(arguments.model)} models were given")
    if arguments.compare and len(arguments.model) != 2:
        parser.error(f"--compare is about two models, but {len(arguments.model)} were given")
    analyses, statuses = [], []
    with progress(len(arguments.model)) as bar:
        for model in arguments.model:
            bar.begin(model)
            analysis, status = _analysis(model, options, arguments)
            analyses.append(analysis)
            statuses.append(status)
            bar.done()
    try:
        _write_all(analyses, arguments)
    except OSError as error:
        name = repr(error.filename) if error.filename else "to stdout"
        complain(f"could not write {name}: {error.strerror}")
        return FAILED
    return max(statuses)


def _analysis(model: str, options: DelegateOptions, arguments: argparse.Namespace) -> tuple[Analysis, int]:
    """The facts about a model, and the exit status; of one that is refused, the error and what can be said all the
    same."""
    from jitdelegate.commands.analysis.survey import analyze, refused  # not before: it imports the compiler

    device = next(iter(arguments.target.devices), None)
    try:
        return analyze(model, options, device), GOOD
    except (JitDelegateError, OSError, MemoryError) as error:
        told = str(error) or type(error).__name__
        complain(f"{model}: {told}")
        return refused(model, options, told, device), status_of(error)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("jitdelegate.analyze", __doc__)
    parser.add_argument("model", nargs="+", metavar="MODEL", help="a .tflite file")
    add_target(parser, ", or cuda:sm_90 or cpu:aarch64 for a device that is not here", _target)
    add_options_file(parser, "further options of load from JSON or TOML")
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="write all facts; without FILE print them, not the text"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with a picture of the graph")
    parser.add_argument("--open", action="store_true", help="open that page in a browser, also without --html")
    parser.add_argument("--compare", action="store_true", help="show two models side by side, with their costs")
    parser.add_argument("--model-explorer", metavar="FILE", help="write node data for Google's Model Explorer")
    return parser


def _target(text: str) -> Target:
    """The value of --target: at most one device."""
    found = target(text)
    if len(found.devices) > 1:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected one device")
    return found


def _all_options(arguments: argparse.Namespace) -> DelegateOptions:
    """The options of the file, with --target instead of its target, and no cache."""
    given = {"serialization_dir": False, "prebuilt": (), "target": arguments.target.name}
    return DelegateOptions.from_keywords(given, arguments.options)


def _write_all(analyses: Sequence[Analysis], arguments: argparse.Namespace) -> None:
    """
    Raises:
        OSError: a file cannot be written; it has the file's name, or none for stdout.
    """
    from jitdelegate.commands.analysis.text import text

    data = [analysis.to_dict() for analysis in analyses]
    facts = json.dumps(data if len(data) > 1 else data[0], indent=2) if arguments.json else ""
    if arguments.json and arguments.json != STDOUT:
        write_file(arguments.json, facts + "\n")
    if arguments.html or arguments.open:
        from jitdelegate.commands.analysis.html import page

        _show(page(analyses, compared=arguments.compare), arguments)
    if arguments.model_explorer:
        from jitdelegate.commands.analysis.model_explorer import model_explorer

        write_file(arguments.model_explorer, model_explorer(analyses[0]) + "\n")
    if arguments.json == STDOUT:
        print_line(facts, is_safe=True)
        return
    if arguments.compare:
        from jitdelegate.commands.analysis.comparison import comparison, headings

        print_table(headings(analyses), comparison(*analyses), right=(1, 2, 3))
        print_line("")
    print_line("\n\n".join(map(text, analyses)), is_safe=True)


def _show(content: str, arguments: argparse.Namespace) -> None:
    """Write the page, and open it if asked for; without a name, in the directory of temporary files.

    Raises:
        OSError: it cannot be written; it has the file's name.
    """
    path = arguments.html
    if not path:
        descriptor, path = tempfile.mkstemp(prefix="jitdelegate-", suffix=".html")
        os.close(descriptor)
    write_file(path, content)
    if arguments.open and not webbrowser.open(Path(path).resolve().as_uri()):
        complain(f"no browser could be opened; the page is {path!r}")
