"""Cost model: estimated seconds that delegating a partition saves. Nothing can be measured while compiling."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import Call
from jitdelegate.passes.operator_rates import operator_rate
from jitdelegate.passes.partition import borders


@dataclass(frozen=True, slots=True)
class Rates:
    """What compiled code saves and costs, beside LiteRT on one thread of the CPU.

    Attributes:
        saved: the share of LiteRT's time that compiled code does not take; None for a CPU, where operators say it.
        crossing: seconds that a subset more costs, whatever it computes.
        copied: bytes a second between the memory of others and the subset's own.
    """

    saved: float | None
    crossing: float
    copied: float


INSIDE = Rates(saved=None, crossing=5e-7, copied=3e10)
"""CPU code that LiteRT's interpreter calls."""
BESIDE = Rates(saved=None, crossing=8e-6, copied=3e10)
"""CPU code between models of LiteRT's; with a subset of it, there is one of these more too."""
WHOLE = Rates(saved=None, crossing=0.0, copied=inf)
"""CPU code for a whole graph: there is nobody to cross to."""
ON_GPU = Rates(saved=0.9, crossing=3e-5, copied=1e10)
"""Reasoned, not measured."""
MULTIPLIES = 6e10
"""Multiply-adds a second of LiteRT's kernels on one thread of a CPU with AVX-512; the medians of sixteen networks lie
within a fifth of what this and the next two say."""
BYTES = 2e10
"""Bytes a second that they read and write."""
CALL = 4e-7
"""Seconds that LiteRT takes for one operator that computes nothing."""
FUSED = 0.8
"""The share that is saved where an operator is computed together with the one before it."""


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
    return CALL + _kernel_seconds(graph, node)


def _kernel_seconds(graph: Graph, node: Node) -> float:
    op = find(node)
    usual = max(node_work(graph, node) / MULTIPLIES, node_bytes(graph, node) / BYTES)
    return usual * (operator_rate(op).slowdown if op is not None else 1.0)


def saved_seconds(graph: Graph, nodes: Collection[int], rates: Rates) -> float:
    """What one run is shorter for these nodes being one delegated subset; below 0 where it is longer."""
    chosen = [graph.nodes[position] for position in nodes]
    written, read = {i for node in chosen for i in node.outputs}, {i for node in chosen for i in node.inputs}
    gained = sum(CALL + _share(node, written, read, rates) * _kernel_seconds(graph, node) for node in chosen)
    return gained - rates.crossing - _moved_bytes(graph, nodes, rates) / rates.copied


def _share(node: Node, written: Collection[int], read: Collection[int], rates: Rates) -> float:
    """The share of its kernel's time that a node saves in a subset that writes and reads these tensors."""
    op = find(node)
    if rates.saved is not None or op is None:
        return rates.saved or 0.0
    rate = operator_rate(op)
    follows = any(index in written for index in node.inputs)
    if follows and rate.fuses:
        return FUSED
    together = follows or any(index in read for index in node.outputs)
    return rate.saved if together or rate.saved_alone is None else rate.saved_alone


def _moved_bytes(graph: Graph, nodes: Collection[int], rates: Rates) -> int:
    """What goes between the memory of others and a subset's own: on a CPU, what is laid out anew."""
    touched = {index for position in nodes for index in _laid_out(graph.nodes[position], rates)}
    crossing = {index for side in borders(graph, tuple(nodes)) for index in side}
    return sum(tensor_bytes(graph.tensors[index]) for index in crossing & touched)


def _laid_out(node: Node, rates: Rates) -> tuple[int, ...]:
    op = find(node)
    moves = rates.saved is not None or (op is not None and operator_rate(op).changes_layout)
    return (*node.inputs, *node.outputs) if moves else ()
