"""Random graphs on the CUDA target in the PTX simulator: any GPU, any precision, any order of warps.

    python -m scripts.fuzz_cuda [--rounds 100] [--seed 0] [--seconds S] [--graphs parts]

In float32 results are compared with the forms' references; what the CPU target's own rounding makes of the graph says
how much may be asked. In other precisions only what the simulator checks counts: bounds, races, barriers, memory that
nobody wrote. Exit status 1 if some graph fails; it is printed, with the seed that draws it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

import numpy as np

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.print import graph_text
from jitdelegate.passes.support import unsupported
from jitdelegate.runtime.cpu.features import level
from jitdelegate.targets.cuda.gpu import GPUS
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from scripts.fuzz_graphs import GRAPHS, GRAPHS_HELP, LIMIT, difference
from tests.ops.litert import model_of
from tests.ptx_simulator import SimulationError
from tests.targets.cuda_execute import run
from tests.targets.execute import execute

PRECISIONS = ("float32", "float32", "float32", "float16", "bfloat16", "tf32")
SCHEDULES = ("lockstep", "lockstep", "random")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all well, 1 some graph was not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; the next one has the next seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further graph after this time")
    parser.add_argument("--graphs", choices=GRAPHS, default="any", help=GRAPHS_HELP)
    arguments = parser.parse_args(argv)
    draw = GRAPHS[arguments.graphs]
    end, counts = time.monotonic() + arguments.seconds, Counter[str]()
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        if time.monotonic() > end:
            break
        graph = draw(seed)
        answer = check(graph, seed)
        counts[answer.partition(":")[0]] += 1
        if answer.startswith("wrong"):
            print(f"seed {seed}: {answer}\n{graph_text(graph)}", flush=True)
    print(", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


def check(drawn: Graph, seed: int) -> str:
    """ "ok", "refused: ..." with jitdelegate's sentence, or "wrong: ..."."""
    model = read(model_of(drawn))
    folded = passes.run(model.graphs[0], passes=passes.FOLD)
    reasons = unsupported(model, folded)
    if reasons:
        return f"refused: {reasons[0][1]}"
    graph = passes.run(folded, passes=passes.REWRITE)
    draw = random.Random(seed)
    precision = draw.choice(PRECISIONS)
    names = [gpu.architecture for gpu in GPUS.values() if gpu.has_async_copy or precision in ("float32", "float16")]
    architecture, schedule = draw.choice(names), draw.choice(SCHEDULES)
    numbers = np.random.default_rng(seed)
    feeds = [numbers.uniform(-2, 2, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    try:
        found = run(graph, feeds, architecture, precision, schedule, seed)
    except SimulationError as error:
        return f"wrong: {architecture}, {precision}, {schedule}: {error}"
    wrong = _wrong(graph, feeds, found) if precision == "float32" else ""
    return f"wrong: {architecture}, {precision}, {schedule}: {wrong}" if wrong else "ok"


def _wrong(graph: Graph, feeds: list[np.ndarray], found: list[np.ndarray]) -> str:
    """What differs from the references by more than the CPU target's rounding explains, "" if nothing does."""
    with np.errstate(all="ignore"):
        expected = run_graph(graph, feeds)
    other = execute(graph, feeds, level())
    for number, (array, wanted, cpu) in enumerate(zip(found, expected, other, strict=True)):
        error, limit = difference(array, wanted), max(LIMIT, 20 * difference(cpu, wanted))
        if error > limit:
            return f"output {number}: NRMSE {error:.2g}, at most {limit:.2g} is allowed"
    return ""


if __name__ == "__main__":
    sys.exit(main())
