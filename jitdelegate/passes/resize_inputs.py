"""Changes the shapes of a graph's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.ops.call import Shape


def resize_inputs(graph: Graph, shapes: Sequence[Shape]) -> Graph:
    """%0: f32[1,8] -> %0: f32[4,8] for every input, in order; `infer_shapes` infers the other shapes later."""
    tensors = list(graph.tensors)
    for index, shape in zip(graph.given, shapes, strict=True):
        tensors[index] = reshaped(tensors[index], shape)
    return replace(graph, tensors=tuple(tensors))


def reshaped(tensor: Tensor, shape: Shape) -> Tensor:
    """The tensor with another shape. Sizes that the file leaves open stay open; others are fixed to the new shape."""
    if tensor.shape == shape and tensor.has_rank:
        return tensor
    signature = tensor.shape_signature if -1 in tensor.shape_signature else shape
    return replace(tensor, shape=shape, shape_signature=signature, has_rank=True)
