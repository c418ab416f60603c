"""Models made of a quantized model: every node alone, the whole with its logits as outputs, scales that force ties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jitdelegate.errors import CompileError
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from scripts.op_test_archive import step

HEADS = (
    "ARG_MAX",
    "CAST",
    "DEQUANTIZE",
    "LOGISTIC",
    "LOG_SOFTMAX",
    "QUANTIZE",
    "RESHAPE",
    "SOFTMAX",
    "TFLite_Detection_PostProcess",
)
"""Operators at the end of models that hide differences: the logits are before them."""


@dataclass(frozen=True, slots=True, eq=False)
class OneNode:
    """A node of a model as a model of its own.

    Attributes:
        position: of the node in the main subgraph.
        kind: what is the same in nodes that need to be checked only once.
        inputs: tensors of the whole model, in the order of the model's inputs.
    """

    position: int
    op: str
    types: str
    kind: tuple[object, ...]
    content: bytes
    inputs: tuple[int, ...]


def is_integer(graph: Graph) -> bool:
    """Whether some operator reads and writes integers that stand for other numbers."""
    return any(_takes_integers(graph, node) for node in graph.nodes)


def is_hybrid(graph: Graph) -> bool:
    """Whether some operator reads float activations and weights that are stored as integers."""
    return any(_is_hybrid_node(graph, node) for node in graph.nodes)


def _takes_integers(graph: Graph, node: Node) -> bool:
    computed = [graph.tensors[i] for i in (*node.inputs, *node.outputs) if i != ABSENT]
    return any(tensor.is_quantized and tensor.data is None for tensor in computed)


def _is_hybrid_node(graph: Graph, node: Node) -> bool:
    tensors = [graph.tensors[index] for index in node.inputs if index != ABSENT]
    floats = any(tensor.data is None and tensor.dtype == "float32" for tensor in tensors)
    return floats and any(tensor.is_quantized and tensor.data is not None for tensor in tensors)


def whole_with_logits(content: bytes) -> bytes:
    """The model with the values before its last operators as further outputs.

    Raises:
        CompileError: the model runs other subgraphs.
    """
    graph = read(content).graphs[0]
    further = [index for output in graph.outputs for index in _before_heads(graph, output)]
    outputs = tuple(dict.fromkeys((*graph.outputs, *further)))
    nodes = [replace(node, origin=(position,)) for position, node in enumerate(graph.nodes)]
    return Cutter(content).partition(graph, 0, nodes, graph.inputs, outputs)


def _before_heads(graph: Graph, index: int) -> list[int]:
    writer = graph.writer[index]
    if writer is None:
        return []
    node = graph.nodes[writer]
    if node.op not in HEADS:
        return [index] if graph.tensors[index].is_quantized else []
    return [found for each in node.inputs if each != ABSENT for found in _before_heads(graph, each)]


def one_node_models(content: bytes) -> Iterator[OneNode]:
    """Every node of the main subgraph that reads or writes quantized values, weights only too."""
    graph, cutter = read(content).graphs[0], Cutter(content)
    for position, node in enumerate(graph.nodes):
        if not node.outputs or not (_takes_integers(graph, node) or _is_hybrid_node(graph, node)):
            continue
        inputs = tuple(dict.fromkeys(index for index in node.inputs if index != ABSENT and _runs(graph.tensors[index])))
        if not inputs:
            continue  # folded
        try:
            cut = cutter.partition(graph, 0, [replace(node, origin=(position,))], inputs, node.outputs)
        except CompileError:
            continue
        yield OneNode(position, node.op, _types(graph, node), _kind(graph, node), cut, inputs)


def _runs(tensor: Tensor) -> bool:
    is_read = tensor.data is None and not tensor.is_variable and tensor.dtype != "resource"
    return is_read and tensor.size > 0


def _types(graph: Graph, node: Node) -> str:
    """Types of data and weights, how many scales the weights have, and the result's type where it is another."""
    tensors = [graph.tensors[index] for index in node.inputs if index != ABSENT]
    data = next(tensor for tensor in tensors if _runs(tensor))
    weights = [
        tensor for tensor in tensors if tensor.data is not None and tensor.is_quantized and len(tensor.shape) > 1
    ]
    found = data.dtype
    if weights and weights[0].quant is not None:
        found += f" x {weights[0].dtype}{' per channel' if len(weights[0].quant.scales) > 1 else ''}"
    result = graph.tensors[node.outputs[0]].dtype
    return found if result == data.dtype else f"{found} -> {result}"


