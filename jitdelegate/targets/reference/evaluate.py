"""Evaluates a lowered graph with numpy, node by node. This defines what every target has to compute.

A node's value is its form's own result (`forms.FORMS`), with floats rounded to float32, passed through the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jitdelegate.ir import expr
from jitdelegate.ir.forms import IndexMap
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.index_forms import IndexedForm
from jitdelegate.targets.planning.refusals import sentence
from jitdelegate.targets.reference.forms import FORMS

Array = np.ndarray
Shape = tuple[int, ...]


def evaluate(graph: Graph, inputs: Sequence[Array], states: Sequence[Array] = ()) -> tuple[list[Array], list[Array]]:
    """One run of a graph whose nodes all carry a form.

    Args:
        inputs: one array per `graph.given`.
        states: values of the states before the run, one array per `graph.states`.
    Returns:
        (outputs, states): one array per `graph.returned`, and the value of each state after the run.
    """
    results = run_graph(graph, [*inputs, *states])
    return results[: len(graph.returned)], results[len(graph.returned) :]


def run_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """One array per `graph.outputs`; `inputs` has one array per `graph.inputs`. Both include states."""
    values = {i: tensor.data for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
    values |= dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        (output,) = node.outputs
        operands = [None if i == ABSENT else values[i] for i in node.inputs]
        tensor = graph.tensors[output]
        values[output] = run_node(node, operands, tensor.shape).astype(tensor.dtype)
    return [values[i] for i in graph.outputs]


def run_node(node: Node, operands: Sequence[Any], shape: Shape) -> Array:
    """The form's own result through its epilogue, as an array of `shape`.

    Raises:
        RefusedValueError: an index lies outside, which is an error of the form.
    """
    form = node.form
    assert form is not None
    if isinstance(form, IndexedForm) and form.refusal:
        form = replace(form, refusal=sentence(node, form.refusal))
    with np.errstate(all="ignore"):
        own = [FORMS[type(form)](form, operands, shape).reshape(shape)] if form.has_result else []
        own = [result.astype(np.float32) if result.dtype == np.float64 else result for result in own]
        extra = [read(x, access, shape) for x, access in zip(operands[form.core :], form.operands, strict=False)]
        return np.broadcast_to(expr.evaluate(form.epilogue, own + extra), shape)


def read(operand: Array, access: IndexMap, shape: Shape) -> Array:
    """The operand's value for every output index."""
    grid = np.indices(shape, sparse=True)
    index: list[Any] = []
    inside: Any = True
    for dim, start, step, size in zip(access.dims, access.starts, access.steps, operand.shape, strict=True):
        position = start if dim < 0 else start + step * grid[dim]
        inside = inside & (position >= 0) & (position < size)
        index.append(np.clip(position, 0, size - 1))
    assert access.fill is not None or np.all(inside), f"{access} leaves {operand.shape}"
    values = np.where(inside, operand[tuple(index)], np.asarray(access.fill or 0).astype(operand.dtype))
    return np.broadcast_to(values, shape)
