"""Seeded inputs of quantized models: noise, photographs, and values at the ends of the range."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.ir.types import ELEMENT_TYPES
from scripts.check_models import random_values

Inputs = list[np.ndarray]
NARROW = ("int8", "uint8", "int16")
"""Types of quantized activations."""
CELLS = (1, 2, 4, 8, 16, 32)
"""Edges of the squares of one colour in enlarged noise."""


def seeded(graph: Graph, count: int) -> Iterator[Inputs]:
    """`count` sets of values for the graph's inputs: noise of any contrast, enlarged in every other set."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        yield [_values(graph, index, _noise(graph.tensors[index].shape, random, seed)) for index in graph.given]


def pictures(graph: Graph) -> Iterator[Inputs]:
    """Two of scikit-image's photographs in every input; inputs without height and width get their rows as a signal."""
    from skimage.data import astronaut, chelsea

    for photograph in (astronaut(), chelsea()):
        yield [_values(graph, index, _resized(photograph, graph.tensors[index].shape)) for index in graph.given]


def hostile(tensors: Sequence[Tensor], seed: int = 0) -> Iterator[Inputs]:
    """Values for the inputs of one operator: uniform, only the ends and the zero point, all smallest, all largest.

    Floats lie halfway between steps of 1/256, where they are rounded, some of them far outside.
    """
    random = np.random.default_rng(seed)
    yield [_any(tensor, random) for tensor in tensors]
    yield [random.choice(_edges(tensor), tensor.shape) for tensor in tensors]
    for edge in (0, -1):
        yield [np.full(tensor.shape, _edges(tensor)[edge]) for tensor in tensors]


def _any(tensor: Tensor, random: np.random.Generator) -> np.ndarray:
    if tensor.dtype == "float32":
        spread = float(random.choice([0.25, 4, 64]))
        return (np.rint(random.normal(0, spread, tensor.shape) * 512) / 512).astype(np.float32)
    return random_values(tensor.shape, tensor.dtype, random)


def _edges(tensor: Tensor) -> np.ndarray:
    """From the smallest to the largest; other integers than quantized numbers are indices, 0 or 1."""
    if tensor.dtype == "float32":
        return np.array([-1e6, -1, -0.5, -0.0, 0.0, 1 / 512, 0.5, 1, 1e6], np.float32)
    if tensor.dtype not in NARROW:
        return np.array([0, 1], tensor.dtype)
    element, zero = ELEMENT_TYPES[tensor.dtype], zero_point(tensor)
    inner = [value for value in (zero - 1, zero, zero + 1) if element.minimum < value < element.maximum]
    return np.array([element.minimum, *inner, element.maximum], tensor.dtype)


def zero_point(tensor: Tensor) -> int:
    """The stored number that stands for 0."""
    return tensor.quant.zero_points[0] if tensor.quant and tensor.quant.zero_points else 0


def _noise(shape: tuple[int, ...], random: np.random.Generator, seed: int) -> np.ndarray:
    """Values from 0 to 1."""
    cell = CELLS[seed // 2 % len(CELLS)] if seed % 2 else 1
    axes = range(1, len(shape) - 1) if len(shape) > 2 else ()
    small = [-(-size // cell) if axis in axes else size for axis, size in enumerate(shape)]
    noise = random.random(small)
    for axis in axes:
        noise = np.repeat(noise, cell, axis).take(range(shape[axis]), axis)
    contrast = float(random.choice([1, 1, 0.5, 0.1]))
    return np.asarray(np.clip(0.5 + (noise - 0.5) * contrast, 0, 1))


def _resized(photograph: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The photograph, as values from 0 to 1, in another shape."""
    from skimage.transform import resize

    if len(shape) == 4 and min(shape[1:3]) > 1:
        image = resize(photograph, shape[1:3], anti_aliasing=True)
        channels = image[..., np.arange(shape[3]) % 3]
        return np.broadcast_to(channels, shape)
    return np.resize(photograph.mean(-1).reshape(-1) / 255, math.prod(shape)).reshape(shape)


def _values(graph: Graph, index: int, part: np.ndarray) -> np.ndarray:
    """Values between the ends of the tensor's range, of which `part` says how far from the smallest."""
    tensor = graph.tensors[index]
    if tensor.dtype == "float32":
        low, high = _range(graph, index)
        return (low + (high - low) * part).astype(np.float32)
    if tensor.dtype not in NARROW:
        return random_values(tensor.shape, tensor.dtype, np.random.default_rng(0))
    element = ELEMENT_TYPES[tensor.dtype]
    return np.rint(element.minimum + (element.maximum - element.minimum) * part).astype(tensor.dtype)


def _range(graph: Graph, index: int) -> tuple[float, float]:
    """Of the quantized value that a float input becomes; -1 to 1 where nothing quantizes it."""
    for position in graph.readers[index]:
        if graph.nodes[position].op == "QUANTIZE":
            result = graph.tensors[graph.nodes[position].outputs[0]]
            if result.quant is not None and result.dtype in NARROW:
                element, zero, scale = ELEMENT_TYPES[result.dtype], zero_point(result), result.quant.scales[0]
                return (element.minimum - zero) * scale, (element.maximum - zero) * scale
    return -1.0, 1.0
