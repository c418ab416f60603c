"""Run models as a GPU would, in the PTX simulator, and compare them with the CPU target.

    python -m scripts.simulate_models FOLDER_OR_FILE ... [--precision float32 float16] [--architecture sm_90]
        [--largest 30] [--schedule random] [--seed 0]

Models that do not run wholly on the CPU target, those with states, and those of more than `--largest` million
multiplications, are left out. Exit status 1 if a result differs by more than the precision's NRMSE, or the simulator
finds an error.
"""

from __future__ import annotations

import argparse
import sys
import time
from math import prod
from pathlib import Path

import numpy as np

from jitdelegate.commands.measurement.difference import nrmse
from jitdelegate.ir.forms import Contract, Depthwise
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.runtime.cpu.features import level
from jitdelegate.targets.cuda.code.gpu import GPUS
from scripts.lowered_models import lowered_models
from tests.ptx_simulator import SimulationError
from tests.targets.cuda_execute import run
from tests.targets.execute import execute

LARGEST_ERROR = {"float32": 1e-5, "tf32": 5e-3, "float16": 1e-2, "bfloat16": 1e-1}
"""NRMSE against float32; a deep network lets the roundings of 16 bits grow."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all agree, 1 some model does not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--precision", nargs="+", choices=tuple(LARGEST_ERROR), default=["float32", "float16"])
    parser.add_argument("--architecture", choices=tuple(GPUS), default="sm_90")
    parser.add_argument("--largest", type=float, default=30.0, help="million multiplications")
    parser.add_argument("--schedule", choices=("lockstep", "random"), default="lockstep")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    bad = 0
    for path, graph in lowered_models(arguments.path):
        if not graph.states and _multiplications(graph) <= arguments.largest * 1e6:
            bad += sum(not _agrees(path, graph, precision, arguments) for precision in arguments.precision)
    return int(bad > 0)


def _multiplications(graph: Graph) -> int:
    total = 0
    for node in graph.nodes:
        if isinstance(node.form, Contract | Depthwise):
            weights = graph.tensors[node.inputs[1]].shape
            taps = weights[1:3] if isinstance(node.form, Depthwise) else weights[1:]
            total += prod(taps) * graph.tensors[node.outputs[0]].size
    return total


def _agrees(path: Path, graph: Graph, precision: str, arguments: argparse.Namespace) -> bool:
    random = np.random.default_rng(arguments.seed)
    feeds = [_values(graph.tensors[index], random) for index in graph.inputs]
    expected = execute(graph, feeds, level())
    start = time.perf_counter()
    try:
        found = run(graph, feeds, arguments.architecture, precision, arguments.schedule, arguments.seed)
    except SimulationError as error:
        print(f"{path.name:<48} {precision:<9} {error}", flush=True)
        return False
    error = max(nrmse(one, other) for one, other in zip(found, expected, strict=True))
    agrees = error <= LARGEST_ERROR[precision]
    seconds = time.perf_counter() - start
    print(f"{path.name:<48} {precision:<9} {error:.1e} {'ok' if agrees else 'BAD'} {seconds:6.1f} s", flush=True)
    return agrees


def _values(tensor: Tensor, random: np.random.Generator) -> np.ndarray:
    """Numbers from 0 to 1; integers are places, 0 or 1."""
    limits = (0, 1) if tensor.dtype == "float32" else (0, 2)
    return np.asarray(random.uniform(*limits, tensor.shape)).astype(tensor.dtype)


if __name__ == "__main__":
    sys.exit(main())
