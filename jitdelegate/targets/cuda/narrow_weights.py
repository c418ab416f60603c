"""Weights of floats that were integers in the file: kept as wide as they were there, and multiplied as floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.dequantize import requantized
from jitdelegate.ir.expr import RESULT, Arg, substitute
from jitdelegate.ir.forms import Contract, IndexMap
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.passes.graph_builder import GraphBuilder

WIDTHS = ("int8", "int16")
"""The second is for uint8 minus a zero point."""


def narrow_weights(graph: Graph) -> Graph:
    """Contract(x, w: f32, b) -> Contract(x, v: i8) with the epilogue a0 * a1 + a2, where w = v * a1 and a2 = b."""
    draft = GraphBuilder(graph)
    return draft.graph([_narrowed(draft, node) for node in graph.nodes])


def _narrowed(draft: GraphBuilder, node: Node) -> Node:
    form, found = node.form, _integers(draft, node)
    if found is None or not isinstance(form, Contract):
        return node
    numbers, scales = found
    data, _, bias, *extra = node.inputs
    first, rank = 1 + len(extra), len(draft.tensors[node.outputs[0]].shape)
    total, added = RESULT * Arg(first), [draft.constant("scales", scales)]
    if bias != ABSENT:
        total, added = total + Arg(first + 1), [*added, bias]
    epilogue = substitute(form.epilogue, [total, *map(Arg, range(1, first))])
    operands = (*form.operands, *(IndexMap.along(rank - 1),) * len(added))
    inputs = (data, draft.constant("weights", numbers), ABSENT, *extra, *added)
    return replace(node, inputs=inputs, form=replace(form, epilogue=epilogue, operands=operands))


def _integers(draft: GraphBuilder, node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    """The node's weights as integers [O, ...] and float32 scales [O]; None where they are other floats."""
    if not isinstance(node.form, Contract) or node.form.accumulator != "float32":
        return None
    weights = draft.tensors[node.inputs[1]]
    if weights.grid is None or weights.data is None:
        return None
    found = (requantized(weights.data, weights.grid, dtype) for dtype in WIDTHS)
    numbers, scales = next((each for each in found if each is not None), (None, None))
    return None if numbers is None or scales is None or scales.shape[1] > 1 else (numbers, scales.reshape(-1))
