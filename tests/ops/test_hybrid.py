"""Operators with float32 data and quantized weights: as floats, and with the data quantized as XNNPACK does it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from jitdelegate import passes
from jitdelegate.ir.dequantize import dequantized, integers
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import ABSENT, Graph, Node, QuantizedOptions, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.recurrent import lstm_case
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.write import ModelBuilder
from tests.targets.execute import execute
from tests.targets.levels import INTEGERS, RUNNABLE
from tests.targets.test_cpu_narrow_weights import constant

UNIT = {"stride_h": 1, "stride_w": 1}
FAST = INTEGERS[-1]
"""The instruction set of this machine that multiplies bytes fastest."""
VERSIONS = {"CONV_2D": 5, "FULLY_CONNECTED": 9}
"""The versions of LiteRT's operators that take quantized weights."""


@dataclass(frozen=True)
class Hybrid:
    """A node: the shape of its data, its filter, whether it has a bias, and its options."""

    op: str
    data: tuple[int, ...]
    filter: tuple[int, ...]
    options: dict[str, Any]
    result: tuple[int, ...]
    has_bias: bool = True

    def graph(self, kind: str) -> Graph:
        """The graph of the node with a filter of a kind of `constant`."""
        bias = np.random.default_rng(3).normal(0, 1, self.result[-1:]).astype(np.float32)
        tensors = (
            Tensor("data", self.data, "float32"),
            constant(kind, self.filter),
            Tensor("bias", bias.shape, "float32", bias),
            Tensor("result", self.result, "float32"),
        )
        inputs = (0, 1, 2 if self.has_bias else ABSENT)
        if self.op == "BATCH_MATMUL":
            inputs = inputs[:2]
        return Graph(tensors, (Node(self.op, inputs, (3,), self.options),), (0,), (3,))

    def __str__(self) -> str:
        return f"{self.op}-{'x'.join(map(str, self.data))}-{'x'.join(map(str, self.filter))}"

    @property
    def feed(self) -> np.ndarray:
        """Rows of different ranges; one has no negative number, and one is zero."""
        data = np.random.default_rng(4).normal(0.5, 1, self.data) * np.arange(self.data[-2])[:, None] / self.data[-2]
        if len(self.data) == 2:
            data[-1:] = np.abs(data[-1:])
        return data.astype(np.float32)


PRODUCTS = (
    Hybrid("FULLY_CONNECTED", (5, 64), (33, 64), {"fused_activation_function": "RELU"}, (5, 33)),
    Hybrid("FULLY_CONNECTED", (2, 3, 64), (20, 64), {}, (6, 20), has_bias=False),
    Hybrid("FULLY_CONNECTED", (2, 3, 64), (20, 64), {"keep_num_dims": True}, (2, 3, 20)),
    Hybrid("CONV_2D", (2, 5, 4, 32), (24, 1, 1, 32), {**UNIT, "padding": "VALID"}, (2, 5, 4, 24)),
    Hybrid("CONV_2D", (2, 6, 5, 32), (12, 1, 1, 32), {"stride_h": 2, "stride_w": 2, "padding": "SAME"}, (2, 3, 3, 12)),
    Hybrid("CONV_2D", (2, 7, 6, 8), (12, 3, 3, 8), {**UNIT, "padding": "SAME"}, (2, 7, 6, 12)),
)
OTHERS = (
    Hybrid("CONV_2D", (1, 6, 6, 16), (8, 3, 3, 8), {**UNIT, "padding": "SAME"}, (1, 6, 6, 8)),
    Hybrid("BATCH_MATMUL", (2, 5, 64), (20, 64), {"adj_y": True}, (2, 5, 20)),
)


def lowered(graph: Graph, execution: str, *, multiplies_bytes: bool = True) -> Graph:
    """The graph after all passes."""
    return passes.run(replace(graph, quantized=QuantizedOptions("litert", execution, multiplies_bytes)))


def accumulators(graph: Graph) -> set[str]:
    """What the products of a lowered graph are summed up in."""
    return {node.form.accumulator for node in graph.nodes if isinstance(node.form, Contract)}


@pytest.mark.parametrize("kind", ("int8", "int8 per tensor", "int4", "int8 blocks", "int4 blocks"))
@pytest.mark.parametrize("case", (*PRODUCTS, *OTHERS), ids=str)
def test_weights_stand_for_floats(case: Hybrid, kind: str) -> None:
    graph = case.graph(kind)
    weights = dequantized(graph.tensors[1])
    op, (node,) = OPS[case.op], graph.nodes
    assert op.check(graph, node) is None
    arrays = [case.feed, weights.data, *(graph.tensors[2].data for _ in node.inputs[2:] if case.has_bias)]
    (expected,) = op.reference(arrays, node.attrs)
    view = lowered(graph, "float_view")
    assert accumulators(view) == {"float32"}
    for found in (run_graph(view, [case.feed])[0], execute(view, [case.feed], RUNNABLE[-1])[0]):
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ("int8", "int8 per tensor", "int4", "int4 blocks"))
@pytest.mark.parametrize("case", PRODUCTS, ids=str)
def test_data_is_quantized_as_xnnpack_does_it(case: Hybrid, kind: str) -> None:
    if kind.startswith("int4") and case.op == "CONV_2D":
        pytest.skip("XNNPACK does not take it")
    graph = case.graph(kind)
    expected = xnnpack(graph, case.feed)
    dynamic = lowered(graph, "dynamic")
    assert accumulators(dynamic) == {"float32" if kind == "int4 blocks" else "int32"}
    for found in (run_graph(dynamic, [case.feed])[0], execute(dynamic, [case.feed], FAST)[0]):
        np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())


