"""From TFLite's operators to kernel forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS, Lowering, Reshaped
from jitdelegate.passes.draft import Draft


def lower(graph: Graph) -> Graph:
    """%2 = RELU(%0) -> %2 = RELU(%0) by Map(max(a0, 0.0)), for every node.

    A tensor that the form reads or writes under another shape goes through a View of its own. Every node has passed
    its operator's check.
    """
    draft = Draft(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _lowered(draft, node, OPS[node.op].lower(graph, node))
    return draft.graph(nodes)


def _lowered(draft: Draft, node: Node, lowering: Lowering) -> Iterator[Node]:
    """Views of what the form reads, the node itself, a View of what it writes."""
    inputs: list[int] = []
    for entry in lowering.inputs:
        if isinstance(entry, Reshaped):
            inputs.append(_reshaped(draft, entry))
            yield Node("RESHAPE", (entry.index,), (inputs[-1],), origin=node.origin, form=View())
        elif isinstance(entry, np.ndarray):
            inputs.append(draft.constant(f"{node.op} constant", entry))
        else:
            inputs.append(entry)
    (output,) = node.outputs
    if lowering.shape is None:
        yield replace(node, inputs=tuple(inputs), form=lowering.form)
    else:
        written = _reshaped(draft, Reshaped(output, lowering.shape))
        yield replace(node, inputs=tuple(inputs), outputs=(written,), form=lowering.form)
        yield Node("RESHAPE", (written,), (output,), origin=node.origin, form=View())


def _reshaped(draft: Draft, entry: Reshaped) -> int:
    source = draft.tensors[entry.index]
    return draft.add(Tensor(source.name, entry.shape, source.dtype))
