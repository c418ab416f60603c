"""Weights of floats that were integers in the file: kept as wide as they were there, and multiplied as floats, or as
integers where the data is dequantized just before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.dequantize import requantized
from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, substitute
from jitdelegate.ir.forms import Contract, IndexMap, Map
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops.call import scale, zero
from jitdelegate.ops.quantization import real_value
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.remove_dead import remove_dead

BYTES = ("int8", "uint8")
WIDTHS = ("int8", "int16")
"""The second is for uint8 minus a zero point."""


def narrow_weights(graph: Graph) -> Graph:
    """Contract(x, w: f32, b) -> Contract(x, v: i8) with the epilogue a0 * a1 + a2, where w = v * a1 and a2 = b.

    %1 = DEQUANTIZE(%0: i8); Contract(%1, v: i8) -> Contract(%0, v: i8), a sum of integers.
    """
    draft = GraphBuilder(graph)
    narrowed = draft.graph([_narrowed(draft, node) for node in graph.nodes])
    return remove_dead(replace(narrowed, nodes=tuple(_summed(narrowed, node) for node in narrowed.nodes)))


def _summed(graph: Graph, node: Node) -> Node:
    """A Contract of dequantized bytes by bytes as one of the bytes themselves."""
    form, position = node.form, graph.writer[node.inputs[0]] if node.inputs[0] != ABSENT else None
    if not isinstance(form, Contract) or form.accumulator != "float32" or position is None:
        return node
    if node.inputs[2] != ABSENT:
        return node  # a bias of floats, which a sum of integers does not take
    source = graph.nodes[position]
    stored = graph.tensors[source.inputs[0]]
    if graph.tensors[node.inputs[1]].dtype != "int8" or not _dequantizes(source, stored):
        return node
    total = Cast(RESULT, "float32") * Const(float(scale(stored)))
    epilogue = substitute(form.epilogue, [total, *map(Arg, range(1, 1 + len(form.operands)))])
    whole = replace(form, epilogue=epilogue, accumulator="int32", input_zero=zero(stored), halo_value=zero(stored))
    return replace(node, inputs=(source.inputs[0], *node.inputs[1:]), form=whole)


def _dequantizes(node: Node, stored: Tensor) -> bool:
    """Whether a node makes floats of all elements of `stored`, in order, and nothing else."""
    if not isinstance(node.form, Map) or stored.dtype not in BYTES or stored.quant is None or len(node.inputs) > 1:
        return False
    return node.form.epilogue == real_value(Arg(0), stored) and node.form.operands[0].is_identity()


def _narrowed(draft: GraphBuilder, node: Node) -> Node:
    form, integers = node.form, _integers(draft, node)
    if integers is None or not isinstance(form, Contract):
        return node
    numbers, scales = integers
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
    if not weights.is_constant:
        return None
    exact = (requantized(weights, dtype) for dtype in WIDTHS)
    numbers, scales = next((pair for pair in exact if pair is not None), (None, None))
    return None if numbers is None or scales is None or scales.shape[1] > 1 else (numbers, scales.reshape(-1))
