"""Small graphs for every family of CUDA kernels, and what becomes of them where a kernel is changed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from jitdelegate import passes
from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.ir.index_forms import Update
from jitdelegate.ops import OPS
from jitdelegate.passes.lower import lower
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import unsupported
from jitdelegate.targets.cuda.code.choices import Choices, Question
from jitdelegate.targets.cuda.code.gpu import GPUS, Costs
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.walks import split_k
from jitdelegate.tflite.read import read
from scripts.fuzz_cuda import AnyChoices, all_fused
from scripts.fuzz_graphs import GRAPHS
from scripts.one_op_models import MAKERS, one_op_models
from tests.ops.litert import model_of
from tests.targets import cuda_execute, index_graphs, normalize_graphs
from tests.targets import test_cuda_cell as cell
from tests.targets import test_cuda_contract as contract
from tests.targets import test_cuda_depthwise as depthwise
from tests.targets import test_cuda_integer_contract as integer_contract
from tests.targets import test_cuda_integer_depthwise as integer_depthwise
from tests.targets import test_cuda_pool as pool
from tests.targets import test_cuda_recurrent as recurrent
from tests.targets import test_cuda_separable as separable
from tests.targets.cuda_graphs import graph_of
from tests.targets.matmul_graphs import ADJOINTS, attention, bytes_matmul, matmul

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
"""Copies through registers; asynchronous ones; and dependent launches and clusters too."""
PRECISIONS = ("float32", "float16")
TOLERANCES = {"float32": 2e-6, "float16": 1e-2}
DRAWS = {"any": 60, "fused": 120, "moves": 30, "parts": 30, "passes": 30}
QUANTIZED_MODELS = 2
USES_OF_TEMPLATE = 4
LARGEST = 80_000
"""Elements of all tensors of a graph, which the simulator runs in a second."""


class Run(NamedTuple):
    """One run of a graph: the order of warps, and what is fed: numbers between -2 and 2, of which some are `spread`
    times as large, and a share are NaN, which spread to all that reads them; or integers, of which many are equal."""

    schedule: str
    spread: int = 1
    is_whole: bool = False
    share: float = 0
    seed: int = 0


RUNS = (
    Run("lockstep"),
    Run("lockstep", is_whole=True, share=1 / 30, seed=1),
    Run("random", spread=20, share=1 / 300, seed=2),
)


@dataclass(frozen=True, eq=False)
class Fed:
    """A lowered graph.

    Attributes:
        feeds: of its inputs; None for random ones.
    """

    graph: Graph
    feeds: tuple[np.ndarray, ...] | None = None

    @property
    def elements(self) -> int:
        """Elements of all tensors."""
        return sum(int(np.prod(tensor.shape)) for tensor in self.graph.tensors)

    def draw(self, run: Run) -> Sequence[np.ndarray]:
        """What is fed."""
        random = np.random.default_rng(run.seed)
        return self.feeds or [_drawn(random, self.graph.tensors[index], run) for index in self.graph.inputs]


def _drawn(random: np.random.Generator, tensor: Tensor, run: Run) -> np.ndarray:
    kind = np.dtype(tensor.dtype)
    if kind.kind == "f":
        values = random.uniform(-2, 2, tensor.shape)
        values *= np.where(random.random(tensor.shape) < 0.1, run.spread, 1)
        values = np.where(random.random(tensor.shape) < run.share, np.nan, values)
        return (np.rint(values) if run.is_whole else values).astype(kind)
    if kind.kind == "b" or kind.itemsize > 2:  # an index, which has to be small
        return random.integers(0, 2 if kind.kind == "b" else 3, tensor.shape).astype(kind)
    return random.integers(np.iinfo(kind).min, np.iinfo(kind).max, tensor.shape, kind, endpoint=True)


class Extreme(Choices):
    """Takes the candidates of the smallest or the largest numbers, of which those of parts come last in their names."""

    def __init__(self, extreme: Callable[..., str]) -> None:
        super().__init__()
        self._extreme = extreme

    def answer(self, problem: str, question: Question) -> str:
        return self._extreme(question.ranked, key=lambda name: [*map(int, re.findall(r"\d+", name))][::-1])


CHOICES: dict[str, Callable[[], Choices]] = {
    "any": partial(AnyChoices, 0),
    "smallest": partial(Extreme, min),
    "largest": partial(Extreme, max),
}
"""Candidates of kernels: any; the smallest tiles, so that small graphs have many of them; and most parts, which show
most of kernels that are the same for all."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A graph and how it is compiled.

    Attributes:
        candidates: which ones its kernels take, one of `CHOICES`.
    """

    fed: Fed
    architecture: str
    precision: str
    candidates: str

    def templates(self) -> Sequence[Template]:
        """The kernels that it runs; none where it does not compile."""
        try:
            with _joined():
                chosen = CHOICES[self.candidates]()
                return plan(self.fed.graph, GPUS[self.architecture], self.precision, chosen).templates
        except CompileError:
            return ()

    def run(self, run: Run, texts: Mapping[Template, str]) -> list[np.ndarray]:
        """The outputs where templates have these texts; raises SimulationError."""
        own = cuda_execute.ptx_of

        def ptx_of(template: Template, architecture: str) -> str:
            return texts.get(template) or own(template, architecture)

        with patch.object(cuda_execute, "ptx_of", ptx_of), _joined(), np.errstate(all="ignore"):
            return cuda_execute.run(
                self.fed.graph,
                self.fed.draw(run),
                self.architecture,
                self.precision,
                run.schedule,
                choices=CHOICES[self.candidates](),
            )


@contextmanager
def _joined() -> Iterator[None]:
    """Small graphs have clusters too, where a GPU and a kernel have them, and one kernel computes all that it can."""
    costs = Costs(cluster=-1e9, exchange=-1e9)
    with (
        patch.object(split_k, "FEWEST_OF_CLUSTER", 1),
        patch.dict(GPUS, {name: replace(GPUS[name], costs=costs) for name in ARCHITECTURES}),
        all_fused(),
    ):
        yield


def graphs() -> Iterator[Fed]:
    """Those of tests, random graphs of all kinds, and quantized models of one operator."""
    yield from graphs_of_tests()
    drawn = (model_of(GRAPHS[kind](seed)) for kind, count in DRAWS.items() for seed in range(count))
    quantized = (model.content for model in one_op_models(tuple(MAKERS), QUANTIZED_MODELS))
    for content in chain(drawn, quantized):
        model = specialize_subgraph(read(content), 0, (), ())
        folded = passes.run(model.graphs[0], passes=passes.FOLD)
        if not unsupported(model, folded):
            yield Fed(passes.run(folded, passes=passes.REWRITE))


def graphs_of_tests() -> Iterator[Fed]:
    """Cases of operators, and tables of tests: every family has one of them."""
    for op in OPS.values():
        for case in op.cases:
            graph = case.graph(op)
            if op.check(graph, graph.nodes[0]) is None:
                yield Fed(lower(graph))
    more = index_graphs.scattered((15, 1), (3, 18)), index_graphs.largest((2, 300), 110, "int32")
    for form, feeds, shape, dtype in (*index_graphs.EXAMPLES.values(), *more):
        has_places = len(feeds) > 1
        yield Fed(index_graphs.graph_of(form, feeds, shape, dtype), tuple(feeds) if has_places else None)
    starts = np.array([(0, 4), (9, 4), (3, 4), (8, 4), (3, 4), (5, 0), (-1, 4), (2, 8), (6, 9), (7, 3)], np.int32)
    windows = [np.ones((9, 16), np.float32), index_graphs.numbers((len(starts), 1, 8)), starts]
    yield Fed(index_graphs.graph_of(Update(clamps=False), windows, (9, 16), "float32"), tuple(windows))
    yield from map(Fed, _of_edges())


def _of_edges() -> Iterator[Graph]:
    """Equal kernels in sizes that fill tiles and that do not, with one step and many, in one block and several."""
    for adjoint, sizes in product(ADJOINTS, [(5, 71, 33), (64, 64, 64), (70, 40, 130), (40, 261, 24), (1, 300, 50)]):
        yield matmul(sizes, ((), ()), adjoint)
        yield bytes_matmul(sizes, adjoint)
    few = product((20, 3), (4, 8), (13, 270), (28, 32))
    for sizes in [*few, *product((40, 3, 17), (16,), (30, 96, 390), (16,)), (2, 8, 700, 8), (2, 20, 530, 3)]:
        yield attention(sizes, adj_y=True)
    for table in (contract.CONVOLUTIONS, contract.TRANSPOSED):
        yield from (case.graph for case in table.values())
    for rows, depth, outputs in [(5, 70, 33), (64, 64, 64), (70, 40, 130), (9, 3000, 16), (2, 1100, 50), (3, 64, 9)]:
        yield contract.dense(rows, depth, outputs).graph
    for channels, outputs in [(16, 16), (64, 64), (33, 40), (130, 40)]:
        yield contract.convolution((1, 9, 10, channels), outputs, padding=(1, 1, 1, 1)).graph
    yield from integer_contract.CASES.values()
    yield from integer_contract.LONG_SUMS.values()
    yield from separable.BYTES.values()
    for filter_zero, rows in product((0, 9), (1, 4, 9)):
        yield integer_contract.problem((rows, 2060), 20, filter_zero=filter_zero)
        yield integer_contract.windowed(12, 9, filter_zero=filter_zero, **integer_contract.WIDE)
    yield from (cell.Steps(*sizes, dtype).graph for sizes, dtype in product(cell.CASES.values(), ("float32", "int8")))
    yield from integer_depthwise.CASES.values()
    for shape in [(1, 9, 10, 16), (2, 17, 33, 8), (1, 5, 6, 7), (1, 30, 9, 64)]:
        yield from (depthwise.layer(shape), depthwise.layer(shape, stride=(2, 2)))
        yield depthwise.layer(shape, kernel=(5, 5), padding=(2, 2, 2, 2))
        yield separable.Pair(shape, 24).graph
        yield separable.Pair(shape, 40, stride=(2, 2), kernel=(5, 5), padding=(2, 2, 2, 2)).graph
    for kind, case in product(("mean", "max"), pool.WINDOWS):
        yield pool.window(case, kind)
    yield from (*recurrent.CASES.values(), *recurrent.PROJECTED.values(), *normalize_graphs.WHOLE)
    for shape in [(3, 5), (40, 33), (2, 9, 300), (1, 1100), (5, 64), (300, 4)]:
        last = len(shape) - 1
        yield normalize_graphs.softmax(shape, (last,))
        yield normalize_graphs.softmax(shape, (0,))
        yield normalize_graphs.layer(shape, (last,), shape[-1:], shape[-1:])
    for shape in [(70, 130), (64, 64), (33, 400), (128, 36)]:
        yield graph_of(Map(Arg(0), (IndexMap.along(1, 0),)), [shape], shape[::-1])
        yield graph_of(Map(Arg(0) * 2.0, (IndexMap.along(2, 0, 1),)), [(3, *shape)], (*shape, 3))


def families(only: str = "") -> dict[str, dict[tuple[str, Template], list[Setting]]]:
    """family -> (architecture, template) -> some graphs that have it, of all sizes."""
    found: dict[str, dict[tuple[str, Template], list[Setting]]] = defaultdict(lambda: defaultdict(list))
    small = [fed for fed in graphs() if fed.elements <= LARGEST]
    for fed, architecture, precision, candidates in product(small, ARCHITECTURES, PRECISIONS, CHOICES):
        setting = Setting(fed, architecture, precision, candidates)
        for template in setting.templates():
            if only in template.family:
                found[template.family][architecture, template].append(setting)
    return {family: {key: _spread(used) for key, used in known.items()} for family, known in sorted(found.items())}


def _spread(used: Sequence[Setting]) -> list[Setting]:
    """At most `USES_OF_TEMPLATE` of them: small ones first, which kill as well mostly, and the largest last."""
    unique = {id(setting.fed): setting for setting in used}
    ranked = sorted(unique.values(), key=lambda setting: setting.fed.elements)
    count = min(len(ranked), USES_OF_TEMPLATE)
    return [ranked[number * (len(ranked) - 1) // max(1, count - 1)] for number in range(count)]
