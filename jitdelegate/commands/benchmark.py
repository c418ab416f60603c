"""python -m jitdelegate.benchmark MODEL: time a model as LiteRT's benchmark_model does, with its flags and lines.

The first lines are those of benchmark_model, for scripts that read them: `invoke` is timed, with the inputs in place.
Two tables follow: all statistics, with the sides of --compare, which take turns with jitdelegate in this process; and
starts in fresh processes (cold: compiles; warm: from the cache), with the most memory that each process had.

  python -m jitdelegate.benchmark model.tflite
  python -m jitdelegate.benchmark --graph=model.tflite --num_threads=1 --num_runs=200 --compare=litert,openvino
  python -m jitdelegate.benchmark model.tflite --enable_op_profiling=true --trace=trace.json
  python -m jitdelegate.benchmark model.tflite --input_layer=image --input_layer_shape=1,320,320,3

`--suite FOLDER` measures many models instead: `python -m jitdelegate.benchmark --suite . --help`.

A signature other than the main subgraph's is timed with copies of its inputs and outputs, on every side.

Exit status: 0 all was measured, 1 a side cannot run the model, or a file cannot be written, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import sys

from jitdelegate.base.exit_status import FAILED, GOOD, WRONG_ARGUMENTS, status_of
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.tables import complain, print_line
from jitdelegate.commands.arguments import add_number, add_truth, new_parser, parse_flags
from jitdelegate.commands.benchmark_inputs import add_inputs
from jitdelegate.commands.benchmark_lines import print_parameters
from jitdelegate.commands.benchmark_run import Benchmark
from jitdelegate.commands.measurement import sides
from jitdelegate.commands.run_arguments import add_model, add_options, model_of, options_of, quiet, tell_passed_over
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import JitDelegateError, OptionError, TensorError
from jitdelegate.tflite.read import read

OTHERS = tuple(name for name in sides.NAMES if name != sides.OURS)
MODES = ("stdout", "csv")
SUITE = "--suite"


def main(argv: list[str] | None = None) -> int:
    """Exit status: see above."""
    given = sys.argv[1:] if argv is None else argv
    if any(text.partition("=")[0] == SUITE for text in given):
        from jitdelegate.commands import benchmark_suite  # not before: it imports the compiler

        return benchmark_suite.main(given)
    parser = _parser()
    arguments = parse_flags(parser, given)
    arguments.graph = model_of(parser, arguments)
    try:
        options = options_of(arguments)
    except OptionError as error:
        parser.error(str(error))
    try:
        if arguments.list_signatures:
            return _list_signatures(arguments.graph)
        tell_passed_over(arguments)
        print_parameters(arguments, parse_flags(parser, []))
        with quiet():
            try:
                measured = Benchmark(arguments, options)
            except (OptionError, TensorError) as error:  # the arguments do not fit the model
                complain(str(error))
                return WRONG_ARGUMENTS
            measured.run()
    except (JitDelegateError, MemoryError) as error:
        complain(str(error) or "there is no memory for it")
        return status_of(error)
    except OSError as error:
        complain(f"could not write {error.filename!r}: {error.strerror}")
        return FAILED
    return GOOD


def _list_signatures(model: str) -> int:
    signatures = read(ModelFile(model, DelegateOptions()).content()).signatures
    print_line(f"The Model contains {len(signatures)} signature key(s).")
    if signatures:
        print_line("They are listed below: ")
    for signature in signatures:
        print_line(f"-> Signature Key: {signature.key}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("jitdelegate.benchmark", __doc__)
    add_model(parser, "--graph", "--model")
    parser.add_argument(
        "--compare", type=_others, default=(), metavar="SIDES", help=f"with commas: {', '.join(OTHERS)}"
    )
    parser.add_argument(
        "--signature_to_run_for", "--signature", default="", metavar="KEY", help="(default: the main subgraph)"
    )
    add_truth(parser, "--list_signatures", "list the signatures, and nothing else")
    group = parser.add_argument_group("how long to measure")
    add_number(group, "--num_runs", 50, "least runs")
    add_number(group, "--min_secs", 1.0, "least seconds")
    add_number(group, "--max_secs", 150.0, "no run begins after them")
    add_number(group, "--warmup_runs", 1, "least runs that come first")
    add_number(group, "--warmup_min_secs", 0.5, "least seconds of these")
    add_number(group, "--run_delay", -1.0, "seconds between two runs; negative for none")
    add_number(group, "--run_frequency", -1.0, "runs a second, in place of the delay; negative for any")
    add_number(group, "--startup_runs", 1, "starts in fresh processes, of each kind")
    add_truth(group, "--dry_run", "make the model ready, and run nothing")
    group = parser.add_argument_group("what to show")
    add_truth(group, "--enable_op_profiling", "time each kernel, in runs of their own, since that takes time")
    group.add_argument("--op_profiling_output_mode", choices=MODES, default=MODES[0], help="(default: stdout)")
    group.add_argument(
        "--op_profiling_output_file", "--profiling_output_csv_file", default="", metavar="FILE", help="of the profile"
    )
    group.add_argument("--trace", metavar="FILE", help="a timeline for ui.perfetto.dev and chrome://tracing")
    group.add_argument("--result_json", metavar="FILE", help="all figures, by the names of litert-benchmark and more")
    group.add_argument("--output_filepath", metavar="FILE", help="the bytes of all outputs of the last run")
    group.add_argument("--result_file_path", metavar="FILE", help="the figures of benchmark_model's BenchmarkResult")
    group.add_argument("--benchmark_name", default="", metavar="NAME", help="the name in that file")
    add_truth(group, "--report_peak_memory_footprint", "print the most memory that this process had")
    add_truth(group, "--verbose", "print the values of all flags")
    add_inputs(parser)
    add_options(parser)
    return parser


def _others(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    if unknown := [name for name in names if name not in OTHERS]:
        raise argparse.ArgumentTypeError(f"there is no side {unknown[0]!r}, expected some of {', '.join(OTHERS)}")
    return tuple(dict.fromkeys(names))
