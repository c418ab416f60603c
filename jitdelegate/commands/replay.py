"""python -m jitdelegate.replay KERNEL [KERNEL ...]: run kernels of a dump alone, timed and compared with numpy.

JITDELEGATE_DUMP=folder writes each lowered node of a model to a file kernels/NN_OPERATOR.npz. KERNEL is such a file, or
a folder of them. The node is compiled for this machine as a graph of its own and run on random inputs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jitdelegate.base.exit_status import FAILED, GOOD, WRONG_ARGUMENTS, status_of
from jitdelegate.base.options import CPU_FEATURES, PRECISIONS, DelegateOptions
from jitdelegate.base.progress import progress
from jitdelegate.base.tables import complain, print_line
from jitdelegate.base.targets import ROWS
from jitdelegate.commands.arguments import add_number, new_parser, threads
from jitdelegate.compiler.codegen import target_program
from jitdelegate.compiler.trace import Trace
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import JitDelegateError
from jitdelegate.ir.archive import load_graph
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.print import graph_text
from jitdelegate.program.program import LITERT
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.runtime.profile import kernel_lines, kernel_rows
from jitdelegate.targets import target_named
from jitdelegate.targets.reference.evaluate import run_graph

EXACT = PRECISIONS[0]
TOLERANCE, LOOSE_TOLERANCE = 1e-4, 2e-2
"""Largest errors that pass, as shares of the largest number that is expected: in float32, and in shorter types."""


@dataclass(frozen=True)
class Replay:
    """One kernel that was run alone.

    Attributes:
        graph: its node as text.
        times: a table of its kernels, copies at the borders included.
        error: the largest difference from numpy, as a share of the largest number that is expected.
    """

    graph: str
    times: list[str]
    error: float


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 every kernel answers as numpy, 1 one does not or cannot be run, 2 wrong arguments, or a file
    cannot be opened."""
    arguments = _parser().parse_args(argv)
    options = DelegateOptions(
        target=arguments.target,
        cpu_features=arguments.cpu_features,
        precision=arguments.precision,
        num_threads=arguments.threads,
        profile=True,
    )
    tolerance = _tolerance(options)
    statuses, files = [], []
    for path in arguments.kernel:
        own = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        if not own:
            complain(f"{path}: it has no .npz files, expected a folder of a dump's kernels")
            statuses.append(WRONG_ARGUMENTS)
        files += own
    with progress(len(files), still=True) as bar:
        for file in files:
            bar.begin(str(file))
            statuses.append(_replay_and_print(file, options, arguments, tolerance))
            bar.done()
    return max(statuses)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("jitdelegate.replay", __doc__)
    parser.add_argument("kernel", nargs="+", type=Path, metavar="KERNEL", help="a file of a dump, or a folder of them")
    parser.add_argument(
        "--target", choices=[name for name in ROWS if name != LITERT], default="cpu", help="(default: cpu)"
    )
    parser.add_argument("--cpu-features", choices=CPU_FEATURES, default="auto", help="(default: auto)")
    parser.add_argument("--precision", choices=PRECISIONS, default=EXACT, help="(default: float32)")
    parser.add_argument("--threads", type=threads, default=1, metavar="N", help="on the CPU (default: 1)")
    add_number(parser, "--runs", 20, "how often to run it")
    add_number(parser, "--seed", 0, "of the inputs")
    return parser


def _tolerance(options: DelegateOptions) -> float:
    is_exact = options.precision == EXACT or "precision" in target_named(options.target).ignored(options)
    return TOLERANCE if is_exact else LOOSE_TOLERANCE


def _replay_and_print(path: Path, options: DelegateOptions, arguments: argparse.Namespace, tolerance: float) -> int:
    try:
        outcome = replay(path, options, arguments.runs, arguments.seed)
    except JitDelegateError as error:
        complain(str(error) if str(path) in str(error) else f"{path}: {error}")
        return status_of(error)
    passed = outcome.error <= tolerance
    heading = f"{path}: {'same' if passed else 'DIFFERENT'}, largest error {outcome.error:.1e}"
    print_line("\n".join([heading, outcome.graph, *outcome.times]))
    return GOOD if passed else FAILED


def replay(path: Path, options: DelegateOptions, runs: int = 1, seed: int = 0) -> Replay:
    """Run a dumped kernel on random inputs.

    Raises:
        ModelError: the file holds no graph.
        CompileError, DeviceError: this machine cannot compile or run it.
    """
    graph = load_graph(path)
    feeds = _random_inputs(graph, seed)
    session = _open(graph, options)
    try:
        for _ in range(max(runs, 1)):
            outputs = session.run(feeds)
        seconds = session.kernel_seconds()
    finally:
        session.close()
    kernels = zip(seconds, session.program.kernels, strict=True)
    times = kernel_lines(kernel_rows((each, kernel.form, kernel.name) for each, kernel in kernels))
    pairs = zip(map(np.asarray, outputs), run_graph(graph, feeds), strict=True)
    return Replay(graph_text(graph).rstrip(), times, max(_error(found, expected) for found, expected in pairs))


def _random_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Floats of about 1, whole numbers from 0 to 9, truth values."""
    random = np.random.default_rng(seed)
    tensors = [graph.tensors[index] for index in graph.inputs]
    return [
        random.normal(0, 1, tensor.shape).astype(tensor.dtype)
        if tensor.dtype.startswith("float")
        else random.integers(0, 2 if tensor.dtype == "bool" else 10, tensor.shape).astype(tensor.dtype)
        for tensor in tensors
    ]


def _open(graph: Graph, options: DelegateOptions) -> IOBinding:
    device = target_named(options.target).find_device(options)
    key = find_key(device, options, "replay")
    program, _ = target_program(graph, options, key, Trace("replay", None))
    return device.session(read(write(program)), options, options.num_threads or 1)


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest number; infinite where types, shapes or what is not finite differ."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return np.inf
    if found.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else np.inf
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return np.inf
    largest = float(np.max(np.abs(expected[finite]), initial=0.0)) or 1.0
    return float(np.max(np.abs(found[finite] - expected[finite]), initial=0.0)) / largest
