"""SVDF's states and time weights, which LiteRT's integer kernel treats as int16 whatever their type.

It would write past the end of int8 states, which TensorFlow Lite for Microcontrollers supports. So such models are
compiled, and LiteRT gets them, with both widened to int16, with the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import ABSENT, Graph, Model, Node
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.pack import pack_model
from jitdelegate.tflite.read import read
from jitdelegate.tflite.record import Record

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_TIME, _STATE = 2, 4
_WORDS = {_TIME: "its weights over time", _STATE: "its state"}
_NARROW, _WIDE = "int8", "int16"


@dataclass(frozen=True, slots=True)
class NarrowState:
    """An SVDF that LiteRT cannot run unchanged.

    Attributes:
        graph, position: of the operator.
        reason: one sentence.
    """

    graph: int
    position: int
    reason: str


def narrow_states(model: Model) -> tuple[NarrowState, ...]:
    """The SVDF operators with int8 states.

    Raises:
        ModelError: LiteRT would access memory beyond states or weights that cannot be widened.
    """
    narrow = []
    for number, graph in enumerate(model.graphs):
        for position, node in _svdf(graph):
            operands = " and ".join(_WORDS[operand] for operand in reversed(_narrow(graph, node, position)))
            if operands:
                taken = f"LiteRT's kernel takes {operands} for {_WIDE}"
                reason = f"SVDF: {taken}, so a copy of the model has to run that has such."
                narrow.append(NarrowState(number, position, reason))
    return tuple(narrow)


def widened(content: ReadableBuffer) -> bytes:
    """The model with the states and weights found by `narrow_states` as int16."""
    file, large = Cutter(content).model()
    buffers: list[Record] = list(file["buffers"])
    subgraphs = [dict(subgraph) for subgraph in file["subgraphs"]]
    for graph, subgraph in zip(read(content).graphs, subgraphs, strict=True):
        tensors = list(subgraph.get("tensors", ()))
        for position, node in _svdf(graph):
            for operand in _narrow(graph, node, position):
                index = node.inputs[operand]
                tensors[index] = {**tensors[index], "type": _WIDE.upper(), "buffer": _widen(graph, index, buffers)}
        subgraph["tensors"] = tensors
    return pack_model({**file, "buffers": buffers, "subgraphs": subgraphs}, large)


def _svdf(graph: Graph) -> Iterator[tuple[int, Node]]:
    for position, node in enumerate(graph.nodes):
        if node.op == "SVDF" and not node.custom and len(node.inputs) > _STATE and ABSENT not in _needed(node):
            yield position, node


def _needed(node: Node) -> tuple[int, ...]:
    return node.inputs[0], node.inputs[_TIME], node.inputs[_STATE]


def _narrow(graph: Graph, node: Node, position: int) -> list[int]:
    """The operands that have to be widened.

    Raises:
        ModelError: an operand has neither the type that LiteRT's kernel assumes, nor int8.
    """
    is_integer = graph.tensors[node.inputs[0]].dtype == _NARROW
    expected = {_TIME: _WIDE, _STATE: _WIDE} if is_integer else {_STATE: "float32"}
    operands = []
    for operand, dtype in expected.items():
        tensor = graph.tensors[node.inputs[operand]]
        if tensor.dtype == dtype:
            continue
        if tensor.dtype != _NARROW or not is_integer:
            raise ModelError(
                f"operator {position} (SVDF): '{tensor.title}' is {tensor.dtype}, expected {dtype}; "
                "LiteRT would access memory beyond its end"
            )
        operands.append(operand)
    return operands


def _widen(graph: Graph, index: int, buffers: list[Record]) -> int:
    """The number of a buffer with the constant's elements as int16; 0 for a state, which has none."""
    data = graph.tensors[index].data
    if data is None:
        return 0
    buffers.append({"data": data.astype(np.int16).tobytes()})
    return len(buffers) - 1
