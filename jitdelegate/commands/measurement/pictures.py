"""Pictures as values of an input, scaled as its type, shape and quantization want."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitdelegate.commands.measurement.entry import NARROW, Entry, Interface, Shape
from jitdelegate.errors import TensorError
from jitdelegate.ir.graph import Graph, Quant, Tensor
from jitdelegate.ir.types import ELEMENT_TYPES

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's name of a picture by its number of channels."""
Range = tuple[float, float]
SYMMETRIC = (-1.0, 1.0)


def picture_place(entry: Entry) -> int:
    """The position of the first input that takes a picture.

    Raises:
        TensorError: no input does.
    """
    for place, each in enumerate(entry.inputs):
        if channel_axis(each.shape) is not None and each.dtype != "string":
            return place
    shapes = [list(each.shape) for each in entry.inputs]
    raise TensorError(f"no input takes a picture: shapes are {shapes}, expected one with 1, 3 or 4 channels")


def channel_axis(shape: Shape) -> int | None:
    """The axis of the channels of [H, W, C], [N, H, W, C] or [N, C, H, W]; None for anything else."""
    if len(shape) not in (3, 4):
        return None
    if shape[-1] in MODES:
        return len(shape) - 1
    return len(shape) - 3 if shape[-3] in MODES and len(shape) == 4 else None


def picture(path: str, entry: Entry, place: int, limits: Range | None = None) -> np.ndarray:
    """The picture in a file as the value of an input.

    It is resized to the input's height and width; where the model leaves them open, it keeps its own. Floats go from
    the lowest to the highest of `limits`; without them, of the values that the QUANTIZE behind the input can hold, or
    from -1 to 1. Quantized numbers take the whole range of their type, other integers the pixels as they are.

    Raises:
        TensorError: Pillow is not installed, or it cannot read the file.
    """
    found = entry.inputs[place]
    axis = channel_axis(found.shape)
    if axis is None:
        raise TensorError(f"input {found.name!r} has the shape {list(found.shape)}, which is no picture's")
    pixels = _pixels(path, found, axis)
    value = _scaled(pixels, found, limits or _quantized_range(entry.graph, found.index) or SYMMETRIC)
    value = np.moveaxis(value, -1, axis - (len(found.shape) - 3))
    if len(found.shape) == 3:
        return np.ascontiguousarray(value)
    return np.ascontiguousarray(np.broadcast_to(value, (found.shape[0], *value.shape)))


def _pixels(path: str, found: Interface, axis: int) -> np.ndarray:
    """uint8[H, W, C] of the picture in the input's size."""
    try:
        from PIL import Image
    except ImportError as error:
        raise TensorError("pictures need Pillow: pip install pillow") from error
    try:
        with Image.open(path) as file:
            image: Any = file.convert(MODES[found.shape[axis]])
    except (OSError, ValueError) as error:
        raise TensorError(f"{path!r} is no picture that Pillow reads: {error}") from error
    height, width = (found.shape[each] for each in _sides(found.shape, axis))
    if -1 not in (found.shape_signature[each] for each in _sides(found.shape, axis) if found.shape_signature):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _sides(shape: Shape, axis: int) -> tuple[int, int]:
    """The axes of height and width."""
    return (axis - 2, axis - 1) if axis == len(shape) - 1 else (axis + 1, axis + 2)


def _scaled(pixels: np.ndarray, found: Interface, limits: Range) -> np.ndarray:
    if found.dtype.startswith("float"):
        low, high = limits
        return (low + (high - low) * (pixels / 255)).astype(found.dtype)
    if found.is_quantized:
        element = ELEMENT_TYPES[found.dtype]
        return np.rint(element.minimum + (element.maximum - element.minimum) * (pixels / 255)).astype(found.dtype)
    return pixels.astype(found.dtype)


def _quantized_range(graph: Graph, index: int) -> Range | None:
    """The values that an input may have once it is quantized; None where no QUANTIZE reads it."""
    for position in graph.readers[index]:
        if graph.nodes[position].op == "QUANTIZE":
            tensor = graph.tensors[graph.nodes[position].outputs[0]]
            if tensor.quant is not None and tensor.quant.scales and tensor.dtype in NARROW:
                return _ends(tensor, tensor.quant)
    return None


def _ends(tensor: Tensor, quant: Quant) -> Range:
    element, scale = ELEMENT_TYPES[tensor.dtype], quant.scales[0]
    zero = quant.zero_points[0] if quant.zero_points else 0
    return (element.minimum - zero) * scale, (element.maximum - zero) * scale
