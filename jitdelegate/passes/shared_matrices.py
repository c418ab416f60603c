"""Marks tables that another subgraph multiplies by, as one signature gathers tokens and another one scores them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from xxhash import xxh3_128_digest

from jitdelegate.ir.graph import ABSENT, Graph, Model, Node, Tensor
from jitdelegate.ops.call import Shape

_TABLES = {"GATHER": 0, "EMBEDDING_LOOKUP": 1}
"""Operators that read rows of a table, and its position among their inputs."""
INTEGERS = ("int8", "int4")
"""Types of quantized tables."""


def shared_matrices(model: Model) -> Model:
    """The model with `Tensor.is_matrix` set, so that targets may store such a constant in one way for all programs.

    Of a quantized table, which only targets that multiply bytes read from panels, products of the same subgraph count
    too.
    """
    if len(model.graphs) == 1:
        return model
    types = {"float32", *(INTEGERS if model.graphs[0].quantized.multiplies_bytes else ())}
    tables = [{at for node in graph.nodes if (at := _table(graph, node, types)) != ABSENT} for graph in model.graphs]
    shapes = {graph.tensors[at].shape for graph, found in zip(model.graphs, tables, strict=True) for at in found}
    users, content = dict[tuple[str, Shape, bytes], set[int]](), _Contents()
    for number, graph in enumerate(model.graphs):
        for node in graph.nodes:
            if _multiplies(graph, node, shapes, types):
                users.setdefault(content.of(graph.tensors[node.inputs[1]]), set()).add(number)
    if not users:
        return model
    graphs = list(model.graphs)
    for number, found in enumerate(tables):
        tensors = list(graphs[number].tensors)
        for at in found:
            own = {number} if tensors[at].dtype == "float32" else set()
            tensors[at] = replace(tensors[at], is_matrix=bool(users.get(content.of(tensors[at]), own) - own))
        graphs[number] = replace(graphs[number], tensors=tuple(tensors))
    return replace(model, graphs=tuple(graphs))


def _table(graph: Graph, node: Node, types: Collection[str]) -> int:
    """The constant matrix of one of these types from which a node gathers rows; ABSENT for none."""
    place = _TABLES.get(node.op, len(node.inputs))
    at = node.inputs[place] if place < len(node.inputs) else ABSENT
    return at if at != ABSENT and _is_matrix(graph.tensors[at], types) else ABSENT


def _multiplies(graph: Graph, node: Node, shapes: set[Shape], types: Collection[str]) -> bool:
    """Whether a node multiplies floats by a constant matrix of one of these shapes and types, and adds nothing."""
    if node.op != "FULLY_CONNECTED" or len(node.inputs) < 2 or ABSENT in node.inputs[:2]:
        return False
    weights = graph.tensors[node.inputs[1]]
    is_known = _is_matrix(weights, types) and weights.shape in shapes and set(node.inputs[2:]) <= {ABSENT}
    return is_known and graph.tensors[node.inputs[0]].dtype == "float32"


def _is_matrix(tensor: Tensor, types: Collection[str]) -> bool:
    return tensor.data is not None and tensor.sparsity is None and tensor.dtype in types and len(tensor.shape) == 2


class _Contents:
    """What constants have in common that are equal; a buffer of the file that many nodes read is hashed once."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, int], tuple[bytes, np.ndarray]] = {}

    def of(self, tensor: Tensor) -> tuple[str, Shape, bytes]:
        data = np.ascontiguousarray(tensor.data)
        place = data.__array_interface__["data"][0], data.nbytes
        if place not in self._digests:
            self._digests[place] = xxh3_128_digest(data.data), data
        return tensor.dtype, tensor.shape, self._digests[place][0]
