"""Sums of the data under each window, for kernels whose weights have no zero point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Const, substitute
from jitdelegate.ir.forms import Contract, IndexMap
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.passes.graph_builder import GraphBuilder


def sum_rows(graph: Graph) -> Graph:
    """%2 = CONV_2D(%0, %w) by Contract(filter_zero=5) -> %1 = CONV_2D(%0, ones) by Contract();
    %2 = CONV_2D(%0, %w, %1) by Contract(a0 - 5 * a1), with one filter of ones, or one per output channel of groups."""
    draft = GraphBuilder(graph)
    return draft.graph([each for node in graph.nodes for each in _summed(draft, node)])


def _summed(draft: GraphBuilder, node: Node) -> Iterator[Node]:
    form = node.form
    if not isinstance(form, Contract) or not form.filter_zero:
        yield node
        return
    data, weights, bias, *extra = node.inputs
    output, filters = draft.tensors[node.outputs[0]], draft.tensors[weights].shape
    count = 1 if form.groups == 1 else filters[0]
    ones = draft.constant(f"{node.op} constant", np.ones((count, *filters[1:]), np.int8))
    sums = draft.add(Tensor(output.name, (*output.shape[:-1], count), form.accumulator))
    plain = replace(form, epilogue=RESULT, operands=(), filter_zero=0)
    yield replace(node, inputs=(data, ones, ABSENT), outputs=(sums,), form=plain)
    access = IndexMap.broadcast(draft.tensors[sums].shape, output.shape)
    arguments = RESULT - Arg(1) * Const(form.filter_zero), *(Arg(2 + number) for number in range(len(extra)))
    epilogue = substitute(form.epilogue, arguments)
    form = replace(plain, epilogue=epilogue, operands=(access, *form.operands))
    yield replace(node, inputs=(data, weights, bias, sums, *extra), form=form)
