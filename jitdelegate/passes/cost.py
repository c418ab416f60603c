"""What delegating a subset of a graph's nodes saves, estimated: there is no run to measure when a model is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import Call
from jitdelegate.passes.partition import borders


@dataclass(frozen=True, slots=True)
class Rates:
    """What compiled code saves and costs, beside LiteRT on one thread of the CPU.

    Attributes:
        saved: the share of LiteRT's time that compiled code does not take; None where each operator says it.
        crossing: seconds that a subset more costs, whatever it computes.
        copied: bytes a second between the memory of others and the subset's layouts.
    """

    saved: float | None
    crossing: float
    copied: float


INSIDE = Rates(saved=None, crossing=3e-7, copied=3e10)
"""CPU code that LiteRT's interpreter calls."""
BESIDE = Rates(saved=None, crossing=8e-6, copied=3e10)
"""CPU code between models of LiteRT's; with a subset of it, there is one of these more too."""
ON_GPU = Rates(saved=0.9, crossing=3e-5, copied=1e10)
"""Reasoned, not measured."""
MULTIPLIES = 6e10
"""Multiply-adds a second of LiteRT's kernels on one thread of a CPU with AVX-512; the medians of sixteen networks lie
within a fifth of what this and the next two say."""
BYTES = 2e10
"""Bytes a second that they read and write."""
CALL = 2e-7
"""Seconds that LiteRT takes for one operator that computes nothing."""


def rates_of(target: str, loader: str) -> Rates:
    """The rates of a program's compiled pieces."""
    return ON_GPU if target == "cuda" else INSIDE if loader == "delegate" else BESIDE


def node_bytes(graph: Graph, node: Node) -> int:
    """Bytes that a node reads and writes."""
    indices = (*(index for index in node.inputs if index != ABSENT), *node.outputs)
    return sum(tensor_bytes(graph.tensors[index]) for index in indices)


def tensor_bytes(tensor: Tensor) -> int:
    """Of the dense tensor; one a element for types that numpy has not."""
    try:
        return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
    except TypeError:
        return prod(tensor.shape)


def node_work(graph: Graph, node: Node) -> int:
    """Multiply-adds of a node, or steps of about their size; 0 where nobody knows."""
    op, call = find(node), Call(graph, node)
    return op.work(call) if op is not None and op.knows_shapes(call) else 0


def litert_seconds(graph: Graph, node: Node) -> float:
    """What the node takes on LiteRT."""
    return CALL + max(node_work(graph, node) / MULTIPLIES, node_bytes(graph, node) / BYTES)


def saved_seconds(graph: Graph, nodes: Iterable[int], rates: Rates) -> float:
    """What one run is shorter for these nodes being one delegated subset; below 0 where it is longer."""
    chosen = tuple(nodes)
    inputs, outputs = borders(graph, chosen)
    gained = sum(
        _saved(graph.nodes[position], rates) * litert_seconds(graph, graph.nodes[position]) for position in chosen
    )
    moved = sum(tensor_bytes(graph.tensors[index]) for index in (*inputs, *outputs))
    return gained - rates.crossing - moved / rates.copied


def _saved(node: Node, rates: Rates) -> float:
    op = find(node)
    return rates.saved if rates.saved is not None else op.saves if op is not None else 0.0
