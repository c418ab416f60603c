"""Shapes of one operator that LiteRT gives before a run, and operators for which it is not called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call, Shape
from jitdelegate.passes import litert_shapes as module
from jitdelegate.passes.litert_shapes import litert_shapes
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder

BYTES = Quant((0.1,), (2,))
WINDOW = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}


def call(op: str, inputs: list[Any], outputs: int = 1, dtype: str = "float32", **attrs: Any) -> Call:
    """An operator over shapes of fed values, tensors and constants; the file's shapes of its outputs are wrong."""
    tensors = [_tensor(each, dtype) for each in inputs if each is not None]
    places = iter(range(len(tensors)))
    operands = tuple(ABSENT if each is None else next(places) for each in inputs)
    made = tuple(range(len(tensors), len(tensors) + outputs))
    quant = BYTES if dtype == "int8" else None
    tensors += [Tensor("out", (7, 7), dtype, quant=quant) for _ in made]
    node = Node(op, operands, made, attrs, origin=(0,))
    return Call(Graph(tuple(tensors), (node,), (), made), node)


def _tensor(found: Any, dtype: str) -> Tensor:
    if isinstance(found, Tensor):
        return found
    if isinstance(found, np.ndarray):
        return Tensor("constant", found.shape, str(found.dtype), found)
    return Tensor("fed", found, dtype, quant=BYTES if dtype == "int8" else None)


@pytest.mark.parametrize(
    ("found", "shapes"),
    [
        (call("DIV", [(2, 3), (3,)], dtype="int8"), ((2, 3),)),
        (call("BATCH_MATMUL", [(2, 3, 4), (2, 5, 4)], dtype="int8", adj_y=True), ((2, 3, 5),)),
        (call("MAX_POOL_2D", [(1, 5, 6, 3)], **WINDOW), ((1, 4, 5, 3),)),
        (call("SUM", [(2, 3), np.array([0, 1], np.int32)], keep_dims=False), ((),)),
        (call("SPLIT", [np.array(1, np.int32), (2, 6)], 3, num_splits=3), ((2, 2),) * 3),
        (call("FULLY_CONNECTED", [(2, 600), np.ones((500, 600), np.float32), None]), ((2, 500),)),
        (call("MATRIX_DIAG", [(2, 3)]), ((2, 3, 3),)),
    ],
)
def test_static_shapes_are_those_that_litert_computes(found: Call, shapes: tuple[Shape, ...]) -> None:
    assert litert_shapes(found) == shapes


@pytest.mark.parametrize(
    "found",
    [
        call("WHERE", [Tensor("fed", (2, 3), "bool")], dtype="int64"),
        call("RESHAPE", [(2, 3), Tensor("shape", (2,), "int32")]),
        call("UNIQUE", [(6,)], 2),
        call("ADD", [(0, 3), (0, 3)]),
        call("ADD", [(2, 3), (4,)]),
        call("NO_OPERATOR", [(2, 3)]),
    ],
)
def test_what_litert_does_not_know_before_a_run_is_unknown(found: Call) -> None:
    assert litert_shapes(found) is None


@pytest.mark.parametrize(
    "found",
    [
        call("MAX_POOL_2D", [(1, 5, 6, 3)], **WINDOW | {"stride_w": 0}),
        call("SPLIT", [np.array(1, np.int32), (2, 6)], 3, num_splits=0),
        call("DEPTH_TO_SPACE", [(1, 2, 2, 4)], block_size=0),
        call("CONV_2D", [(1, 5, 6, 3), None, None], **WINDOW),
        call("READ_VARIABLE", [Tensor("handle", (1,), "resource")]),
        call("ADD", [(2,), (2,)], dtype="string"),
        call("NEG", [Tensor("fed", (), "float32", has_rank=False)]),
        call("NEG", [(1 << 20, 1 << 20)]),
        call("WHILE", [(2,)], cond_subgraph_index=1, body_subgraph_index=2),
        call("NEG", [(2,)], 0),
    ],
)
def test_litert_is_not_asked_what_may_end_the_process(found: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_prepared", lambda *_, **__: pytest.fail("LiteRT was asked"))
    assert litert_shapes(found) is None


@pytest.mark.parametrize(
    "name", ["UNIDIRECTIONAL_SEQUENCE_LSTM", "SVDF", "CONV_2D", "TRANSPOSE_CONV", "RFFT2D", "SPLIT_V"]
)
def test_litert_agrees_with_the_operators_own_shapes(name: str) -> None:
    op = OPS[name]
    for case in op.cases:
        graph = case.graph(op)
        own = Call(graph, graph.nodes[0])
        assert litert_shapes(own) in (None, op.shapes(own))
    assert any(litert_shapes(Call(graph, graph.nodes[0])) for graph in (case.graph(op) for case in op.cases))


def test_only_the_subgraphs_that_a_node_names_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model, more = ModelBuilder(), {"composite_attributes": bytes(flexbuffers.Dumps({}))}
    x = model.input((1, 4), name="x")
    for number in range(1, 6):
        graph = model.subgraph()
        y = graph.input((1, 4))
        options = {"name": "inner", "decomposition_subgraph_index": number + 2, **more}
        made = graph.op("STABLEHLO_COMPOSITE", [y], (1, 4), options=options) if number < 4 else y
        graph.output(graph.op("NEG", [made], (1, 4)))
    options = {"name": "outer", "decomposition_subgraph_index": 3, **more}
    model.output(model.op("STABLEHLO_COMPOSITE", [x], (1, 4), options=options))
    graphs = read(model.finish()).graphs
    written: list[Any] = []
    prepared = module._prepared
    monkeypatch.setattr(
        module, "_prepared", lambda content, **more: written.append(content) or prepared(content, **more)
    )
    node = graphs[0].nodes[0]
    assert litert_shapes(Call(graphs[0], node), graphs) == ((1, 4),)
    assert [len(read(content).graphs) for content in written] == [3] * len(written)
