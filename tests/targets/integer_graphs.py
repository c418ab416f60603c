"""Graphs of one window form with constants, and random integers for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr
from jitdelegate.ir.forms import Contract, Depthwise, IndexMap, Shape, Window
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.quantized import quantize


def whole_range(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Random integers of a type's whole range, the ends more often than the others."""
    numbers, info = np.random.default_rng(seed), np.iinfo(dtype)
    values = numbers.integers(info.min, info.max, shape, dtype, endpoint=True)
    ends = numbers.choice(np.array([info.min, info.max], dtype), shape)
    return np.asarray(np.where(numbers.random(shape) < 0.1, ends, values))


def to_int8(channels: int) -> tuple[Expr, np.ndarray]:
    """XNNPACK's rounding by a factor per channel, and the factors; sums of a hundred products fill the range."""
    factors = np.random.default_rng(5).uniform(0.0003, 0.001, channels).astype(np.float32)
    return quantize(Cast(RESULT, "float32") * Arg(1), "int8", 3, -120, 127), factors


def size_of(form: Window, image: Shape) -> tuple[int, int]:
    """Rows and columns of what a window makes of an image [rows, columns]; it is not transposed."""
    top, bottom, left, right = form.padding
    padded = image[0] + top + bottom, image[1] + left + right
    sizes = zip(padded, form.kernel, form.stride, form.dilation, strict=True)
    rows, columns = ((whole - (kernel - 1) * dilation - 1) // stride + 1 for whole, kernel, stride, dilation in sizes)
    return rows, columns


def graph_of(
    form: Window,
    data: Tensor,
    shape: Shape,
    *,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    constants: Sequence[np.ndarray] = (),
    streams: Sequence[Tensor] = (),
    dtype: str = "",
) -> Graph:
    """One node that reads `data`, weights and bias where the form has them, then extra operands: constants, which are
    one number per channel, and graph inputs that lie like the output.

    Args:
        dtype: of the result; "" for the form's own type.
    """
    tensors, inputs = [data], [0]
    has_weights = isinstance(form, Contract | Depthwise)
    for name, constant in (("w", weights), ("b", bias)) if has_weights else ():
        inputs.append(ABSENT if constant is None else len(tensors))
        if constant is not None:
            tensors.append(Tensor(name, constant.shape, str(constant.dtype), constant))
    rank, maps = len(shape), []
    for number, extra in enumerate(constants):
        inputs.append(len(tensors))
        tensors.append(Tensor(f"c{number}", extra.shape, str(extra.dtype), extra))
        maps.append(IndexMap.along(rank - 1))
    given = [0]
    for stream in streams:
        inputs.append(len(tensors))
        given.append(len(tensors))
        tensors.append(stream)
        maps.append(IndexMap.broadcast(stream.shape, shape))
    tensors.append(Tensor("y", shape, dtype or form.own_type(data.dtype)))
    node = Node("TEST", tuple(inputs), (len(tensors) - 1,), form=replace(form, operands=tuple(maps)))
    return Graph(tuple(tensors), (node,), tuple(given), (len(tensors) - 1,))


def feeds_of(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Random values of the inputs."""
    tensors = [graph.tensors[index] for index in graph.inputs]
    return [whole_range(tensor.shape, tensor.dtype, seed + number) for number, tensor in enumerate(tensors)]
