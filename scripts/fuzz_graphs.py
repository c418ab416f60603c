"""Compiles random models and compares what they compute with LiteRT's builtin kernels.

    python -m scripts.fuzz_graphs --rounds 1000 --seed 1 [--features x86-64-v4 ...] [--seconds 600] [--graphs passes]

Every model runs with one thread and with three, in dirty memory, each block of which ends right before a protected page
in one run and starts right after one in the other: a single byte read or written beyond is a crash. Limits for cutting
and fusing layers are lowered at random, so that small models take the same paths as large ones. Models run in forked
batches; one that crashes or differs is reported with its seed, after operators that do not matter have been dropped.
Where LiteRT refuses a model, the operators' own references stand in. Exit status: 0 all well, 1 some model was not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from jitdelegate import passes
from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.ir.print import graph_text
from jitdelegate.ops import OPS
from jitdelegate.passes.support import unsupported
from jitdelegate.targets.cpu import plan
from jitdelegate.targets.cpu.code import kernel, rows
from jitdelegate.targets.cpu.forms import map, pool, reduce
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products import chunks, depthwise, matmul
from jitdelegate.targets.host import levels
from jitdelegate.tflite.read import read
from scripts.in_child import Failed, in_child
from tests.ops.litert import model_of
from tests.targets.execute import program_of
from tests.targets.fenced import Machine
from tests.targets.fused_draws import fused_graph_of
from tests.targets.move_graphs import move_graph_of
from tests.targets.part_draws import part_graph_of
from tests.targets.pass_draws import pass_graph_of
from tests.targets.random_graphs import graph_of

Shape = tuple[int, ...]
GRAPHS = {
    "any": graph_of,
    "fused": fused_graph_of,
    "moves": move_graph_of,
    "parts": part_graph_of,
    "passes": pass_graph_of,
}
GRAPHS_HELP = (
    "fused: attention and the like; moves: transposes; parts: what is joined or cut; passes: what passes look for"
)
LEVELS = ("generic", "x86-64-v3", "x86-64-v4")
BATCH = 25
SECONDS_EACH = 60
LIMIT = 1e-5


def with_all_outputs(graph: Graph) -> Graph:
    """The graph with every tensor that a node writes as an output."""
    written = (index for node in graph.nodes for index in node.outputs if index != ABSENT)
    return replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *written))))


def by_references(graph: Graph, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs by the operators' own references."""
    values = {i: tensor.data for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
    values |= dict(zip(graph.inputs, feeds, strict=True))
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            arrays = [None if i == ABSENT else values[i] for i in node.inputs]
            values |= dict(zip(node.outputs, OPS[node.op].reference(arrays, node.attrs), strict=True))
    return [np.asarray(values[i]) for i in graph.outputs]


def by_litert(graph: Graph, content: bytes, feeds: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The outputs by LiteRT's builtin kernels; None where it refuses the model or would crash on it."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    if any(node.op.endswith("CONV_2D") and (*node.inputs, ABSENT)[2] == ABSENT for node in graph.nodes):
        return None
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError):
        return None
    for index, feed in zip(graph.inputs, feeds, strict=True):
        interpreter.set_tensor(index, feed)
    interpreter.invoke()
    return [interpreter.get_tensor(index) for index in graph.outputs]


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The NRMSE of what is finite; infinite where shapes or what is not finite differ."""
    finite = np.isfinite(expected)
    if found.shape != expected.shape or not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    difference = found[finite].astype(np.float64) - expected[finite]
    scale = float(np.sqrt(np.mean(np.square(expected[finite], dtype=np.float64)))) if finite.any() else 1.0
    error = float(np.sqrt(np.mean(difference**2))) if finite.any() else 0.0
    return error / scale if scale else error


def lower_limits(draw: random.Random) -> None:
    """Cut and fuse layers as if they were large, at random."""
    plan.FUSE_BYTES = draw.choice((0, 0, 1 << 20))
    chunks.CHUNK_WORK, chunks.SMALL_WORK = draw.choice(((4_000_000, 400_000), (5000, 1), (500, 1)))
    matmul.FEWEST_COPIED_ROWS, matmul.MOST_DOT_ROWS = draw.choice(((24, 3), (1, 0), (4, 8)))
    matmul.FAR_ROWS, matmul.CACHE_BYTES = draw.choice(((2048, 32 * 1024), (0, 0)))
    map.CHUNK_ELEMENTS = draw.choice((16384, 256, 20))
    reduce.CHUNK_ELEMENTS = draw.choice((16384, 256, 20))
    depthwise.CHUNK_WORK = draw.choice((125_000, 5000))
    pool.CHUNK_ELEMENTS = draw.choice((8192, 200))
    rows.CHUNK_WORK = draw.choice((16384, 256, 20))
    kernel.LEAST_WORTH = draw.choice((2, 0))


def check(graph: Graph, seed: int, features: Sequence[str]) -> str:
    """ "ok", "refused: ..." with jitdelegate's sentence, or "wrong: ..."."""
    lower_limits(random.Random(seed))
    content = model_of(graph)
    model = read(content)
    folded = passes.run(model.graphs[0], passes=passes.FOLD)
    reasons = unsupported(model, folded)
    if reasons:
        return f"refused: {reasons[0][1]}"
    lowered = passes.run(folded, passes=passes.REWRITE)
    numbers = np.random.default_rng(seed)
    feeds = [numbers.uniform(-2, 2, graph.tensors[i].shape).astype(graph.tensors[i].dtype) for i in graph.inputs]
    sure = by_references(graph, feeds)
    litert = by_litert(graph, content, feeds)
    expected = sure if litert is None else litert
    # What LiteRT itself gets wrong, because the model magnifies rounding, says how much may be asked.
    limits = [
        LIMIT if litert is None else max(LIMIT, 20 * difference(a, b)) for a, b in zip(expected, sure, strict=True)
    ]
    for feature in features:
        for wrong in _wrong(lowered, feature, feeds, expected, limits):
            return f"wrong: {feature}, {wrong}"
    return "ok" if litert is not None else "ok by references"


def _wrong(
    graph: Graph, features: str, feeds: Sequence[np.ndarray], expected: Sequence[np.ndarray], limits: Sequence[float]
) -> Iterator[str]:
    program = program_of(graph, generate(graph, features), features)
    first: list[np.ndarray] = []
    for threads, at_end in ((1, True), (3, False), (3, True)):
        machine = Machine(graph, program, threads, at_end=at_end)
        machine.run([feed[::-1].copy() if feed.ndim else feed for feed in feeds])
        found = machine.run(feeds)
        machine.close()
        first = first or found
        for number, (array, wanted, limit) in enumerate(zip(found, expected, limits, strict=True)):
            error = difference(array, wanted)
            if error > limit:
                yield f"{threads} threads, output {number}: NRMSE {error:.2g}, at most {limit:.2g} is allowed"
            if array.tobytes() != first[number].tobytes():
                yield f"{threads} threads, output {number} differs from a single thread's"
        if features == "generic":
            break


# batches


def answers(jobs: Sequence[Callable[[], str]]) -> Iterator[str]:
    """As `scripts.in_child`; a job that fails is "wrong: ..."."""
    for answer in in_child(jobs, SECONDS_EACH):
        yield f"wrong: {answer.reason}" if isinstance(answer, Failed) else answer


def shrink(graph: Graph, fails: Callable[[Graph], bool]) -> Graph:
    """A smaller graph that fails too: operators dropped one by one, their results fed instead."""
    position = 0
    while position < len(graph.nodes):
        smaller = _without(graph, position)
        if smaller is not None and fails(smaller):
            graph, position = smaller, 0
        else:
            position += 1
    return graph


def _without(graph: Graph, position: int) -> Graph | None:
    """The graph with one result as an input, or without it where nobody reads it; without what is then not needed."""
    nodes = [node for p, node in enumerate(graph.nodes) if p != position]
    gone = graph.nodes[position].outputs
    made = {i for node in nodes for i in node.outputs}
    read = {i for node in nodes for i in node.inputs}
    outputs = [i for i in graph.outputs if i in made] or sorted(made - read)[:1]
    if not outputs:
        return None
    inputs = sorted({*graph.inputs, *gone} & read)  # the order in which they stand in the file
    return replace(graph, nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs))


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all well, 1 some model was not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first model; the next one has the next seed")
    parser.add_argument("--features", nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further batch after this time")
    parser.add_argument("--graphs", choices=GRAPHS, default="any", help=GRAPHS_HELP)
    parser.add_argument("--all-outputs", action="store_true", help="every tensor that a node writes is an output")
    arguments = parser.parse_args(argv)
    drawn = GRAPHS[arguments.graphs]

    def draw(seed: int) -> Graph:
        return with_all_outputs(drawn(seed)) if arguments.all_outputs else drawn(seed)

    runnable = [each for each in arguments.features if each in levels()]
    end, counts = time.monotonic() + arguments.seconds, Counter[str]()
    last = arguments.seed + arguments.rounds
    for start in range(arguments.seed, last, BATCH):
        if time.monotonic() > end:
            break
        seeds = range(start, min(start + BATCH, last))
        jobs = [lambda seed=seed: check(draw(seed), seed, runnable) for seed in seeds]
        for seed, answer in zip(seeds, answers(jobs), strict=True):
            counts[answer.split(":")[0]] += 1
            if answer.startswith("wrong"):
                _report(draw(seed), seed, answer, runnable)
    print(", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


def _report(drawn: Graph, seed: int, answer: str, features: Sequence[str]) -> None:
    def fails(graph: Graph) -> bool:
        (again,) = answers([lambda: check(graph, seed, features)])
        return again.startswith("wrong")

    graph = shrink(drawn, fails)
    (smaller,) = answers([lambda: check(graph, seed, features)])
    print(f"seed {seed}: {answer}\n  shrunk: {smaller}\n{graph_text(graph)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
