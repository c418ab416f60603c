"""Decides how each runtime tensor lies in memory: blocked by the vector width where kernels gain, row-major elsewhere.

A tensor is blocked if it is an image with more channels than half a vector, if every node that reads or writes it
accepts blocked images, and if at least one of the nodes connected to it through blocked images runs faster on them.
Images whose windows reach over the border get a halo of zeros, so kernels need no border checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import NO_HALO, Halo, Shape, Window
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.ir.layout import Layout, image_shape


def choose_layout(graph: Graph, lanes: int) -> dict[int, Layout]:
    """The layout of every tensor that nodes read or write, except constants."""
    halos, values = _all_halos(graph)
    touched = {i for node in graph.nodes for i in (*node.inputs, *node.outputs) if i != ABSENT}
    touched |= {*graph.inputs, *graph.outputs}
    runtime = {index: graph.tensors[index] for index in sorted(touched) if not graph.tensors[index].is_constant}
    suited = {
        index
        for index, tensor in runtime.items()
        if len(tensor.shape) == 4 and tensor.shape[3] > lanes // 2 and tensor.dtype == "float32"
    }
    blocked = _gaining(graph, suited.difference(_row_major(graph, lanes)))
    return {
        index: Layout(
            image_shape(tensor.shape),
            lanes,
            index in blocked,
            halos.get(index, NO_HALO),
            tensor.dtype,
            values.get(index, 0.0),
        )
        for index, tensor in runtime.items()
    }


def _gaining(graph: Graph, suited: set[int]) -> set[int]:
    """The tensors in `suited` that are connected, through tensors in `suited`, to a node whose kernel is faster on
    blocked images; other kernels are equally fast on both layouts."""
    links = [
        [index for index in dict.fromkeys((*node.inputs, *node.outputs)) if index in suited] for node in graph.nodes
    ]
    neighbours: dict[int, set[int]] = {index: set() for index in suited}
    for linked in links:
        for index in linked:
            neighbours[index].update((linked[0], *(linked if index == linked[0] else ())))
    pending = [
        index
        for node, linked in zip(graph.nodes, links, strict=True)
        if form_of(node).gains_from_blocks
        for index in linked
    ]
    gaining = set(pending)
    while pending:
        further = neighbours[pending.pop()] - gaining
        gaining |= further
        pending += further
    return gaining


def _row_major(graph: Graph, lanes: int) -> Iterator[int]:
    """Tensors that must be row-major for some node or for the caller."""
    yield from graph.outputs  # written straight into the caller's memory
    for node in graph.nodes:
        form = form_of(node)
        shapes = [() if index == ABSENT else graph.tensors[index].shape for index in node.inputs]
        if not form.keeps_blocks(shapes, graph.tensors[node.outputs[0]].shape, lanes):
            yield from (*(node.inputs[: form.core] if form.blocks_extra else node.inputs), *node.outputs)


def _all_halos(graph: Graph) -> tuple[dict[int, Halo], dict[int, float]]:
    """Tensor -> the halo that is wide enough for all its readers, and tensor -> the value in this halo.

    Raises:
        CompileError: readers of one tensor want different values in its halo.
    """
    halos: dict[int, Halo] = {}
    values: dict[int, float] = {}
    for node in graph.nodes:
        form = form_of(node)
        halo = form.halo(*_ends(graph, node))
        if any(halo):
            source, value = node.inputs[0], (isinstance(form, Window) and form.halo_value) or 0.0
            if values.setdefault(source, value) != value:
                name = graph.tensors[source].title
                raise CompileError(f"'{name}' has readers that expect {values[source]} and {value} around it.")
            top, bottom, left, right = map(max, zip(halos.get(source, NO_HALO), halo, strict=True))
            halos[source] = top, bottom, left, right
    return halos, values


def _ends(graph: Graph, node: Node) -> tuple[Shape, Shape]:
    """Shapes of the node's first operand and of its result."""
    source, target = node.inputs[0] if node.inputs else ABSENT, node.outputs[0]
    return () if source == ABSENT else graph.tensors[source].shape, graph.tensors[target].shape
