"""Plants bugs in the PTX of all families of CUDA kernels, and says which of them no test could see.

    python -m scripts.mutate_kernels [--only TEXT] [--most 6] [--graphs 4] [--seed 0] [--seconds S] [--json]

Each family is tried on small graphs that use it: cases of operators and random fused graphs, in float32 and float16,
for a GPU with asynchronous copies and for one without. A mutant is killed where the simulator objects, in lockstep or
with warps that take turns at random, or results differ by more than tests allow. A mutant that makes no difference in
any of its graphs is idle, and not counted: a comparison that always has the same answer, a guard that always holds, a
place that no thread comes to. This is proved by a kernel that traps there. All others that live are listed.

Exit status: 0 at least 95 % were killed, 1 fewer were, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from unittest.mock import patch

import numpy as np

from jitdelegate import passes
from jitdelegate.errors import CompileError
from jitdelegate.ir.graph import Graph
from jitdelegate.ops import OPS
from jitdelegate.passes.lower import lower
from jitdelegate.passes.support import unsupported
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.tflite.read import read
from tests.gpu.mutate import MUTATIONS, witness
from tests.gpu.simulator import SimulationError
from tests.ops.litert import model_of
from tests.targets import cuda_execute
from tests.targets.fused_draws import fused_graph_of

ARCHITECTURES = ("sm_90", "sm_75")
PRECISIONS = ("float32", "float16")
FUSED_DRAWS = 60
TOLERANCES = {"float32": 2e-6, "float16": 1e-2}
LEAST_KILLED = 0.95
GRAPHS_OF_TEMPLATE = 3
LARGEST = 60_000
"""Elements of all tensors of a graph, which the simulator runs in a second or two."""


@dataclass(frozen=True)
class Setting:
    """A graph and how it is compiled."""

    graph: Graph
    architecture: str
    precision: str


@dataclass
class Tried:
    """Mutants of one kind in one family.

    Attributes:
        planted: all; `killed` and `idle` of them.
        survivors: lines of the others.
    """

    family: str
    kind: str
    planted: int = 0
    killed: int = 0
    idle: int = 0
    survivors: tuple[str, ...] = ()


def settings() -> Iterator[Setting]:
    """All graphs that are not too large, large ones first, in all ways to compile them."""
    graphs = [lower(case.graph(op)) for op in OPS.values() for case in op.cases if _is_taken(op, case)]
    for seed in range(FUSED_DRAWS):
        model = read(model_of(fused_graph_of(seed)))
        folded = passes.run(model.graphs[0], passes=passes.FOLD)
        if not unsupported(model, folded):
            graphs.append(passes.run(folded, passes=passes.REWRITE))
    small = sorted((graph for graph in graphs if _elements(graph) <= LARGEST), key=_elements, reverse=True)
    for graph, architecture, precision in product(small, ARCHITECTURES, PRECISIONS):
        yield Setting(graph, architecture, precision)


def _is_taken(op: object, case: object) -> bool:
    graph = case.graph(op)  # type: ignore[attr-defined]
    return op.check(graph, graph.nodes[0]) is None  # type: ignore[attr-defined,no-any-return]


def _elements(graph: Graph) -> int:
    return sum(int(np.prod(tensor.shape)) for tensor in graph.tensors)


def families(most: int, only: str) -> dict[tuple[str, str], dict[Template, list[Setting]]]:
    """(family, architecture) -> at most `most` of its templates, each with some of the largest graphs that use it."""
    found: dict[tuple[str, str], dict[Template, list[Setting]]] = defaultdict(dict)
    for setting in settings():
        try:
            planned = plan(setting.graph, GPUS[setting.architecture], setting.precision)
        except CompileError:
            continue
        for template in {launch.template for launch in planned.launches}:
            if only in template.family:
                known = found[template.family, setting.architecture]
                if template in known or len(known) < most:
                    known.setdefault(template, []).append(setting)
    return {
        key: {template: used[:GRAPHS_OF_TEMPLATE] for template, used in known.items()}
        for key, known in sorted(found.items())
    }


def _outputs(setting: Setting, texts: dict[Template, str], schedule: str) -> list[np.ndarray]:
    """What the graph gives where templates have these texts; raises SimulationError."""
    own = cuda_execute.ptx_of
    draw = np.random.default_rng(0)
    feeds = [_feed(draw, setting.graph, index) for index in setting.graph.inputs]

    def ptx_of(template: Template, architecture: str) -> str:
        return texts.get(template) or own(template, architecture)

    with patch.object(cuda_execute, "ptx_of", ptx_of), np.errstate(all="ignore"):
        return cuda_execute.run(setting.graph, feeds, setting.architecture, setting.precision, schedule)


def _feed(draw: np.random.Generator, graph: Graph, index: int) -> np.ndarray:
    tensor = graph.tensors[index]
    kind = np.dtype(tensor.dtype)
    if kind.kind == "f":
        return draw.uniform(-2, 2, tensor.shape).astype(kind)
    return draw.integers(0, 2 if kind.kind == "b" else 3, tensor.shape).astype(kind)


@dataclass(frozen=True)
class Use:
    """A template in a graph.

    Attributes:
        right: what the graph gives without a bug.
    """

    template: Template
    setting: Setting
    right: Sequence[np.ndarray]

    def is_killed(self, text: str) -> bool:
        """Whether some order of warps gives other numbers, or the simulator objects."""
        near = TOLERANCES[self.setting.precision]
        for schedule in ("lockstep", "random"):
            try:
                found = _outputs(self.setting, {self.template: text}, schedule)
            except SimulationError:
                return True
            for one, other in zip(found, self.right, strict=True):
                if not np.allclose(one, other, rtol=near, atol=near, equal_nan=True):
                    return True
        return False

    def is_idle(self, text: str) -> bool:
        """Whether the witness of a bug runs."""
        try:
            _outputs(self.setting, {self.template: text}, "lockstep")
        except SimulationError:
            return False
        return True


def tried(
    family: str, used: dict[Template, list[Setting]], most: int, draw: random.Random, end: float
) -> Iterator[Tried]:
    """A family's mutants, at most `most` of each kind in each template."""
    known = {kind: Tried(family, kind) for kind in MUTATIONS}
    for template, settings in used.items():
        if time.monotonic() > end:
            break
        uses = [Use(template, setting, _outputs(setting, {}, "lockstep")) for setting in settings]
        text = cuda_execute.ptx_of(template, settings[0].architecture)
        for kind, mutation in MUTATIONS.items():
            places = mutation.places(text)
            for place in draw.sample(places, min(most, len(places))):
                if time.monotonic() > end:
                    break
                one, mutant = known[kind], mutation.planted(text, place)
                one.planted += 1
                if any(use.is_killed(mutant) for use in uses):
                    one.killed += 1
                elif all(use.is_idle(witness(text, place, mutant)) for use in uses):
                    one.idle += 1
                else:
                    one.survivors += (f"{template.symbol}: {' '.join(place.group().split())}",)
        cuda_execute._module.cache_clear()
    yield from (one for one in known.values() if one.planted)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: see above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="a part of the families' names")
    parser.add_argument("--most", type=int, default=6, help="mutants of each kind in each template (default: 6)")
    parser.add_argument("--graphs", type=int, default=4, help="templates of each family and GPU (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of places")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="plant no further bug after this time")
    parser.add_argument("--json", action="store_true", help="print JSON at the end")
    arguments = parser.parse_args(argv)
    draw, end = random.Random(arguments.seed), time.monotonic() + arguments.seconds
    results = []
    for (family, architecture), used in families(arguments.graphs, arguments.only).items():
        for one in tried(f"{family} {architecture}", used, arguments.most, draw, end):
            results.append(one)
            if not arguments.json:
                rest = one.planted - one.idle
                print(f"{one.family:<30}{one.kind:<28}{one.killed:>4} of {rest:>4}, {one.idle} idle")
                for line in one.survivors:
                    print(f"    lives: {line}")
                sys.stdout.flush()
    killed, rest = sum(one.killed for one in results), sum(one.planted - one.idle for one in results)
    if arguments.json:
        print(json.dumps([vars(one) for one in results], indent=2))
    elif rest:
        print(f"{killed} of {rest} killed, {100 * killed / rest:.1f} %")
    return 0 if rest and killed >= LEAST_KILLED * rest else 1


if __name__ == "__main__":
    sys.exit(main())
