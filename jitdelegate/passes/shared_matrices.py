"""Marks tables that another subgraph multiplies by, as one signature gathers tokens and another one scores them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from xxhash import xxh3_128_digest

from jitdelegate.ir.graph import ABSENT, Graph, Model, Node, Tensor
from jitdelegate.ops.call import Shape

_TABLES = {"GATHER": 0, "EMBEDDING_LOOKUP": 1}
"""Operators that read rows of a table, and its position among their inputs."""


def shared_matrices(model: Model) -> Model:
    """The model with `Tensor.is_matrix` set, so that targets may store such a constant in one way for all programs."""
    if len(model.graphs) == 1:
        return model
    tables = [{at for node in graph.nodes if (at := _table(graph, node)) != ABSENT} for graph in model.graphs]
    shapes = {graph.tensors[at].shape for graph, found in zip(model.graphs, tables, strict=True) for at in found}
    users: dict[tuple[Shape, bytes], set[int]] = defaultdict(set)
    for number, graph in enumerate(model.graphs):
        for node in graph.nodes:
            if _multiplies(graph, node, shapes):
                users[_content(graph.tensors[node.inputs[1]])].add(number)
    if not users:
        return model
    graphs = list(model.graphs)
    for number, found in enumerate(tables):
        tensors = list(graphs[number].tensors)
        for at in found:
            tensors[at] = replace(tensors[at], is_matrix=bool(users[_content(tensors[at])] - {number}))
        graphs[number] = replace(graphs[number], tensors=tuple(tensors))
    return replace(model, graphs=tuple(graphs))


def _table(graph: Graph, node: Node) -> int:
    """The constant float matrix from which a node gathers rows; ABSENT for none."""
    place = _TABLES.get(node.op, len(node.inputs))
    at = node.inputs[place] if place < len(node.inputs) else ABSENT
    return at if at != ABSENT and _is_matrix(graph.tensors[at]) else ABSENT


def _multiplies(graph: Graph, node: Node, shapes: set[Shape]) -> bool:
    """Whether a node multiplies by a constant float matrix of one of these shapes, and adds nothing."""
    if node.op != "FULLY_CONNECTED" or len(node.inputs) < 2 or ABSENT in node.inputs[:2]:
        return False
    weights = graph.tensors[node.inputs[1]]
    return _is_matrix(weights) and weights.shape in shapes and set(node.inputs[2:]) <= {ABSENT}


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.data is not None and tensor.sparsity is None and tensor.dtype == "float32" and len(tensor.shape) == 2


def _content(tensor: Tensor) -> tuple[Shape, bytes]:
    return tensor.shape, xxh3_128_digest(np.ascontiguousarray(tensor.data).data)