def _kind(graph: Graph, node: Node) -> tuple[object, ...]:
    attrs = tuple(sorted((name, str(value)) for name, value in node.attrs.items()))
    tensors = [None if index == ABSENT else graph.tensors[index] for index in node.inputs]
    return node.op, _types(graph, node), attrs, tuple(map(_tensor_kind, tensors)), _size(graph.tensors[node.outputs[0]])


def _tensor_kind(tensor: Tensor | None) -> object:
    if tensor is None:
        return None
    filter_size = tensor.shape[1:3] if tensor.data is not None and len(tensor.shape) == 4 else ()
    return tensor.dtype, tensor.data is None, len(tensor.shape), filter_size, _size(tensor)


def _size(tensor: Tensor) -> int:
    return round(math.log2(max(1, tensor.size)))


def with_ties(content: bytes) -> bytes | None:
    """The model with powers of two for scales, so that many results lie halfway between two numbers.

    None for models whose operators need scales of their own, or are not written again as they were.
    """
    graph = read(content).graphs[0]
    if any(tensor.is_variable or (tensor.quant and tensor.quant.block_size) for tensor in graph.tensors):
        return None
    tensors = [_rounded_scales(tensor) for tensor in graph.tensors]
    for node in graph.nodes:
        for index in node.inputs:
            if index != ABSENT and _is_bias(graph.tensors[index]):
                data, weights = (tensors[each] for each in _product(node))
                tensors[index] = replace(tensors[index], quant=_bias_quant(data, weights, tensors[index]))
    return written(replace(graph, tensors=tuple(tensors)))


def _rounded_scales(tensor: Tensor) -> Tensor:
    if tensor.quant is None or not tensor.quant.scales or not any(tensor.quant.scales):
        return tensor
    scales = tuple(2.0 ** round(math.log2(scale)) if scale > 0 else scale for scale in tensor.quant.scales)
    return replace(tensor, quant=replace(tensor.quant, scales=scales))


def _is_bias(tensor: Tensor) -> bool:
    return tensor.data is not None and tensor.dtype in ("int32", "int64") and tensor.is_quantized


def _product(node: Node) -> tuple[int, int]:
    """Data and weights."""
    return (node.inputs[2], node.inputs[1]) if node.op == "TRANSPOSE_CONV" else (node.inputs[0], node.inputs[1])


def _bias_quant(data: Tensor, weights: Tensor, bias: Tensor) -> Quant:
    assert data.quant and weights.quant and bias.quant
    scales = tuple(data.quant.scales[0] * scale for scale in weights.quant.scales)
    return Quant(scales, (0,) * len(scales), 0)


def written(graph: Graph) -> bytes:
    """The graph as a .tflite file; its values have the same indices."""
    builder = ModelBuilder()
    for index, tensor in enumerate(graph.tensors):
        quant = tensor.quant if tensor.quant and tensor.quant.scales else None
        if tensor.data is not None:
            builder.constant(tensor.data, name=tensor.name, quant=quant, dtype=tensor.dtype, shape=tensor.shape)
        elif index in graph.inputs:
            builder.input(tensor.shape, tensor.dtype, name=tensor.name, quant=quant)
        else:
            builder.tensor(tensor.shape, tensor.dtype, name=tensor.name, quant=quant)
    for node in graph.nodes:
        operands = [None if index == ABSENT else index for index in node.inputs]
        custom = node.custom_options if node.custom else None
        builder.node(node.op, operands, node.outputs, options=node.attrs, version=node.version, custom_options=custom)
    builder.output(*graph.outputs)
    return builder.finish()


def input_tensors(content: bytes) -> Sequence[Tensor]:
    """What a model takes."""
    graph = read(content).graphs[0]
    return [graph.tensors[index] for index in graph.inputs]


def steps(content: bytes) -> list[float]:
    """How large a step of each output is; 0.0 for what was never quantized."""
    graph = read(content).graphs[0]
    return [step(graph, index) for index in graph.outputs]
