"""Likely shapes of a model's inputs whose sizes the file leaves open."""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.ops.call import Shape

SIZES = (48, 240, 1680, 20160)
"""Typical sizes of a block, an image, a spectrum, a second of sound. They have many divisors, for models that split an
axis into equal parts."""


def likely_shapes(graph: Graph) -> Iterator[tuple[Shape, ...]]:
    """Shapes of all inputs, the smallest first; none if the file leaves no size open.

    All open sizes get the same value, except batch sizes (the first of several axes), which stay as they are.
    """
    inputs = [graph.tensors[index] for index in graph.inputs]
    if any(_is_open(tensor, axis) for tensor in inputs for axis in range(len(tensor.shape))):
        for size in SIZES:
            yield tuple(_sized(tensor, size) for tensor in inputs)


def _sized(tensor: Tensor, size: int) -> Shape:
    return tuple(size if _is_open(tensor, axis) else extent for axis, extent in enumerate(tensor.shape))


def _is_open(tensor: Tensor, axis: int) -> bool:
    signature = tensor.shape_signature
    is_batch = axis == 0 and len(tensor.shape) > 1
    return len(signature) == len(tensor.shape) and signature[axis] == -1 and not is_batch
