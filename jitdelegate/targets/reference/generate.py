"""Generates the program of a lowered graph: the graph itself is the code, its constants are the weights."""

from __future__ import annotations

from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Kernel
from jitdelegate.targets.reference.serialize import serialize
from jitdelegate.targets.target import Generated


def generate(graph: Graph, loader: str) -> Generated:
    """The program of a graph whose nodes all carry a form; equal graphs give equal bytes."""
    code, weights = serialize(graph)
    nodes = [node for node in graph.nodes if not isinstance(node.form, View)]
    kernels = [
        Kernel(name=f"{node.op.lower()}_{number}", form=type(node.form).__name__, chunks=1)
        for number, node in enumerate(nodes)
    ]
    return Generated(
        loader=loader,
        code=code,
        weights=weights,
        entries=(),
        kernels=tuple(kernels),
        origins=tuple(node.origin for node in nodes),
        arena_bytes=0,
    )
