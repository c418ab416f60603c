"""The reference target against the operators' own references: every case, random graphs and small real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.errors import ModelError
from jitdelegate.ir import forms, index_forms
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes.lower import lower
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import port_problem, unsupported
from jitdelegate.targets.reference.forms import FORMS
from jitdelegate.tflite.read import read
from tests.ops.litert import model_of
from tests.targets.random_graphs import graph_of
from tests.targets.reference_execute import execute
from tests.targets.test_cpu_ops import CASES
from tests.tflite.scripts import script

FUZZ = script("fuzz_graphs")
FIXTURES = (
    *("add", "multi_add", "sub", "lstm", "custom_lstm", "unidirectional_sequence_lstm", "call_once_mul"),
    *("multi_signatures", "multi_subgraphs_while", "test_model_redux_precision", "zero_size_constant"),
)
SEEDS = range(80)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_an_operator_is_evaluated_as_its_reference_says(name: str, case: Case) -> None:
    op = OPS[name]
    results = execute(lower(case.graph(op)), case.feeds())
    for found, expected in zip(results, case.outputs(op), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        error = 2e-6 if expected.dtype.kind in "fc" else 0
        np.testing.assert_allclose(found, expected, rtol=error, atol=error * scale)


def test_every_form_has_a_function() -> None:
    named = (*vars(forms).values(), *vars(index_forms).values())
    found = {each for each in named if isinstance(each, type) and issubclass(each, forms.Form)}
    assert found == {*FORMS, forms.Form, forms.Map, forms.Window, index_forms.IndexForm, index_forms.IndexedForm}


def test_the_largest_of_a_window_is_a_number_where_there_is_one() -> None:
    image = np.full((1, 3, 3, 1), -2, np.float32)
    image[0, 1, 1] = np.nan
    form = forms.Pool(kind="max", kernel=(2, 2), padding=(1, 0, 1, 0))
    np.testing.assert_array_equal(execute(one_form(form, image.shape), [image])[0], np.full_like(image, -2))


def test_results_are_rounded_before_the_epilogue() -> None:
    """Their sum is no float32, but halfway between two of them."""
    form = forms.Reduce(kind="sum", axes=(0,), epilogue=forms.RESULT + (-(2.0**24)))
    (found,) = execute(one_form(form, (2,), ()), [np.array([2.0**24, 1], np.float32)])
    assert found == 0


def test_products_of_integers_are_exact() -> None:
    """The sum is odd and above 2**24: a float32 would round it."""
    a, b = np.full((1, 2049), 127, np.int8), np.full((2049, 1), 127, np.int8)
    tensors = (Tensor("a", a.shape, "int8"), Tensor("b", b.shape, "int8"), Tensor("c", (1, 1), "int32"))
    form = forms.MatMul(accumulator="int32", input_zero=-2)
    (found,) = execute(Graph(tensors, (Node("OP", (0, 1), (2,), form=form),), (0, 1), (2,)), [a, b])
    assert found == 2049 * 129 * 127
    assert found % 2 == 1


def one_form(form: forms.Form, shape: tuple[int, ...], result: tuple[int, ...] | None = None) -> Graph:
    """A graph of one form, of one operand; its result has the operand's shape unless it is given."""
    tensors = (Tensor("x", shape, "float32"), Tensor("y", shape if result is None else result, "float32"))
    return Graph(tensors, (Node("OP", (0,), (1,), form=form),), (0,), (1,))


def folded(content: bytes) -> Graph | None:
    """A model's main subgraph before it is lowered; None where it is not compiled as a whole."""
    try:
        model = specialize_subgraph(read(content))
    except ModelError:
        return None
    graph = passes.run(model.graphs[0], passes=passes.FOLD)
    return None if unsupported(model, graph) or port_problem(graph) else graph


def first_values(graph: Graph) -> list[np.ndarray]:
    """Of the states."""
    before = [graph.tensors[state.before] for state in graph.states]
    zeros = [np.zeros(tensor.shape, tensor.dtype) for tensor in before]
    return [zero if state.initial is None else state.initial for state, zero in zip(graph.states, zeros, strict=True)]


def fed(tensor: Tensor, numbers: np.random.Generator) -> np.ndarray:
    """Random values; integers are at least 0, for they may be indices."""
    low = -2 if tensor.dtype.startswith("float") else 0
    return np.asarray(numbers.uniform(low, 2, tensor.shape)).astype(tensor.dtype)


def check(graph: Graph, numbers: np.random.Generator) -> None:
    """The target answers as the operators' references do."""
    feeds = [fed(graph.tensors[index], numbers) for index in graph.given]
    expected = FUZZ.by_references(graph, [*feeds, *first_values(graph)])[: len(graph.returned)]
    found = execute(passes.run(graph, passes=passes.REWRITE), feeds)
    for ours, wanted in zip(found, expected, strict=True):
        assert FUZZ.difference(ours, wanted) <= FUZZ.LIMIT


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph_is_evaluated_as_its_operators_are(seed: int) -> None:
    graph = folded(model_of(graph_of(seed)))
    assert graph is not None
    check(graph, np.random.default_rng(seed))


@pytest.mark.parametrize("name", FIXTURES)
def test_a_small_real_model_is_evaluated_as_its_operators_are(models: Path, name: str) -> None:
    graph = folded((models / "fixtures" / f"{name}.bin.tflite").read_bytes())
    assert graph is not None
    check(graph, np.random.default_rng(0))
