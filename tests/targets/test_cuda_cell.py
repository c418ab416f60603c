"""Cells: steps of recurrent networks as one launch each, and the nodes that are none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr, binary, clamp, unary
from jitdelegate.ir.forms import Contract, Form, IndexMap, Map
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.products.cell import CellTemplate
from jitdelegate.targets.planning import cells as module
from jitdelegate.targets.planning.cells import cells
from jitdelegate.targets.reference.evaluate import run_graph
from scripts.lowered_models import lowered
from tests.conftest import real_model
from tests.ops.quantized_models import LstmModel
from tests.targets.cuda_execute import assert_compiles_everywhere, ptx_of, run, templates_of
from tests.targets.part_graphs import Draft

OWN = IndexMap.along(0, 1)
GATES = 4


def narrowed(value: Expr, shift: int) -> Expr:
    return Cast(clamp(binary("shift_right", value, shift), -128, 127), "int8")


def wide(number: int) -> Expr:
    return Cast(Arg(number), "int32")


FLOATS: dict[str, Expr] = {
    "product": RESULT,
    "sum": RESULT + Arg(1),
    "bias": Arg(0) + Arg(1),
    "state": unary("logistic", Arg(0)) * Arg(3) + unary("logistic", Arg(1)) * unary("tanh", Arg(2)),
    "hidden": unary("logistic", Arg(0)) * unary("tanh", Arg(1)),
}
INTEGERS = {
    "product": narrowed(RESULT, 8),
    "sum": narrowed(Cast(narrowed(RESULT, 7), "int32") + wide(1), 1),
    "bias": narrowed(wide(0) + wide(1), 1),
    "state": narrowed(wide(0) * wide(3) + wide(1) * wide(2), 6),
    "hidden": narrowed(wide(0) * wide(1), 5),
}


class Steps:
    """A graph of steps, each of which adds two products and a bias, and makes a state and a hidden value of the slices
    of the sum; the first hidden value, the first state and the data of all steps are fed."""

    def __init__(self, steps: int, rows: int, units: int, depth: int, dtype: str = "float32") -> None:
        self.random, self.dtype, self.nodes = np.random.default_rng(units), dtype, list[Node]()
        self.exprs = FLOATS if dtype == "float32" else INTEGERS
        self.tensors = [Tensor("input", (rows, size), dtype) for size in (units, units, *[depth] * steps)]
        weights = [self.constant(GATES * units, size) for size in (units, depth)]
        bias, self.states, hidden, state = self.constant(GATES * units), list[int](), 0, 1
        for data in range(2, 2 + steps):
            of_hidden = self.product("product", hidden, weights[0])
            gates = self.product("sum", data, weights[1], of_hidden)
            gates = self.map("bias", (gates, OWN), (bias, IndexMap.along(1)))
            slices = [(gates, IndexMap.along(0, 1, starts=(0, gate * units))) for gate in range(GATES)]
            state = self.map("state", *slices[:3], (state, OWN), width=units)
            hidden = self.map("hidden", slices[3], (state, OWN), width=units)
            self.states.append(state)
        self.graph = Graph(tuple(self.tensors), tuple(self.nodes), tuple(range(2 + steps)), (hidden, state))

    def constant(self, *shape: int) -> int:
        low, high = (-1, 1) if self.dtype == "float32" else (-128, 127)
        self.tensors.append(
            Tensor("constant", shape, self.dtype, self.random.uniform(low, high, shape).astype(self.dtype))
        )
        return len(self.tensors) - 1

    def add(self, name: str, inputs: tuple[int, ...], width: int, form: Form) -> int:
        self.tensors.append(Tensor(name, (self.tensors[0].shape[0], width), self.dtype))
        self.nodes.append(Node(name, inputs, (len(self.tensors) - 1,), form=form))
        return len(self.tensors) - 1

    def product(self, name: str, data: int, weights: int, *extra: int) -> int:
        own = {} if self.dtype == "float32" else {"accumulator": "int32", "filter_zero": 5 * len(extra)}
        form = Contract(self.exprs[name], (OWN,) * len(extra), **own)
        return self.add(name, (data, weights, ABSENT, *extra), self.tensors[weights].shape[0], form)

    def map(self, name: str, *operands: tuple[int, IndexMap], width: int = 0) -> int:
        indices, accesses = zip(*operands, strict=True)
        width = width or self.tensors[indices[0]].shape[1]
        return self.add(name, indices, width, Map(self.exprs[name], accesses))

    def feeds(self) -> list[np.ndarray]:
        shapes = [self.tensors[index].shape for index in self.graph.inputs]
        low, high = (-1, 1) if self.dtype == "float32" else (-128, 128)
        return [self.random.uniform(low, high, shape).astype(self.dtype) for shape in shapes]


CASES = {
    "one row": (2, 1, 8, 8),
    "rows, units and data that fill no access": (2, 3, 5, 7),
    "as many rows as there may be, and one more unit than blocks hold": (1, 4, 33, 12),
    "warps that share out the values": (1, 2, 6, 900),
}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("case", CASES)
def test_a_step_is_one_launch_and_gives_what_the_reference_gives(case: str, dtype: str) -> None:
    steps = Steps(*CASES[case], dtype)
    families = [launch.template.family for launch in plan(steps.graph, GPUS["sm_90"], "float32").launches]
    assert families == ["cell"] * CASES[case][0]
    feeds = steps.feeds()
    for architecture, schedule in (("sm_90", "lockstep"), ("sm_75", "random")):
        pairs = zip(
            run(steps.graph, feeds, architecture, schedule=schedule), run_graph(steps.graph, feeds), strict=True
        )
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, atol=0 if dtype == "int8" else 1e-5)
            assert len(np.unique(found)) > 3


def test_cells_compile_for_all_architectures() -> None:
    templates = [one for case in ((1, 4, 33, 12), (1, 2, 6, 900)) for one in templates_of(Steps(*case, "int8").graph)]
    assert {type(one) for one in templates} == {CellTemplate}
    assert_compiles_everywhere(templates)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_narrow_floats_are_rounded_where_they_are_stored(precision: str) -> None:
    steps = Steps(2, 2, 8, 16)
    feeds = steps.feeds()
    for found, expected in zip(
        run(steps.graph, feeds, precision=precision), run_graph(steps.graph, feeds), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=0.05)


LAST = Steps(1, 2, 8, 8).graph
"""The nodes of one step: two products, the bias, the state and the hidden value."""


def with_node(position: int, **changes: Any) -> Graph:
    """LAST with another node at a position."""
    nodes = list(LAST.nodes)
    nodes[position] = replace(nodes[position], **changes)
    return replace(LAST, nodes=tuple(nodes))


def shifted(access: IndexMap) -> Graph:
    """LAST whose hidden value reads its gate so."""
    form = LAST.nodes[4].form
    assert form is not None
    return with_node(4, form=replace(form, operands=(access, OWN)))


def with_early_reader() -> Graph:
    """LAST with a node between the last two that reads the state, an output of the graph."""
    state = LAST.nodes[3].outputs[0]
    tensors = (*LAST.tensors, LAST.tensors[state])
    twice = Node("ADD", (state,), (len(tensors) - 1,), form=Map(RESULT + RESULT, (OWN,)))
    nodes = (*LAST.nodes[:4], twice, LAST.nodes[4])
    return replace(LAST, tensors=tensors, nodes=nodes, outputs=(*LAST.outputs, len(tensors) - 1))


SMALLER = {
    "more rows than lanes hold": (Steps(1, 5, 8, 8).graph, []),
    "a product that is an output": (replace(LAST, outputs=(*LAST.outputs, LAST.nodes[0].outputs[0])), [4]),
    "a sum that is an output": (replace(LAST, outputs=(*LAST.outputs, LAST.nodes[1].outputs[0])), []),
    "a state that is read before the hidden value is there": (with_early_reader(), [3]),
    "every second channel": (shifted(IndexMap((0, 1), (0, 0), (1, 2))), [3]),
    "a slice that ends outside": (shifted(IndexMap((0, 1), (0, 28), (1, 1), 0.0)), [3]),
    "weights that are fed": (replace(LAST, inputs=(*LAST.inputs, LAST.nodes[1].inputs[1])), []),
    "a sum that is data": (with_node(0, inputs=(0, 3, ABSENT)), [5]),
}


@pytest.mark.parametrize("case", SMALLER)
def test_what_a_unit_does_not_have_to_itself_is_in_no_cell(case: str) -> None:
    graph, sizes = SMALLER[case]
    if case == "weights that are fed":
        weights = graph.inputs[-1]
        tensors = [replace(one, data=None) if at == weights else one for at, one in enumerate(graph.tensors)]
        graph = replace(graph, tensors=tuple(tensors))
    assert [len(cell.positions) for cell in cells(graph)] == sizes


@pytest.mark.parametrize(
    "limit, most", [("MOST_CHANNELS", 8), ("MOST_SUMS", 16), ("MOST_ACCESSES", 7), ("MOST_APPLIES", 12)]
)
def test_cells_have_a_limited_size(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, size in ((most, 5), (most - 1, 3)):
        monkeypatch.setattr(module, limit, number)
        assert [len(cell.positions) for cell in cells(LAST)] == [size]


def test_work_grows_like_the_steps_of_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    elementwise, asked, counts = module._elementwise, list[Node](), list[int]()
    monkeypatch.setattr(module, "_elementwise", lambda node: (asked.append(node), elementwise(node))[1])
    for steps in (60, 120):
        asked.clear()
        draft, state = Draft(*[(1, 8)] * (1 + steps)), 0
        for data in range(1, 1 + steps):
            state = draft.map(Arg(0) * Arg(1), state, data)
        assert not list(cells(draft.graph(state)))
        counts.append(len(asked))
    assert counts[1] < 3 * counts[0]


def test_long_chains_of_work_are_not_too_deep_for_python() -> None:
    draft = Draft((1, 8))
    value = draft.node(Contract(), (0, draft.constant(np.ones((8, 8), np.float32)), ABSENT), (1, 8))
    for _ in range(600):
        value = draft.map(unary("abs", Arg(0)), value)
    template, *_ = templates_of(draft.graph(value))
    assert isinstance(template, CellTemplate)
    assert "abs.f32" in ptx_of(template, "sm_90")


@pytest.mark.parametrize("features", [{}, {"coupled": True}, {"peepholes": True}], ids=str)
def test_each_further_step_of_an_integer_lstm_takes_one_launch_more(features: dict[str, Any]) -> None:
    found = [launches(LstmModel(steps=steps, batch=1, **features).content()) for steps in (6, 9)]
    assert found[1] - found[0] == Counter(cell=3)


MOST_LAUNCHES = {
    "real/basic_lstm_quantized_small_old": 53,
    "real/micro_speech_lstm": 53,
    "real/keras_lstm_mnist_ptq": 33,
    "real/trained_lstm_int8": 32,
    "generated/lstm_while.float32": 59,
}


@pytest.mark.parametrize("name", MOST_LAUNCHES)
def test_real_networks_take_a_launch_for_each_step_and_a_few_more(name: str) -> None:
    assert launches(real_model(name).read_bytes()).total() <= MOST_LAUNCHES[name]


def launches(content: bytes) -> Counter[str]:
    """How many launches of each family a model takes."""
    graph = lowered(content)
    assert graph is not None
    return Counter(launch.template.family for launch in plan(graph, GPUS["sm_90"], "float32").launches)
