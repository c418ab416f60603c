"""The parts of a program for a lowered graph: the graph itself as the code, its constants as the weights."""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Kernel
from jitdelegate.targets.reference.serialize import serialize

LOADER = "reference"


@dataclass(frozen=True)
class Generated:
    """The parts of a program.

    Attributes:
        code, weights: as `serialize` gives them.
        kernels: one for each node that computes something.
        origins: per kernel, the positions of the operators that it computes.
    """

    code: bytes
    weights: bytes
    kernels: tuple[Kernel, ...]
    origins: tuple[tuple[int, ...], ...]
    loader: str = LOADER
    arena_bytes: int = 0
    entries: tuple[tuple[str, int], ...] = ()


def generate(graph: Graph) -> Generated:
    """The parts of the program that evaluates a graph whose nodes all carry a form."""
    code, weights = serialize(graph)
    nodes = [node for node in graph.nodes if not isinstance(node.form, View)]
    kernels = tuple(
        Kernel(name=f"{node.op.lower()}_{number}", form=type(node.form).__name__, chunks=1)
        for number, node in enumerate(nodes)
    )
    return Generated(code, weights, kernels, tuple(node.origin for node in nodes))
