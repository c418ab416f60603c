"""STABLEHLO_SCATTER, in place and at indices outside the data, and STABLEHLO_REDUCE_WINDOW, on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitdelegate import load
from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph
from jitdelegate.ops import OPS
from jitdelegate.ops.stablehlo_windows import COMPUTATION, REPLACE, windows_of
from jitdelegate.passes import FOLD, REWRITE, run
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import node_reason
from jitdelegate.targets.host import level
from jitdelegate.targets.planning.in_place import aliases
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.litert import run_litert
from tests.targets import cuda_execute
from tests.targets.execute import execute

Shape = tuple[int, ...]
CACHE = (2, 3, 7, 4)
"""Batch, heads, positions, depth."""
FORMS: dict[str, tuple[Shape, Shape, Shape, dict[str, Any]]] = {}
"""What is written -> shapes of data, indices and updates, and the options."""


def form(name: str, data: Shape, indices: Shape, updates: Shape, window: Shape, indexed: Shape, vector: int) -> None:
    options = {
        "update_window_dims": list(window),
        "inserted_window_dims": sorted(indexed),
        "scatter_dims_to_operand_dims": list(indexed),
        "index_vector_dim": vector,
    }
    FORMS[name] = data, indices, updates, options


form("rows", (5, 4), (3, 1), (3, 4), (1,), (0,), 1)
form("rows, no axis of index vectors", (5, 4), (3,), (3, 4), (1,), (0,), 1)
CRASHES = "rows, no axis of index vectors"
"""LiteRT reads beyond the indices there."""
form("a position of a cache", CACHE, (1, 1), (1, 2, 3, 4), (1, 2, 3), (2,), 1)
form("positions of a cache", CACHE, (5, 1), (5, 2, 3, 4), (1, 2, 3), (2,), 1)
form("positions of a cache, updates in its order", CACHE, (5, 1), (2, 3, 5, 4), (0, 1, 3), (2,), 1)
form("pairs", CACHE, (5, 2), (5, 2, 4), (1, 2), (1, 2), 1)
form("elements, index vectors along columns", (6, 5), (2, 4), (4,), (), (0, 1), 0)
form("elements, axes in another order", (6, 5), (4, 2), (4,), (), (1, 0), 1)
form("rows by two axes", (6, 5), (2, 3, 1), (2, 3, 5), (2,), (0,), 2)
COMPUTATIONS = (None, "STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")


def model_of(name: str, computation: str | None = None, dtype: str = "float32", indices: Any = "int32") -> bytes:
    """A model of one node; `indices` is the type of an input, or a constant."""
    data, places, updates, options = FORMS[name]
    model = ModelBuilder()
    is_given = isinstance(indices, str)
    operands = [
        model.input(data, dtype),
        model.input(places, indices) if is_given else model.constant(indices),
        model.input(updates, dtype),
    ]
    region = model.subgraph("region")
    old, new = region.input((), dtype), region.input((), dtype)
    region.output(region.op(computation, [old, new], (), dtype=dtype) if computation else new)
    options = {**options, "update_computation_subgraph_index": 1}
    model.output(model.op("STABLEHLO_SCATTER", operands, data, dtype=dtype, options=options))
    return model.finish()


def folded(content: bytes) -> Graph:
    return run(specialize_subgraph(read(content)).graphs[0], passes=FOLD)


def feeds_of(name: str, dtype: str, places: str, seed: int = 0) -> list[np.ndarray]:
    """Indices are up to one beyond the data: LiteRT writes before it at negative ones."""
    data, indices, updates, options = FORMS[name]
    dice = np.random.default_rng(seed)
    most = min(data[axis] for axis in options["scatter_dims_to_operand_dims"])
    values = [(10 * dice.normal(size=shape)).astype(dtype) for shape in (data, updates)]
    return [values[0], dice.integers(0, most + 1, indices).astype(places), values[1]]


@pytest.mark.parametrize("computation", COMPUTATIONS)
@pytest.mark.parametrize("name", FORMS)
def test_results_are_those_of_litert(name: str, computation: str | None) -> None:
    for dtype, places in (("float32", "int32"), ("int32", "int64"), *([] if computation else [("int8", "int64")])):
        content = model_of(name, computation, dtype, places)
        graph = run(folded(content), passes=REWRITE)
        feeds = feeds_of(name, dtype, places)
        attrs = {**FORMS[name][3], COMPUTATION: computation or REPLACE}
        (own,) = OPS["STABLEHLO_SCATTER"].reference(feeds, attrs)
        expected = own if name == CRASHES else run_litert(content, feeds)
        for found in (own, run_graph(graph, feeds)[0], execute(graph, feeds, level())[0]):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_a_gpu_gives_the_same(name: str) -> None:
    graph = run(folded(model_of(name)), passes=REWRITE)
    feeds = feeds_of(name, "float32", "int32")
    np.testing.assert_array_equal(cuda_execute.run(graph, feeds)[0], run_graph(graph, feeds)[0])


@pytest.mark.parametrize("name", ["a position of a cache", "positions of a cache, updates in its order"])
def test_a_cache_is_updated_in_place(name: str) -> None:
    assert aliases(run(folded(model_of(name)), passes=REWRITE)) == ((0, 0),)


def test_negative_indices_touch_nothing() -> None:
    name = "positions of a cache"
    graph, (data, _, updates) = run(folded(model_of(name)), passes=REWRITE), feeds_of(name, "float32", "int32")
    feeds = [data, np.array([[-1], [-7], [7], [1 << 30], [-(1 << 31)]], np.int32), updates]
    for found in (run_graph(graph, feeds), execute(graph, feeds, level()), cuda_execute.run(graph, feeds)):
        np.testing.assert_array_equal(found[0], data)


def test_constant_indices_are_known() -> None:
    name, indices = "rows", np.array([[4], [0], [9]], np.int32)
    content, (data, _, updates) = model_of(name, indices=indices), feeds_of(name, "float32", "int32")
    graph = run(folded(content), passes=REWRITE)
    expected = run_litert(content, [data, updates])
    for found in (run_graph(graph, [data, updates]), execute(graph, [data, updates], level())):
        np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("computation", ["ADD", "STABLEHLO_DIVIDE"])
def test_other_regions_are_refused(computation: str) -> None:
    graph = folded(model_of("rows", computation))
    reason = node_reason(graph, graph.nodes[0])
    assert reason == "STABLEHLO_SCATTER with another region than one sum, product, maximum or minimum."


@pytest.mark.parametrize("repeated", ["update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"])
def test_axes_that_are_named_twice_are_refused(repeated: str) -> None:
    """LiteRT takes the last index for such an axis; StableHLO has no such operators."""
    shapes: dict[str, tuple[Shape, Shape, Shape, Shape, Shape, Shape]] = {
        "update_window_dims": ((3, 3), (3,), (1, 3), (1, 1), (), (0,)),
        "inserted_window_dims": ((5, 4, 3), (3, 1), (3, 4), (1,), (0, 0), (0,)),
        "scatter_dims_to_operand_dims": ((5, 4), (3, 2), (3, 4), (1,), (0,), (0, 0)),
    }
    data, indices, updates, window, inserted, indexed = shapes[repeated]
    options = {
        "update_window_dims": window,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": indexed,
        "index_vector_dim": 1,
    }
    assert isinstance(windows_of(data, indices, updates, options), str)


def window_model(dtype: str, region: str, start: float, **options: Any) -> bytes:
    """A STABLEHLO_REDUCE_WINDOW of [3, 9, 6]."""
    model, data = ModelBuilder(), (3, 9, 6)
    operands = [model.input(data, dtype), model.constant(np.array(start, dtype))]
    body = model.subgraph("region")
    body.output(body.op(region, [body.input((), dtype), body.input((), dtype)], (), dtype=dtype))
    lists = {name: options.get(name, [1] * 3) for name in WINDOW_OPTIONS}
    padding = np.array(options.get("padding", [0] * 6)).reshape(3, 2)
    padded = [(size - 1) * apart + 1 for size, apart in zip(data, lists["base_dilations"], strict=True)]
    spans = [(n - 1) * d for n, d in zip(lists["window_dimensions"], lists["window_dilations"], strict=True)]
    shape = tuple(int((padded[k] + sum(padding[k]) - spans[k] - 1) // lists["window_strides"][k] + 1) for k in range(3))
    lists |= {"padding": padding.reshape(-1).tolist(), "body_subgraph_index": 1}
    model.output(model.op("STABLEHLO_REDUCE_WINDOW", operands, shape, dtype=dtype, options=lists))
    return model.finish()


WINDOW_OPTIONS = ("window_dimensions", "window_strides", "window_dilations", "base_dilations")
CUMULATIVE = {"window_dimensions": [1, 9, 1], "padding": [0, 0, 8, 0, 0, 0]}
REDUCED = {
    "a cumulative sum": window_model("float32", "ADD", 0.0, **CUMULATIVE),
    "a cumulative sum, from 2 on": window_model("float32", "STABLEHLO_ADD", 2.0, **CUMULATIVE),
    "a pool with margins": window_model(
        "float32", "MAXIMUM", -np.inf, window_dimensions=[1, 3, 2], window_strides=[1, 2, 2], padding=[0, 0, 1, 1, 0, 1]
    ),
    "elements apart": window_model(
        "int32",
        "STABLEHLO_MULTIPLY",
        3,
        window_dimensions=[2, 2, 2],
        window_dilations=[1, 3, 2],
        base_dilations=[2, 1, 3],
        padding=[0, 1, -1, 2, 0, -2],
    ),
    "bytes": window_model("int8", "STABLEHLO_MINIMUM", 100, window_dimensions=[1, 4, 1], window_strides=[2, 1, 1]),
    "truths": window_model("bool", "LOGICAL_AND", 1, window_dimensions=[1, 2, 2], padding=[0, 0, 0, 1, 1, 0]),
    "truths of numbers": window_model("int32", "STABLEHLO_AND", 7, window_dimensions=[1, 1, 1]),
}


@pytest.mark.parametrize("name", REDUCED)
def test_windows_are_reduced_as_in_litert(name: str) -> None:
    content, dice = REDUCED[name], np.random.default_rng(5)
    graph = run(folded(content), passes=REWRITE)
    feeds = [dice.integers(-3, 9, (3, 9, 6)).astype(graph.tensors[graph.inputs[0]].dtype)]
    expected = run_litert(content, feeds)
    (node,) = folded(content).nodes
    own = OPS[node.op].reference([feeds[0], folded(content).tensors[node.inputs[1]].data], node.attrs)
    for found in (own, run_graph(graph, feeds), execute(graph, feeds, level()), cuda_execute.run(graph, feeds)):
        np.testing.assert_array_equal(found[0], expected)


def test_windows_of_other_regions_are_refused() -> None:
    graph = folded(window_model("float32", "SUB", 0.0, window_dimensions=[1, 2, 1]))
    assert "another region than one sum" in str(node_reason(graph, graph.nodes[0]))


def cases_of(count: int) -> bytes:
    """RELU, one of two branches by an input, ABS."""
    model = ModelBuilder()
    choice, x = model.input((), "int32", name="choice"), model.input((3, 4), name="x")
    y = model.op("STABLEHLO_CASE", [choice, model.op("RELU", [x], (3, 4))], (3, 4), options=BRANCHES if count else {})
    model.output(model.op("ABS", [y], (3, 4)))
    for op in ("NEG", "EXP"):
        branch = model.subgraph(op)
        branch.output(branch.op(op, [branch.input((3, 4))], (3, 4)))
    return model.finish()


BRANCHES = {"branch_subgraph_indices": [1, 2]}


def test_litert_chooses_the_branch_of_a_case_while_it_runs() -> None:
    model, x = load(cases_of(2)), np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    positive = np.maximum(x, 0)
    for choice, expected in ((0, positive), (1, np.exp(positive)), (7, np.exp(positive))):
        np.testing.assert_allclose(model(np.int32(choice), x), expected, rtol=1e-6)


def test_the_report_says_that_a_branch_is_chosen_while_the_model_runs() -> None:
    graph = specialize_subgraph(read(cases_of(2))).graphs[0]
    reasons = [node_reason(graph, node) for node in graph.nodes]
    assert reasons == [None, "STABLEHLO_CASE: which of its subgraphs runs is known only as the model runs.", None]


def test_a_case_without_branches_is_a_model_error() -> None:
    with pytest.raises(ModelError):
        load(cases_of(0))
