"""Tables that nodes gather rows from and that are matrices as well: stored once, where that costs no time."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from jitdelegate.base.targets import LEVELS
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.ir.index_forms import Gather
from jitdelegate.passes.shared_matrices import shared_matrices
from jitdelegate.targets.cpu.forms import gather
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.host import level
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import GraphBuilder, ModelBuilder
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE

DEPTH = 23


def tokens(rows: int, places: int, pixels: int, *, has_bias: bool = False) -> Graph:
    """(places int32[places,1], data f32[1,pixels,DEPTH]) -> rows of a table, and the data times that table."""
    random = np.random.default_rng(0)
    table = random.normal(0, 1, (rows, DEPTH)).astype(np.float32)
    bias = random.normal(0, 1, rows).astype(np.float32)
    tensors = (
        Tensor("places", (places, 1), "int32"),
        Tensor("data", (1, pixels, DEPTH), "float32"),
        Tensor("table", table.shape, "float32", table),
        Tensor("bias", bias.shape, "float32", bias),
        Tensor("gathered", (places, DEPTH), "float32"),
        Tensor("scores", (1, pixels, rows), "float32"),
    )
    nodes = (
        Node("GATHER", (2, 0), (4,), form=Gather()),
        Node("FULLY_CONNECTED", (1, 2, 3 if has_bias else ABSENT), (5,), form=Contract()),
    )
    return Graph(tensors, nodes, (0, 1), (4, 5))


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("rows", (150, 144, 16, 5))
@pytest.mark.parametrize("has_bias", (False, True))
def test_rows_come_from_the_panels(features: str, rows: int, has_bias: bool) -> None:
    chosen = np.int32([0, rows - 1, rows, -1, rows // 2, rows // 3, 4, 1 << 30])
    graph = tokens(rows, len(chosen), 1000 * len(chosen) // rows + 1, has_bias=has_bias)
    feeds = [chosen[:, None], np.random.default_rng(1).normal(0, 1, graph.tensors[1].shape).astype(np.float32)]
    found, expected = execute(graph, feeds, features), run_graph(graph, feeds)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-4)


@pytest.mark.parametrize(("places", "pixels", "is_shared"), [(8, 60, True), (900, 1, False)])
def test_a_table_is_stored_once_unless_it_is_read_more_than_multiplied(
    places: int, pixels: int, is_shared: bool
) -> None:
    graph = tokens(150, places, pixels)
    weights = generate(graph, "x86-64-v3").weights
    assert (len(weights) < 2 * 4 * graph.tensors[2].size) == is_shared


@pytest.mark.parametrize("pixels", (1200, 2))
def test_a_table_that_another_subgraph_multiplies_by_lies_in_panels_where_that_costs_no_time(pixels: int) -> None:
    graph, chosen = tokens(150, 8, pixels), np.int32([0, 149, 150, -1, 75, 3, 4, 5])[:, None]
    other = Tensor("other", (150, DEPTH), "float32", -graph.tensors[2].data)
    alone = replace(
        graph,
        tensors=(*graph.tensors[:2], replace(graph.tensors[2], is_matrix=True), *graph.tensors[3:], other),
        nodes=(graph.nodes[0], replace(graph.nodes[1], inputs=(1, 6, ABSENT))),
    )
    feeds = [chosen, np.random.default_rng(1).normal(0, 1, graph.tensors[1].shape).astype(np.float32)]
    np.testing.assert_array_equal(execute(alone, feeds, RUNNABLE[0])[0], run_graph(alone, feeds)[0])
    rows = np.asarray(graph.tensors[2].data).tobytes()
    assert (rows in generate(alone, RUNNABLE[0]).weights) == (pixels == 2)


def test_tables_of_one_subgraph_that_are_matrices_of_another_are_marked() -> None:
    made = ModelBuilder()
    scores, table = made.subgraph("scores"), np.ones((150, DEPTH), np.float32)
    places = made.input((4,), dtype="int32")
    made.output(made.op("GATHER", [made.constant(table), places], (4, DEPTH), options={"axis": 0}))
    made.output(made.op("GATHER", [made.constant(2 * table), places], (4, DEPTH), options={"axis": 0}))
    data = scores.input((4, DEPTH))
    scores.output(scores.op("FULLY_CONNECTED", [data, scores.constant(table), None], (4, 150)))
    bias = scores.constant(np.ones(150, np.float32))
    scores.output(scores.op("FULLY_CONNECTED", [data, scores.constant(2 * table), bias], (4, 150)))
    marked = shared_matrices(read(made.finish()))
    assert [[each.is_matrix for each in graph.tensors if each.is_constant] for graph in marked.graphs] == [
        [True, False],
        [False, False, False],
    ]


def test_a_buffer_that_many_nodes_read_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, hashed = ModelBuilder(), list[int]()
    for graph in (made, made.subgraph("scores")):
        table = graph.constant(np.ones((150, DEPTH), np.float32))
        graph.output(graph.op("GATHER", [table, graph.input((2,), "int32")], (2, DEPTH)))
        for _ in range(3):
            graph.output(graph.op("FULLY_CONNECTED", [graph.input((1, DEPTH)), table], (1, 150)))

    def digest(data: memoryview) -> bytes:
        hashed.append(len(data))
        return b""

    monkeypatch.setattr(sys.modules[shared_matrices.__module__], "xxh3_128_digest", digest)
    shared_matrices(read(made.finish()))
    assert len(hashed) == 2


def tied(dtype: str, rows: int, depth: int) -> bytes:
    """Signature "read": int32[3] -> rows of a quantized table, times a matrix; "score": f32[1,depth] -> its products
    with the same table, f32[1,rows], and rows of it."""
    random, half = np.random.default_rng(0), dtype == "int4"
    model = ModelBuilder()
    second = model.subgraph("second")
    low, high = (-8, 8) if half else (-127, 128)
    numbers, others = (random.integers(low, high, (count, depth)) for count in (rows, 64))
    for graph, key in ((model, "read"), (second, "score")):

        def constant(values: np.ndarray, graph: GraphBuilder = graph) -> int:
            if not half:
                scales = np.random.default_rng(1).uniform(0.01, 0.02, len(values)).astype(np.float32)
                return graph.constant(values.astype(np.int8), quant=Quant(tuple(scales.tolist()), (0,) * len(values)))
            pairs = (values.reshape(-1, 2)[:, 0] & 15 | values.reshape(-1, 2)[:, 1] << 4).astype(np.uint8)
            scales = np.random.default_rng(1).uniform(0.01, 0.02, values.size // 32).astype(np.float16)
            quant = Quant(tuple(scales.astype(float).tolist()), (0,), 0, 32)
            return graph.constant(pairs, quant=quant, dtype="int4", shape=values.shape)

        table, places = constant(numbers), graph.input((3,), "int32", name=f"{key} places")
        found = graph.op("EMBEDDING_LOOKUP", [places, table], (3, depth))
        data = found if key == "read" else graph.input((1, depth), name="data")
        matrix = constant(others) if key == "read" else table
        shape = (3, 64) if key == "read" else (1, rows)
        scores = graph.op("FULLY_CONNECTED", [data, matrix, -1], shape, options={"keep_num_dims": False})
        graph.output(found, scores)
        inputs = {"places": places} | ({"data": data} if key == "score" else {})
        model.signature(key, inputs, {"found": found, "scores": scores}, int(key == "score"))
    return model.finish()


@pytest.mark.skipif(not LEVELS[level()].plus_bytes, reason="this machine does not multiply bytes")
@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_a_quantized_table_and_matrix_are_stored_once_for_all_signatures(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, depth = 3000, 64
    content, sizes, outputs = tied(dtype, rows, depth), list[int](), list[dict[str, np.ndarray]]()
    feeds = {
        "places": np.int32([0, 2999, 1234]),
        "data": np.random.default_rng(2).normal(0, 1, (1, depth)).astype(np.float32),
    }
    for least in (0, 1 << 60):
        monkeypatch.setattr(gather, "FEWEST_PRODUCTS", least)
        cache = tmp_path / str(least)
        with jitdelegate.load(content, serialization_dir=cache, target="cpu", cpu_features=level()) as model:
            model.prepare()
            for key, names in (("read", ["places"]), ("score", ["places", "data"])):
                results = model.run({name: feeds[name] for name in names}, signature=key)
                outputs.append({name: np.array(value) for name, value in results.items()})
        sizes.append(sum(each.stat().st_size for each in cache.glob("*.jitd")))
    for shared, apart in zip(outputs[:2], outputs[2:], strict=True):
        for name, value in shared.items():
            np.testing.assert_array_equal(value, apart[name])
    assert sizes[1] - sizes[0] > 0.9 * rows * depth * (0.5 if dtype == "int4" else 1)
