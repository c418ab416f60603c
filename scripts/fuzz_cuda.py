"""Random graphs on the CUDA target in the PTX simulator: any GPU, any precision, any order of warps.

    python -m scripts.fuzz_cuda [--rounds 100] [--seed 0] [--seconds S] [--graphs parts] [--through session|both]

In float32, results are compared with the forms' references; the tolerance comes from the rounding of the CPU target on
the same graph. In other precisions this is done only for fused graphs, where rounded inputs also add to the tolerance;
otherwise only the checks of the simulator count: bounds, races, barriers, uninitialized memory. Half of the graphs take
any candidate for each kernel, and most of the fused ones fuse all that they can. Launches run one by one, with separate
memory for each tensor; with a session, the whole program runs on a stub of the driver, with as many branches as
possible, in any order. Through both routes, kernels also run on the CPU by LLVM (tests/gpu/second_route), and all bits
are compared. Exit status 1 if some graph fails; it is printed, with the seed that draws it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import numpy as np

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.print import graph_text
from jitdelegate.passes.support import unsupported
from jitdelegate.targets.cuda.code.choices import Choices, Question
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.compile.back_end import ARCHITECTURES
from jitdelegate.targets.cuda.plan import branches
from jitdelegate.targets.cuda.products import attention, separable
from jitdelegate.targets.host import level
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from scripts.fuzz_graphs import GRAPHS, GRAPHS_HELP, LIMIT, difference
from tests.gpu.simulator import SimulationError
from tests.ops.litert import model_of
from tests.targets.cuda_execute import run
from tests.targets.cuda_routes import bits, on_the_cpu, simulated
from tests.targets.cuda_session import run_session
from tests.targets.execute import execute
from tests.targets.fused_draws import fused_graph_of

PRECISIONS = ("float32", "float32", "float32", "float16", "bfloat16", "tf32")
SCHEDULES = ("lockstep", "lockstep", "random")
STEPS = {"tf32": 2**-11, "float16": 2**-11, "bfloat16": 2**-8}
"""How far a number may lie from its neighbour in a precision, relative to it, halved."""
LIMITS = {"float32": LIMIT, "tf32": 5e-3, "float16": 1e-2, "bfloat16": 6e-2}


class AnyChoices(Choices):
    """Takes any candidates, of all problems the same ones where they have them, for equal seeds."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def answer(self, problem: str, question: Question) -> str:
        return min(question.ranked, key=lambda name: random.Random(f"{self._seed} {name}").random())


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all well, 1 some graph was not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; the next one has the next seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further graph after this time")
    parser.add_argument("--graphs", choices=GRAPHS, default="any", help=GRAPHS_HELP)
    parser.add_argument(
        "--through", choices=("launches", "session", "both"), default="launches", help="what runs the kernels"
    )
    arguments = parser.parse_args(argv)
    draw = GRAPHS[arguments.graphs]
    end, counts = time.monotonic() + arguments.seconds, Counter[str]()
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        if time.monotonic() > end:
            break
        graph = draw(seed)
        answer = check(graph, seed, is_fused=draw is fused_graph_of, through=arguments.through)
        counts[answer.partition(":")[0]] += 1
        if answer.startswith("wrong"):
            print(f"seed {seed}: {answer}\n{graph_text(graph)}", flush=True)
    print(", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


def check(drawn: Graph, seed: int, *, is_fused: bool = False, through: str = "launches") -> str:
    """ "ok", "refused: ..." with jitdelegate's sentence, or "wrong: ..."."""
    model = read(model_of(drawn))
    folded = passes.run(model.graphs[0], passes=passes.FOLD)
    reasons = unsupported(model, folded)
    if reasons:
        return f"refused: {reasons[0][1]}"
    graph = passes.run(folded, passes=passes.REWRITE)
    draw = random.Random(seed)
    precision = draw.choice(PRECISIONS)
    names = [name for name in ARCHITECTURES if GPUS[name].has_async_copy or precision in ("float32", "float16")]
    architecture, schedule = draw.choice(names), draw.choice(SCHEDULES)
    choices = AnyChoices(seed) if draw.random() < 0.5 else None
    numbers = np.random.default_rng(seed)
    feeds = [numbers.uniform(-2, 2, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    try:
        with all_fused() if is_fused and draw.random() < 0.7 else nullcontext():
            if through == "both":
                ways = architecture, precision, schedule, seed, choices
                found = run(graph, feeds, *ways, module_of=simulated)
                if bits(run(graph, feeds, *ways, module_of=on_the_cpu)) != bits(found):
                    return f"wrong: {architecture}, {precision}, {schedule}: both routes differ"
            elif through == "session":
                with patch.object(branches, "WORTH", np.inf):
                    found = run_session(graph, feeds, architecture, precision, seed, choices)
            else:
                found = run(graph, feeds, architecture, precision, schedule, seed, choices)
    except SimulationError as error:
        return f"wrong: {architecture}, {precision}, {schedule}: {error}"
    wrong = _wrong(graph, feeds, found, precision) if is_fused or precision == "float32" else ""
    return f"wrong: {architecture}, {precision}, {schedule}: {wrong}" if wrong else "ok"


@contextmanager
def all_fused() -> Iterator[None]:
    """Whatever one kernel can compute together is; launches cost that much."""
    with (
        patch.object(separable, "launch_cycles", lambda gpu: 10**9),
        patch.object(attention, "_cycles_apart", lambda *_: np.inf),
    ):
        yield


def _wrong(graph: Graph, feeds: list[np.ndarray], found: list[np.ndarray], precision: str) -> str:
    """What differs from the references by more than rounding explains, "" if nothing does."""
    with np.errstate(all="ignore"):
        expected = run_graph(graph, feeds)
        others = [execute(graph, feeds, level()), *(run_graph(graph, moved) for moved in _moved(feeds, precision))]
    for number, (array, wanted) in enumerate(zip(found, expected, strict=True)):
        error = difference(array, wanted)
        limit = max(LIMITS[precision], *(20 * difference(other[number], wanted) for other in others))
        if error > limit:
            return f"output {number}: NRMSE {error:.2g}, at most {limit:.2g} is allowed"
    return ""


def _moved(feeds: list[np.ndarray], precision: str) -> Iterator[list[np.ndarray]]:
    """The feeds as a narrower precision may round them; none for float32."""
    if precision in STEPS:
        step, numbers = STEPS[precision], np.random.default_rng(1)
        yield [(feed * numbers.uniform(1 - step, 1 + step, feed.shape)).astype(np.float32) for feed in feeds]


if __name__ == "__main__":
    sys.exit(main())
