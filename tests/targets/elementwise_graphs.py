"""Graphs of one Map over operands of equal length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitdelegate.ir.expr import Expr, result_type
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.verify import verify

SAME = IndexMap((0,), (0,), (1,))


def of_elements(expr: Expr, types: Sequence[str], size: int) -> Graph:
    """A Map of operands of `types` of so many elements each."""
    types = [*types, result_type(expr, types) or "float32"]
    tensors = tuple(Tensor(f"tensor{k}", (size,), dtype) for k, dtype in enumerate(types))
    last = len(tensors) - 1
    node = Node("OP", tuple(range(last)), (last,), form=Map(expr, (SAME,) * last))
    graph = Graph(tensors, (node,), tuple(range(last)), (last,))
    verify(graph, "the test")
    return graph


def near_ties() -> list[np.ndarray]:
    """Operands of a * b + c: any numbers, and ones whose exact results lie so little beside the middle of two float32
    that their float64 is that middle."""
    random, columns = np.random.default_rng(0), list[tuple[float, float, float]]()
    for sign in (1.0, -1.0, 1024.0):
        little, less = sign * (1 + 2.0**-23), 1 - 2.0**-23  # whose product is a little less than one
        columns += [(2.0**-24 * little, less, little), (2.0**-25 * little, less, sign * (2.0**-24 - 1))]
    columns += [(np.inf, 1, 1), (np.inf, 1, -np.inf), (3e38, 2, -3e38), (3e38, 2, 0), (0, 1, -0.0), (np.nan, 1, 1)]
    given = np.array(columns, np.float32).T
    return [np.concatenate(pair) for pair in zip(random.normal(0, 1, (3, 1000)).astype(np.float32), given, strict=True)]
