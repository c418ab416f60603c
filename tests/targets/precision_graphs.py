"""Graphs of products of float32, for the tests of other precisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitdelegate.ir.expr import RESULT, maximum
from jitdelegate.ir.forms import Contract, MatMul, Shape
from jitdelegate.ir.graph import Graph, Node, Tensor

SAME = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
CASES: dict[str, tuple[dict[str, Any], Shape, Shape, Shape]] = {
    "one row": ({}, (1, 260), (33, 260), (1, 33)),
    "rows": ({}, (37, 64), (70, 64), (37, 70)),
    "long rows": ({}, (3, 3001), (20, 3001), (3, 20)),
    "odd channels": ({}, (300, 21), (130, 21), (300, 130)),
    "pixels": ({}, (2, 17, 15, 20), (48, 1, 1, 20), (2, 17, 15, 48)),
    "three channels": (SAME, (1, 16, 17, 3), (16, 3, 3, 3), (1, 16, 17, 16)),
    "window": ({**SAME, "stride": (2, 2)}, (1, 19, 19, 19), (70, 3, 3, 19), (1, 10, 10, 70)),
    "dilation": (
        {"kernel": (3, 2), "dilation": (2, 3), "padding": (2, 2, 1, 2)}, (1, 6, 6, 7), (9, 3, 2, 7), (1, 6, 6, 9)
    ),
    "transposed": (
        {"kernel": (3, 3), "stride": (2, 2), "padding": (0, 1, 0, 1), "transposed": True},
        (1, 4, 5, 13), (20, 3, 3, 13), (1, 8, 10, 20),
    ),
    "few pixels": ({}, (1, 1, 3, 64), (100, 1, 1, 64), (1, 1, 3, 100)),
    "many pixels": ({}, (1, 40, 41, 35), (64, 1, 1, 35), (1, 40, 41, 64)),
}  # fmt: skip
"""Name -> (window, data, weights, result)."""
ALONE: dict[str, tuple[dict[str, Any], Shape, Shape, Shape]] = {
    "groups": ({**SAME, "groups": 3}, (1, 9, 9, 48), (60, 3, 3, 16), (1, 9, 9, 60)),
    "a channel alone in its block": (SAME, (1, 9, 9, 17), (33, 3, 3, 17), (1, 9, 9, 33)),
    "a channel alone": ({"kernel": (1, 9)}, (1, 1, 300, 1), (40, 1, 9, 1), (1, 1, 292, 40)),
}
"""The same, of which no instruction multiplies pairs."""
EVERY = CASES | ALONE


MATRICES = {
    "rows": ((1, 30, 64), (1, 64, 33), {}),
    "odd depth": ((2, 41, 35), (2, 35, 70), {}),
    "a long sum": ((1, 24, 2501), (1, 2501, 20), {}),
    "b transposed": ((3, 70, 33), (3, 50, 33), {"adj_y": True}),
    "few rows": ((2, 5, 64), (2, 64, 40), {}),
    "a transposed": ((1, 64, 70), (1, 64, 40), {"adj_x": True}),
    "large": ((1, 300, 130), (1, 130, 301), {}),
}
"""Name -> (a, b, attributes of the form)."""
EXACT_MATRICES = ("few rows", "a transposed")
"""Those that are multiplied as float32."""


def contract_graph(name: str, weights: np.ndarray | None = None) -> Graph:
    """data f32 -> its product with filters, bias and relu."""
    window, data, filters, result = EVERY[name]
    random = np.random.default_rng(5)
    values = random.normal(0, 1, filters).astype(np.float32) if weights is None else weights
    tensors = (
        Tensor("data", data, "float32"),
        Tensor("weights", filters, "float32", values),
        Tensor("bias", filters[:1], "float32", random.normal(0, 1, filters[0]).astype(np.float32)),
        Tensor("result", result, "float32"),
    )
    form = Contract(**window, epilogue=maximum(RESULT, 0.0))
    return Graph(tensors, (Node("CONV_2D", (0, 1, 2), (3,), form=form),), (0,), (3,))


def feeds_of(graph: Graph) -> list[np.ndarray]:
    return [np.random.default_rng(1).normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]


def matrices_graph(name: str) -> Graph:
    """a f32, b f32 -> half of their product."""
    a, b, attributes = MATRICES[name]
    form = MatMul(**attributes, epilogue=RESULT * 0.5)
    result = a[0], a[2 if form.adj_x else 1], b[1 if form.adj_y else 2]
    tensors = tuple(Tensor(name, shape, "float32") for name, shape in zip("abc", (a, b, result), strict=True))
    return Graph(tensors, (Node("BATCH_MATMUL", (0, 1), (2,), form=form),), (0, 1), (2,))
