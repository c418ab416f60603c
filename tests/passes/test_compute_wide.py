"""Operators on types that kernels only move: float16, and small integers that are not quantized."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph, Node, Quant, Tensor
from jitdelegate.ir.verify import verify
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes import REWRITE, run
from jitdelegate.passes.compute_wide import compute_wide
from jitdelegate.targets.reference.evaluate import run_graph
from tests.ops.litert import model_of
from tests.targets import cuda_execute
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE

OPERATORS = [(name, dtype) for name, op in OPS.items() for dtype in op.narrow if dtype != "bfloat16"]
"""tests/ops/test_bfloat16.py has those of bfloat16."""
STEP = 2.0**-10
"""Of float16, relative."""
ROUGH = 16 * STEP
"""XNNPACK sums float16 in float16, and its exponentials are rough."""


def narrow(name: str, case: Case, dtype: str) -> tuple[Graph, list[np.ndarray]]:
    """The case's graph and feeds with `dtype` for float32."""
    graph = case.graph(OPS[name])
    tensors = (
        replace(tensor, dtype=dtype, data=None if tensor.data is None else tensor.data.astype(dtype))
        if tensor.dtype == "float32"
        else tensor
        for tensor in graph.tensors
    )
    feeds = [feed.astype(dtype) if feed.dtype == np.float32 else feed for feed in case.feeds()]
    return replace(graph, tensors=tuple(tensors)), feeds


def first(name: str, dtype: str) -> tuple[Graph, list[np.ndarray]]:
    """The first case with float32 values, or the one that LiteRT takes in float16."""
    cases = [case for case in OPS[name].cases if "float32" in {t.dtype for t in case.graph(OPS[name]).tensors}]
    return narrow(name, cases[2 if name == "DEPTHWISE_CONV_2D" else 0], dtype)


def litert(graph: Graph, feeds: list[np.ndarray]) -> np.ndarray:
    """The output of LiteRT's default interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model_of(graph))
    interpreter.allocate_tensors()
    for index, feed in zip(graph.inputs, feeds, strict=True):
        interpreter.set_tensor(index, feed)
    interpreter.invoke()
    return interpreter.get_tensor(graph.outputs[0])


def assert_near(found: np.ndarray, expected: np.ndarray, error: float) -> None:
    """Equal, and float16 within an error relative to itself, or to the largest value."""
    assert found.dtype == expected.dtype
    if found.dtype != np.float16:
        np.testing.assert_array_equal(found, expected)
        return
    wide = [array.astype(np.float32) for array in (found, expected)]
    largest = float(np.abs(wide[1][np.isfinite(wide[1])]).max(initial=0))
    np.testing.assert_allclose(*wide, rtol=error, atol=error / 8 * largest)


@pytest.mark.parametrize(("name", "dtype"), OPERATORS)
def test_results_are_those_of_litert_on_every_cpu(name: str, dtype: str) -> None:
    graph, feeds = first(name, dtype)
    assert OPS[name].check(graph, graph.nodes[0]) is None
    lowered = run(graph, passes=REWRITE)
    verify(lowered, "rewrite")
    expected = run_graph(lowered, feeds)[0]
    assert_near(litert(graph, feeds), expected, ROUGH)
    for features in RUNNABLE:
        assert_near(execute(lowered, feeds, features)[0], expected, STEP)


@pytest.mark.parametrize(("name", "dtype"), OPERATORS)
def test_results_are_rounded_once(name: str, dtype: str) -> None:
    """As numpy computes them from the same numbers in float32 or int32."""
    graph, feeds = first(name, dtype)
    node, wide = graph.nodes[0], {"float16": np.float32}.get(dtype, np.int32)
    values = iter(feeds)
    arrays = [next(values) if graph.tensors[k].data is None else graph.tensors[k].data for k in node.inputs]
    with np.errstate(over="ignore"):
        converted = [a.astype(wide) if a is not None and a.dtype == dtype else a for a in arrays]
        expected = OPS[name].reference(converted, node.attrs)[0].astype(graph.tensors[node.outputs[0]].dtype)
    assert_near(run_graph(run(graph, passes=REWRITE), feeds)[0], expected, STEP)


@pytest.mark.parametrize("name", sorted({name for name, dtype in OPERATORS if dtype == "float16"}))
def test_a_gpu_gives_the_same(name: str) -> None:
    graph, feeds = first(name, "float16")
    lowered = run(graph, passes=REWRITE)
    assert_near(cuda_execute.run(lowered, feeds)[0], run_graph(lowered, feeds)[0], STEP)


def test_float16_is_dequantized_while_a_model_runs() -> None:
    tensors = (Tensor("x", (3, 17), "float16"), Tensor("y", (3, 17), "float32"))
    graph = Graph(tensors, (Node("DEQUANTIZE", (0,), (1,)),), (0,), (1,))
    feeds = [np.random.default_rng(0).normal(size=(3, 17)).astype(np.float16)]
    lowered = run(graph, passes=REWRITE)
    found = [run_graph(lowered, feeds), cuda_execute.run(lowered, feeds)]
    for answer in [*found, *(execute(lowered, feeds, features) for features in RUNNABLE)]:
        np.testing.assert_array_equal(answer[0], litert(graph, feeds))


def test_a_value_is_converted_once_for_all_its_readers() -> None:
    tensors = tuple(Tensor(name, (4,), "float16") for name in "abcd")
    nodes = (Node("TANH", (0,), (1,)), Node("ADD", (0, 0), (2,)), Node("RESHAPE", (0,), (3,), {"new_shape": (4,)}))
    graph = Graph(tensors, nodes, (0,), (1, 2, 3))
    ops = [node.op for node in compute_wide(graph).nodes]
    assert ops == ["CAST", "TANH", "CAST", "ADD", "CAST", "RESHAPE"]


def test_moved_and_quantized_values_keep_their_type() -> None:
    quant = Quant((0.5,), (0,), 0)
    for op, dtype, own in (("TRANSPOSE", "float16", None), ("MAXIMUM", "int8", quant)):
        graph = Graph(
            tuple(Tensor(name, (4,), dtype, quant=own) for name in "abc"), (Node(op, (0, 1), (2,)),), (0, 1), (2,)
        )
        assert [node.op for node in compute_wide(graph).nodes] == [op]
