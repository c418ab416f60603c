"""Graphs of one Map over operands of equal length."""

from __future__ import annotations

from collections.abc import Sequence

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
