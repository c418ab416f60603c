"""Checks that a graph is well formed; run after the reader and after every pass."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Form, Window
from jitdelegate.ir.graph import ABSENT, Graph, Node

ACCUMULATORS = ("float32", "int32")
STORED_INTEGERS = ("int8", "uint8", "int16")
"""Types of data that integer accumulators sum up."""


def verify(graph: Graph, stage: str) -> None:
    """Nothing, if every index is in range, every value is written once and before it is read.

    Raises:
        AssertionError: the stage left a malformed graph; a bug of ours, never of the model.
    """
    known = {i for i, tensor in enumerate(graph.tensors) if tensor.is_constant or tensor.is_variable}
    known |= set(graph.inputs)
    for position, node in enumerate(graph.nodes):
        where = f"after {stage}: node {position} {node.op}"
        for index in node.inputs:
            assert index == ABSENT or 0 <= index < len(graph.tensors), f"{where} reads %{index}, which does not exist"
            assert index == ABSENT or index in known, f"{where} reads %{index} before it is written"
        for index in node.outputs:
            assert 0 <= index < len(graph.tensors), f"{where} writes %{index}, which does not exist"
            assert index not in known, f"{where} writes %{index} a second time"
            known.add(index)
        if node.form is not None:
            _verify_form(graph, node, node.form, where)
    for index in graph.outputs:
        assert index in known, f"after {stage}: output %{index} is never written"


def _verify_form(graph: Graph, node: Node, form: Form, where: str) -> None:
    extra = len(node.inputs) - form.core
    assert extra >= len(form.operands), f"{where} has {extra} extra inputs for {form.operands}"
    is_fit = form.takes_epilogue or (form.epilogue == RESULT and not form.operands)
    assert is_fit, f"{where} has an epilogue, which {type(form).__name__} does not take"
    if isinstance(form, Window):
        _verify_sums(graph.tensors[node.inputs[0]].dtype, form, where)


def _verify_sums(dtype: str, form: Window, where: str) -> None:
    """A window's accumulator, zero point and halo suit data of this type."""
    assert form.accumulator in ACCUMULATORS, f"{where} sums up in {form.accumulator}"
    if form.accumulator == "float32":
        assert form.input_zero == 0, f"{where} sums up floats from {form.input_zero}"
        return
    assert dtype in STORED_INTEGERS, f"{where} sums up {dtype} as integers"
    for value in (form.input_zero, form.halo_value or 0):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        assert low <= value <= high and value == int(value), f"{where} has {value} among its {dtype}"


def verify_ports(before: Graph, after: Graph, stage: str) -> None:
    """Nothing, if the caller's inputs and outputs after a stage are those before it, one by one.

    Signatures, callers and LiteRT name them by the file's numbers, and programs by their positions. So an input keeps
    its number, and an output keeps its own or gets a new one: never that of another tensor.

    Raises:
        AssertionError: the stage lost, exchanged or changed one; a bug of ours, never of the model.
    """
    assert before.given == after.given, f"after {stage}: inputs are {after.given}, expected {before.given}"
    found, expected = len(after.returned), len(before.returned)
    assert found == expected, f"after {stage}: {found} outputs, expected {expected}"
    for old, new in zip(before.returned, after.returned, strict=True):
        kept = new == old or new >= len(before.tensors)
        assert kept, f"after {stage}: output %{old} has become %{new}, another tensor"
        types = before.tensors[old].dtype, after.tensors[new].dtype
        assert types[0] == types[1], f"after {stage}: output %{old} was {types[0]} and is {types[1]}"
