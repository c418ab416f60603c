"""Which updates may write into the memory of what they change, and which ports of a program may share memory.

A cache that a run gets as an input and gives back as an output, with some rows replaced, need not be copied then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from jitdelegate.ir.forms import Concat, Form, Map, Reduce, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.ir.index_forms import IndexForm, Update
from jitdelegate.targets.planning.buffer_plan import Buffers, view_roots

Aliases = tuple[tuple[int, int], ...]
MOST_IN_CODE = 64
"""Most elements of a constant that lies beside the code, not in the weights."""


def lies_in_code(constant: np.ndarray) -> bool:
    """Whether a constant lies beside the code: few integers, from which positions may be computed, or a float. The
    weights may be part of a file that somebody overwrites during a run."""
    is_float = constant.dtype.name == "float32" and constant.size == 1
    return is_float or (constant.dtype.name in ("int32", "int64", "bool") and constant.size <= MOST_IN_CODE)


def updates_in_place(graph: Graph, runs_at: Mapping[int, int], others: tuple[type[Form], ...]) -> frozenset[int]:
    """Positions of Updates and nodes of `others` after which nothing needs the data: the result may have its memory.

    Args:
        runs_at: positions of nodes that run later, with the node -> the position after which they run.
        others: forms whose kernels read a row before they write it. Their nodes are found too, except those of outputs,
            which are written straight into the caller's memory.
    """
    groups, reads = view_roots(graph), dict[int, list[tuple[int, int]]]()
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.form, View):
            for operand, index in enumerate(node.inputs):
                if index != ABSENT:
                    reads.setdefault(groups[index], []).append((runs_at.get(position, position), operand))
    kept = {groups[index] for index in graph.outputs}
    return frozenset(
        position
        for position, node in enumerate(graph.nodes)
        if (isinstance(node.form, Update) or (isinstance(node.form, others) and groups[node.outputs[0]] not in kept))
        and groups[node.inputs[0]] not in kept
        and not graph.tensors[groups[node.inputs[0]]].is_constant
        and all(at < position or (at, operand) == (position, 0) for at, operand in reads[groups[node.inputs[0]]])
    )


def aliases(graph: Graph) -> Aliases:
    """Pairs (position of an input, position of an output) of `graph` that may be the same memory in a run.

    The output is the input with windows replaced, or a copy of it. Nothing else reads the input, nor any value on the
    way to the output, so that a run on its own result computes the same again: a run is repeated where its weights lie
    in a file that changes meanwhile. For the same reason, the windows' starts come from other inputs, and from
    constants that `lies_in_code`.
    """
    groups, positions = view_roots(graph), {index: position for position, index in enumerate(graph.inputs)}
    readers = _readers(graph, groups)
    updated: dict[int, tuple[int, list[int]]] = {}
    for output, index in enumerate(graph.outputs):
        source, starts = _origin(graph, groups, readers, index)
        given = positions.get(source, -1)
        is_single = graph.outputs.count(index) == 1 and given not in updated
        if given >= 0 and is_single and graph.tensors[index].size:
            updated[given] = output, starts
    changed = {groups[graph.inputs[given]] for given, (_, starts) in updated.items() if starts}
    return tuple(
        (given, output)
        for given, (output, starts) in sorted(updated.items())
        if all(_is_repeatable(graph, groups, start, changed) for start in starts)
    )


def _readers(graph: Graph, groups: Buffers) -> dict[int, list[int]]:
    """For each group, the positions of the nodes that read it, once for each operand; -1 for each output."""
    readers: dict[int, list[int]] = {groups[index]: [] for index in graph.outputs}
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.form, View):
            for index in node.inputs:
                readers.setdefault(groups[index], []).append(position)
    for index in graph.outputs:
        readers[groups[index]].append(-1)
    return readers


def _origin(graph: Graph, groups: Buffers, readers: Mapping[int, list[int]], output: int) -> tuple[int, list[int]]:
    """(the tensor that the output is a copy or an update of, the starts of the updated windows); ABSENT if none."""
    index, starts = groups[output], list[int]()
    while (position := graph.writer[index]) is not None:
        node = graph.nodes[position]
        if _is_copy(graph, node) and not starts:
            source = groups[node.inputs[0]]
            return (source, []) if graph.writer[source] is None else (ABSENT, [])
        if not isinstance(node.form, Update) or readers[groups[node.inputs[0]]] != [position]:
            return ABSENT, []
        starts.append(node.inputs[2])
        index = groups[node.inputs[0]]
    return (index, starts) if starts else (ABSENT, [])


def _is_copy(graph: Graph, node: Node) -> bool:
    form = form_of(node)
    if not isinstance(form, Map) or not form.moves_only or len(node.inputs) != 1:
        return False
    source, target = (graph.tensors[index].shape for index in (*node.inputs, *node.outputs))
    return source == target and form.operands[0].is_identity()


def _is_repeatable(graph: Graph, groups: Buffers, start: int, changed: set[int]) -> bool:
    """Whether a value depends neither on the inputs `changed` nor on constants among the weights."""
    for index in _needed(graph, start):
        data, position = graph.tensors[index].data, graph.writer[index]
        if groups[index] in changed or (data is not None and not lies_in_code(data)):
            return False
        if position is not None and not _reads_code(graph.nodes[position]):
            return False
    return True


def _reads_code(node: Node) -> bool:
    """Whether kernels of the form read constants where `lies_in_code` says they lie."""
    form = node.form
    return isinstance(form, Map | Concat | View | IndexForm) or (isinstance(form, Reduce) and not form.operands)


def _needed(graph: Graph, index: int) -> Iterator[int]:
    """The tensors that a value depends on, and itself, once each."""
    seen, waiting = {index}, [index]
    while waiting:
        index = waiting.pop()
        yield index
        position = graph.writer[index]
        for source in graph.nodes[position].inputs if position is not None else ():
            if source != ABSENT and source not in seen:
                seen.add(source)
                waiting.append(source)
