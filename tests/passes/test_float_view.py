"""The float view of quantized models, against the same graph in integers and the formula of TFLite's GPU delegate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph, Node, Quant, QuantizedOptions, Tensor
from jitdelegate.ops import OPS
from jitdelegate.passes.float_view import float_view
from jitdelegate.targets.reference.evaluate import run_graph
from tests.passes.graphs import UNIT, ops
from tests.targets.integer_graphs import whole_range

VIEW = QuantizedOptions(execution="float_view")


def quantized(shape: tuple[int, ...], scale: float, zero: int, data: np.ndarray | None = None) -> Tensor:
    return Tensor(f"by {scale}", shape, "int8", data, Quant((scale,), (zero,)))


def network() -> Graph:
    """A convolution, a reshape, and an addition of a constant; all int8."""
    weights, scales = whole_range((4, 3, 3, 6), "int8", 1), (0.0006, 0.0012, 0.0003, 0.0009)
    tensors = (
        quantized((1, 6, 7, 6), 0.05, -3),
        Tensor("weights", weights.shape, "int8", weights, Quant(scales, (0,) * 4)),
        Tensor("bias", (4,), "int32", np.array([500, -700, 0, 90], np.int32)),
        quantized((1, 6, 7, 4), 0.05, 11),
        quantized((1, 7, 6, 4), 0.05, 11),
        quantized((1, 1, 1, 4), 0.03, 5, np.array([[[[7, -90, 33, 2]]]], np.int8)),
        quantized((1, 7, 6, 4), 0.0625, -9),
    )
    nodes = (
        Node("CONV_2D", (0, 1, 2), (3,), UNIT | {"fused_activation_function": "RELU"}),
        Node("RESHAPE", (3,), (4,), {"new_shape": [1, 7, 6, 4]}),
        Node("ADD", (4, 5), (6,)),
    )
    return Graph(tensors, nodes, (0,), (6,), quantized=VIEW)


def answers(graph: Graph) -> list[np.ndarray]:
    return run_graph(passes.run(graph, passes=passes.REWRITE), [whole_range((1, 6, 7, 6), "int8", 2)])


def test_every_result_that_is_read_is_rounded_once() -> None:
    found = float_view(network())
    assert ops(found) == ["DEQUANTIZE", "CONV_2D", "QUANTIZE", "RESHAPE", "ADD", "QUANTIZE"]
    assert [found.tensors[index].dtype for index in (*found.inputs, *found.outputs)] == ["int8", "int8"]


def test_the_floats_are_the_numbers_that_integers_stand_for() -> None:
    (found,), (expected,) = answers(network()), answers(replace(network(), quantized=QuantizedOptions()))
    assert found.dtype == expected.dtype
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert (found == expected).mean() > 0.95
    assert len(np.unique(expected)) > 40


def test_without_the_option_nothing_changes() -> None:
    graph = replace(network(), quantized=QuantizedOptions())
    assert float_view(graph) is graph


def test_an_operator_without_floats_keeps_its_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(OPS["ADD"]), "types", ("int32",))
    found = float_view(network())
    assert ops(found) == ["DEQUANTIZE", "CONV_2D", "QUANTIZE", "RESHAPE", "QUANTIZE", "ADD"]
    assert [found.tensors[index].dtype for index in found.nodes[-1].inputs] == ["int8", "int8"]


def test_halves_are_rounded_up_between_the_smallest_and_the_largest_number() -> None:
    """QUANTIZE, and a NEG that reads its result."""
    result = quantized((8,), 0.25, 3)
    tensors = (Tensor("x", (8,), "float32"), result, replace(result, name="negative"), Tensor("y", (8,), "float32"))
    nodes = Node("QUANTIZE", (0,), (1,)), Node("NEG", (1,), (2,)), Node("DEQUANTIZE", (2,), (3,))
    graph = passes.run(Graph(tensors, nodes, (0,), (3,), quantized=VIEW), passes=passes.REWRITE)
    values = np.array([0.125, -0.125, 0.375, 0.1, 31.2, -33.0, 9.0, 1e9], np.float32)
    lowest, highest = 0.25 * (-128 - 3), 0.25 * (127 - 3)
    rounded = np.floor((np.clip(values, lowest, highest) - lowest) / 0.25 + 0.5) * 0.25 + lowest
    again = np.floor((np.clip(-rounded, lowest, highest) - lowest) / 0.25 + 0.5) * 0.25 + lowest
    assert run_graph(graph, [values])[0].tolist() == again.tolist()
