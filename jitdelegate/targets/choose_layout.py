"""Decides how each runtime tensor lies in memory: blocked by the vector width where kernels gain, row-major elsewhere.

A tensor is blocked if it is an image with channels enough to fill a vector, if every node that touches it takes
blocked images, and if one of the nodes that blocked images connect it with gains by them. Windows that reach over the
border get margins of zeros around the image, so that no kernel has to look where the border is.
"""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.forms import (
    Access,
    Concat,
    Contract,
    Depthwise,
    Form,
    Map,
    MatMul,
    Reduce,
    Resize,
    Softmax,
    View,
    Window,
)
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.index_forms import IndexForm
from jitdelegate.ir.layout import Layout, image_shape

Margins = tuple[int, int, int, int]
NONE: Margins = (0, 0, 0, 0)


def choose_layout(graph: Graph, lanes: int) -> dict[int, Layout]:
    """The layout of every tensor that nodes read or write, constants aside."""
    margins = _all_margins(graph)
    touched = {i for node in graph.nodes for i in (*node.inputs, *node.outputs) if i != ABSENT}
    touched |= {*graph.inputs, *graph.outputs}
    runtime = {index: graph.tensors[index] for index in sorted(touched) if not graph.tensors[index].is_constant}
    suited = {index for index, tensor in runtime.items() if _suits(tensor, lanes)} - set(_row_major(graph, lanes))
    blocked = _gaining(graph, suited)
    return {
        index: Layout(image_shape(tensor.shape), lanes, index in blocked, margins.get(index, NONE), tensor.dtype)
        for index, tensor in runtime.items()
    }


def _suits(tensor: Tensor, lanes: int) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[3] > lanes // 2 and tensor.dtype == "float32"


def _gaining(graph: Graph, suited: set[int]) -> set[int]:
    """Of the tensors that may be blocked those that are connected, through others of them, with a node that gains."""
    links = [
        [index for index in dict.fromkeys((*node.inputs, *node.outputs)) if index in suited] for node in graph.nodes
    ]
    neighbours: dict[int, set[int]] = {index: set() for index in suited}
    for linked in links:
        for index in linked:
            neighbours[index].update((linked[0], *(linked if index == linked[0] else ())))
    pending = [
        index for node, linked in zip(graph.nodes, links, strict=True) if _gains(graph, node) for index in linked
    ]
    found = set(pending)
    while pending:
        further = neighbours[pending.pop()] - found
        found |= further
        pending += further
    return found


def _gains(graph: Graph, node: Node) -> bool:
    """Whether the node's kernel is faster on blocked images than on others; the rest is as fast on both."""
    form = node.form
    return isinstance(form, Window | Resize) or (isinstance(form, Reduce) and is_spatial(form, graph, node))


def _row_major(graph: Graph, lanes: int) -> Iterator[int]:
    """Tensors that some node takes or makes row-major only."""
    for index in graph.outputs:
        if not graph.readers[index]:
            yield index  # written straight into the caller's memory
    for node in graph.nodes:
        yield from _row_major_of(graph, node, lanes)


def _row_major_of(graph: Graph, node: Node, lanes: int) -> Iterator[int]:
    form = node.form
    assert form is not None
    runtime = [i for i in node.inputs if i != ABSENT and not graph.tensors[i].is_constant]
    if isinstance(form, Softmax | View | IndexForm) or (isinstance(form, Reduce) and not is_spatial(form, graph, node)):
        yield from (*runtime, *node.outputs)
    elif (isinstance(form, Contract) and form.groups > 1) or (isinstance(form, Depthwise) and form.multiplier > 1):
        yield from (*runtime, *node.outputs)  # extra operands too: a group may begin in the middle of a block
    elif isinstance(form, Concat) and not _joins_blocks(form, graph, node, lanes):
        yield from (*runtime, *node.outputs)
    elif isinstance(form, MatMul):
        yield from (*node.inputs[: form.core], *node.outputs)
    elif isinstance(form, Map):
        yield from _mixed_channels(form, graph, node)


def is_spatial(form: Reduce, graph: Graph, node: Node) -> bool:
    """True for a reduction over H and W of an image that keeps it an image: a pool over everything."""
    tensors = [graph.tensors[i] for i in (node.inputs[0], node.outputs[0])]
    is_image = all(len(tensor.shape) == 4 and tensor.dtype == "float32" for tensor in tensors)
    return form.axes == (1, 2) and is_image and form.kind in ("mean", "max")


def _joins_blocks(form: Concat, graph: Graph, node: Node, lanes: int) -> bool:
    sizes = [graph.tensors[i].shape for i in node.inputs]
    if len(sizes[0]) != 4:
        return False
    return form.axis != 3 or all(shape[3] % lanes == 0 for shape in sizes[:-1])


def _mixed_channels(form: Map, graph: Graph, node: Node) -> Iterator[int]:
    """Operands whose channels do not run along the output's channels one to one, and then the output too."""
    output = graph.tensors[node.outputs[0]].shape
    operands = zip(node.inputs, form.operands, strict=True)
    if not all(_keeps_channels(access, graph.tensors[index].shape, output) for index, access in operands):
        yield from (*node.inputs, *node.outputs)


def _keeps_channels(access: Access, shape: tuple[int, ...], output: tuple[int, ...]) -> bool:
    """True where channels are read at the output's own channel index, or are broadcast."""
    if len(output) != 4 or len(shape) > 4:
        return False
    if not shape:
        return True
    if 3 in access.dims[:-1] or access.starts[-1] != 0:
        return False
    if access.dims[-1] == -1:
        return True
    padded = access.fill is not None and shape[-1] != output[-1]
    return access.dims[-1] == 3 and access.steps[-1] == 1 and not padded


def _all_margins(graph: Graph) -> dict[int, Margins]:
    found: dict[int, Margins] = {}
    for node in graph.nodes:
        if isinstance(node.form, Contract | Depthwise):
            source, target = node.inputs[0], node.outputs[0]
            reach = _reach(node.form, graph.tensors[source].shape, graph.tensors[target].shape)
            known = found.get(source, NONE)
            found[source] = (
                max(known[0], reach[0]),
                max(known[1], reach[1]),
                max(known[2], reach[2]),
                max(known[3], reach[3]),
            )
    return found


def _reach(form: Form, source: tuple[int, ...], target: tuple[int, ...]) -> Margins:
    """How many rows and columns beyond each border of the source a window reads."""
    assert isinstance(form, Contract | Depthwise)
    if len(source) != 4:
        return NONE
    transposed = isinstance(form, Contract) and form.transposed
    axis = _transposed_axis if transposed else _direct_axis
    top, bottom = axis(form, 0, form.padding[0], source[1], target[1])
    left, right = axis(form, 1, form.padding[2], source[2], target[2])
    return top, bottom, left, right


def _direct_axis(form: Contract | Depthwise, axis: int, padding: int, source: int, target: int) -> tuple[int, int]:
    last = (target - 1) * form.stride[axis] - padding + (form.kernel[axis] - 1) * form.dilation[axis]
    return max(0, padding), max(0, last - (source - 1))


def _transposed_axis(form: Contract | Depthwise, axis: int, padding: int, source: int, target: int) -> tuple[int, int]:
    """Output o reads sources (o + padding - k) / stride, for every tap k that makes it whole."""
    stride, kernel = form.stride[axis], form.kernel[axis]
    lowest = (padding - kernel + 1) // stride
    highest = (target - 1 + padding) // stride
    return max(0, -lowest), max(0, highest - (source - 1))
