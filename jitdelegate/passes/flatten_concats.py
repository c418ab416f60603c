"""Lets a concatenation of parts of another one read the operands of that one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from jitdelegate.ir.forms import Concat, IndexMap, Map
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.works_on import works_on

Run = tuple[int, tuple[int, ...]]
"""An axis, and tensors that lie one after another along it."""


@works_on(Concat)
def flatten_concats(graph: Graph) -> Graph:
    """%2 = CONCATENATION(%0, %1); %3 = SLICE(%2), which is %1; %5 = CONCATENATION(%3, %4) ->
    %5 = CONCATENATION(%1, %4).

    Requires that only slices read the first one, and that slices end where its operands end, or within constants. The
    loop of a recurrent network so puts its rows in a list of them, one after another; nothing copies the list then.
    """
    draft, runs, nodes = GraphBuilder(graph), dict[int, Run](), list[Node]()
    for node in graph.nodes:
        if isinstance(node.form, Concat):
            axis = node.form.axis
            node = replace(node, inputs=tuple(_operands(runs, axis, node.inputs)))
            readers = (graph.nodes[reader] for reader in graph.readers[node.outputs[0]])
            if node.outputs[0] not in graph.outputs and all(_is_slice(graph, reader, axis) for reader in readers):
                runs[node.outputs[0]] = axis, node.inputs
        elif node.inputs and node.inputs[0] in runs and _is_slice(graph, node, runs[node.inputs[0]][0]):
            found = _part(draft, graph, node, runs[node.inputs[0]])
            if found is not None:
                runs[node.outputs[0]] = found
        nodes.append(node)
    return remove_dead(draft.graph(nodes))


def _operands(runs: dict[int, Run], axis: int, indices: Sequence[int]) -> Iterator[int]:
    """The operands of a Concat, with those of the lists that they are parts of in place of these."""
    for index in indices:
        along, parts = runs.get(index, (axis, (index,)))
        yield from parts if along == axis else (index,)


def _part(draft: GraphBuilder, graph: Graph, node: Node, run: Run) -> Run | None:
    """What a slice of a list has; None if it begins or ends within an operand that is no constant."""
    axis, indices = run
    form, length = node.form, graph.tensors[node.outputs[0]].shape[axis]
    assert isinstance(form, Map)
    first, found, at = form.operands[0].starts[axis], list[int](), 0
    for index in indices:
        tensor = draft.tensors[index]
        size = tensor.shape[axis]
        low, high = max(first - at, 0), min(first + length - at, size)
        at += size
        if low >= high:
            continue
        if (low, high) == (0, size):
            found.append(index)
        elif tensor.data is None:
            return None
        else:
            cut = np.asarray(tensor.data)[(slice(None),) * axis + (slice(low, high),)]  # rows of a list share memory
            found.append(draft.add(replace(tensor, shape=cut.shape, shape_signature=(), grid=None).holding(cut)))
    return axis, tuple(found)


def _is_slice(graph: Graph, node: Node, axis: int) -> bool:
    """Whether a node gives a range of its operand along an axis."""
    form = node.form
    if not isinstance(form, Map) or not form.moves_only or len(node.inputs) != 1:
        return False
    before, after = (list(graph.tensors[index].shape) for index in (*node.inputs, *node.outputs))
    (access,) = form.operands
    starts = [access.starts[axis] if at == axis else 0 for at in range(len(before))]
    return (
        len(before) == len(after)
        and before[:axis] + before[axis + 1 :] == after[:axis] + after[axis + 1 :]
        and access == IndexMap.along(*range(len(before)), starts=tuple(starts))
    )