def xnnpack(graph: Graph, feed: np.ndarray) -> np.ndarray:
    """What LiteRT's default interpreter answers for a graph of one hybrid node."""
    builder, (node,) = ModelBuilder(), graph.nodes
    data, weights, bias, result = graph.tensors
    operands: list[int | None] = [
        builder.input(data.shape),
        builder.constant(weights.data, dtype=weights.dtype, shape=weights.shape, quant=weights.quant),
        None if node.inputs[2] == ABSENT else builder.constant(bias.data),
    ]
    builder.output(builder.op(node.op, operands, result.shape, options=node.attrs, version=VERSIONS[node.op]))
    interpreter = Interpreter(model_content=builder.finish())
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, feed)
    interpreter.invoke()
    found: np.ndarray = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return found


@pytest.mark.parametrize(
    ("case", "multiplies_bytes", "expected"),
    [
        (Hybrid("FULLY_CONNECTED", (1, 64), (33, 64), {}, (1, 33)), True, "int32"),
        (Hybrid("FULLY_CONNECTED", (1, 64), (33, 64), {}, (1, 33)), False, "float32"),
        (Hybrid("FULLY_CONNECTED", (90, 64), (33, 64), {}, (90, 33)), True, "float32"),
        (Hybrid("FULLY_CONNECTED", (90, 64), (256, 64), {}, (90, 256)), True, "int32"),
    ],
    ids=str,
)
def test_auto_takes_the_faster_execution(case: Hybrid, multiplies_bytes: bool, expected: str) -> None:
    found = lowered(case.graph("int8"), "auto", multiplies_bytes=multiplies_bytes)
    assert accumulators(found) == {expected}


@pytest.mark.parametrize("kind", ("int8", "int8 per tensor", "int8 blocks", "int4", "int4 blocks"))
@pytest.mark.parametrize("features", RUNNABLE)
def test_rows_of_a_quantized_table(kind: str, features: str) -> None:
    table, ids = constant(kind, (10, 64)), np.int32([3, 9, 0, 1, 3])
    tensors = (Tensor("ids", (5,), "int32"), table, Tensor("rows", (5, 64), "float32"))
    graph = Graph(tensors, (Node("EMBEDDING_LOOKUP", (0, 1), (2,)),), (0,), (2,))
    assert OPS["EMBEDDING_LOOKUP"].check(graph, graph.nodes[0]) is None
    found = lowered(graph, "auto")
    rows = dequantized(table).data
    assert rows is not None
    sizes = [tensor.data.nbytes for tensor in found.tensors if tensor.data is not None and tensor.data.ndim == 2]
    assert max(sizes) <= integers(table).nbytes
    for answer in (run_graph(found, [ids])[0], execute(found, [ids], features)[0]):
        np.testing.assert_array_equal(answer, rows[ids])


def test_a_recurrent_cell_with_quantized_weights() -> None:
    case = lstm_case((2, 3, 5), 3, 7, time_major=True)
    graph = case.graph(OPS["UNIDIRECTIONAL_SEQUENCE_LSTM"])
    tensors = list(graph.tensors)
    for index, tensor in enumerate(tensors):
        if tensor.data is not None and tensor.data.ndim == 2:
            tensors[index] = replace(constant("int8 per tensor", tensor.shape), name=tensor.name)
    hybrid = replace(graph, tensors=tuple(tensors))
    wide = replace(graph, tensors=tuple(dequantized(each) if each.is_quantized else each for each in tensors))
    assert OPS["UNIDIRECTIONAL_SEQUENCE_LSTM"].check(hybrid, hybrid.nodes[0]) is None
    feeds = feeds_of(wide)
    expected = OPS["UNIDIRECTIONAL_SEQUENCE_LSTM"].reference(
        [None if i == ABSENT else feeds.get(i, wide.tensors[i].data) for i in wide.nodes[0].inputs], wide.nodes[0].attrs
    )
    found = execute(lowered(hybrid, "auto"), [feeds[index] for index in hybrid.inputs], FAST)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)


def feeds_of(graph: Graph) -> dict[int, np.ndarray]:
    """Random values of the inputs."""
    random = np.random.default_rng(2)
    return {i: random.uniform(-1, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs}


@pytest.mark.parametrize("execution", ("auto", "dynamic", "float_view"))
def test_operands_that_are_no_dense_constants_are_refused(execution: str) -> None:
    graph = PRODUCTS[0].graph("int8")
    tensors = (graph.tensors[0], replace(graph.tensors[1], data=None), *graph.tensors[2:])
    found = replace(graph, tensors=tensors, quantized=QuantizedOptions("litert", execution))
    reason = OPS["FULLY_CONNECTED"].check(found, found.nodes[0])
    assert reason is not None
    assert "no dense constant" in reason
