"""Nodes that make no sense get a sentence, never an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Weights, ints

UNIT = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
IMAGE = (1, 4, 4, 4)
FILTER = Weights((8, 3, 3, 4))
CASED = [name for name, op in OPS.items() if op.cases]
"""One test looks at all cases of an operator: a check takes less time than a test."""


def reason(graph: Graph) -> str | None:
    node = graph.nodes[0]
    return OPS[node.op].check(graph, node)


def changed(op: str, case: Case, **attrs: Any) -> str | None:
    """What the check says of the case's graph with other options."""
    graph = case.graph(OPS[op])
    node = graph.nodes[0]
    return reason(replace(graph, nodes=(replace(node, attrs={**node.attrs, **attrs}),)))


def test_the_sentence_says_what_was_found() -> None:
    conv = Case((IMAGE, FILTER, Weights((8,))), UNIT)
    assert changed("CONV_2D", conv, stride_h=0) == "CONV_2D: the strides are [0, 1], expected at least 1."
    assert changed("CONV_2D", conv, padding="FULL") == "CONV_2D with padding FULL is not supported."
    tanh = changed("CONV_2D", conv, fused_activation_function="TANH")
    assert tanh == "CONV_2D with the fused activation TANH is not supported."
    concat = Case(((1, 2), (1, 3)), {"axis": 1})
    assert changed("CONCATENATION", concat, axis=7) == "CONCATENATION: axis 7 is out of range for rank 2."
    resize = Case((IMAGE, ints(8, 8)), {"align_corners": True})
    both = changed("RESIZE_BILINEAR", resize, half_pixel_centers=True)
    assert both == "RESIZE_BILINEAR with both align_corners and half_pixel_centers is not supported."


@pytest.mark.parametrize("name", CASED)
def test_no_shape_makes_a_check_fail(name: str) -> None:
    for case in OPS[name].cases:
        graph = case.graph(OPS[name])
        shapes: list[tuple[int, ...]] = [(), (0,), (3,), (1, 0, 4, 4), (7, 5, 3, 2), (1 << 31, 1 << 31), (1,) * 7]
        for index, tensor in enumerate(graph.tensors):
            for shape in shapes:
                data = None if tensor.data is None or np.prod(shape) > 1e6 else np.zeros(shape, tensor.dtype)
                tensors = [*graph.tensors]
                tensors[index] = Tensor(tensor.name, shape, tensor.dtype, data)
                found = reason(replace(graph, tensors=tuple(tensors)))
                assert found is None or found.endswith("."), found


@pytest.mark.parametrize("name", CASED)
def test_no_parameter_makes_a_check_fail(name: str) -> None:
    for case in OPS[name].cases:
        graph = case.graph(OPS[name])
        inputs = graph.nodes[0].inputs
        for index in [inputs[operand] for operand in OPS[name].parameters if operand < len(inputs)]:
            for value in (-(1 << 31), -1, 0, 1, 9, (1 << 31) - 1):
                tensors = [*graph.tensors]
                tensors[index] = replace(tensors[index], data=np.full(tensors[index].shape, value, np.int32))
                found = reason(replace(graph, tensors=tuple(tensors)))
                assert found is None or found.endswith("."), found


@pytest.mark.parametrize("name", CASED)
def test_parameters_of_any_length_get_a_short_sentence(name: str) -> None:
    for case in OPS[name].cases:
        graph = case.graph(OPS[name])
        inputs = graph.nodes[0].inputs
        for index in [inputs[operand] for operand in OPS[name].parameters if operand < len(inputs)]:
            tensors = [*graph.tensors]
            data = np.full(1 << 20, 7, tensors[index].dtype)
            tensors[index] = replace(tensors[index], shape=data.shape, data=data)
            found = reason(replace(graph, tensors=tuple(tensors)))
            assert found is not None
            assert len(found) < 600


def test_a_shape_of_any_length_gets_a_short_sentence() -> None:
    for length in (9, 1 << 20):
        found = changed("RESHAPE", Case(((2, 6),), {"new_shape": (3, 4)}), new_shape=(3,) * length)
        assert found == f"RESHAPE to {length} axes, at most 8 are supported."


@pytest.mark.parametrize("name", CASED)
def test_no_option_makes_a_check_fail(name: str) -> None:
    for case in OPS[name].cases:
        options = [key for key, value in case.attrs.items() if isinstance(value, int)]
        for option in options:
            for value in (-(1 << 31), -1, 0, 3, (1 << 31) - 1):
                found = changed(name, case, **{option: value})
                assert found is None or found.endswith("."), found


@pytest.mark.parametrize("name", CASED)
def test_other_types_and_missing_operands_are_refused(name: str) -> None:
    for case in OPS[name].cases:
        graph = case.graph(OPS[name])
        node = graph.nodes[0]
        assert reason(replace(graph, nodes=(replace(node, inputs=()),))) is not None
        tensors = tuple(replace(tensor, dtype="string", data=None) for tensor in graph.tensors)
        assert reason(replace(graph, tensors=tensors)) is not None


def test_a_strided_slice_takes_vectors() -> None:
    scalar = Tensor("scalar", (), "int32", np.array(1, np.int32))
    tensors = (Tensor("x", (4, 6), "float32"), scalar, Tensor("y", (1, 6), "float32"))
    graph = Graph(tensors, (Node("STRIDED_SLICE", (0, 1, 1, 1), (2,)),), (0,), (2,))
    assert reason(graph) == "STRIDED_SLICE: begin, end and strides are no vectors of one length."
