"""Constants that stand for other numbers: what their integers mean, and which integers floats were made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.graph import Quant, Tensor

PACKED = ("int4", "int2")
"""Types that numpy lacks and `integers` unpacks."""
LEAST_NARROW = 256
"""Fewest floats that are worth a narrower type."""
AT_ONCE = 1 << 20
"""Floats that are rounded together: weights may be larger than all else that a compilation holds."""
SAMPLE = 4096
"""Floats that are tried before all are: few are float16 by chance."""


def integers(tensor: Tensor) -> np.ndarray:
    """The elements of a dense constant in its shape, as they are stored; an int4 or int2 as an int8."""
    assert tensor.data is not None
    assert tensor.sparsity is None
    if tensor.dtype not in PACKED:
        return tensor.data
    stored, bits = tensor.data.view(np.int8), int(tensor.dtype.removeprefix("int"))
    parts = [stored << 8 - bits - first >> 8 - bits for first in range(0, 8, bits)]  # the first is in the low bits
    return np.stack(parts, axis=1).reshape(-1)[: tensor.size].reshape(tensor.shape)


def real_numbers(tensor: Tensor) -> np.ndarray:
    """The float32 numbers that a dense constant of float16 or of quantized integers stands for."""
    stored, quant = integers(tensor), tensor.quant
    if not tensor.is_quantized or quant is None:
        return stored.astype(np.float32)
    scales, zeros = (_spread(numbers, tensor.shape, quant) for numbers in (quant.scales, quant.zero_points or (0,)))
    centred: np.ndarray = (stored.astype(np.int32) - zeros.astype(np.int32)).astype(np.float32)
    return centred * scales.astype(np.float32)


def dequantized(tensor: Tensor) -> Tensor:
    """The float32 constant that `tensor` stands for; it remembers the integers, so that `requantized` finds them."""
    quant = tensor.quant if tensor.is_quantized else None
    return replace(tensor, dtype="float32", quant=None, grid=quant).holding(real_numbers(tensor))


def _spread(numbers: tuple[float, ...], shape: tuple[int, ...], quant: Quant) -> np.ndarray:
    """The numbers, per tensor, per slice or per block along the last axis, so that they broadcast to `shape`."""
    found = np.array(numbers)
    if quant.block_size and found.size > 1:
        return np.repeat(found, quant.block_size)[: int(np.prod(shape))].reshape(shape)
    along = [1] * len(shape)
    if found.size > 1:
        along[quant.axis] = found.size
    return found.reshape(along)


def requantized(data: np.ndarray, grid: Quant, dtype: str = "int8") -> tuple[np.ndarray, np.ndarray] | None:
    """(integers of type `dtype` [O, ...], f32[O, blocks]) whose products are exactly the floats `data` [O, ...]; None
    if there are none.

    Each of the `blocks` equal parts of a row has a scale of its own.
    """
    rows = len(data)
    scales = np.array(grid.scales, np.float32)
    if scales.size > 1 and not grid.block_size and (grid.axis != 0 or scales.size != rows):
        return None
    parts = scales.reshape(rows, -1) if scales.size % rows == 0 else np.repeat(scales, rows).reshape(rows, -1)
    if parts.size > data.size or data.size % parts.size:
        return None
    blocks = data.reshape(*parts.shape, -1)
    numbers = np.rint(blocks / np.where(parts, parts, 1)[..., None])
    fits = np.abs(numbers + 0.5).max(initial=0) < -np.iinfo(dtype).min
    is_exact = fits and np.array_equal(numbers * parts[..., None], blocks)
    return (numbers.astype(dtype).reshape(data.shape), parts) if is_exact else None


def is_half(data: np.ndarray) -> bool:
    """Whether every one of many floats is a float16."""
    return data.size >= LEAST_NARROW and all(map(_are_half, (data.reshape(-1)[:SAMPLE], data)))


def _are_half(data: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(data.astype(np.float16), data))


def bfloat16_bits(data: np.ndarray) -> np.ndarray:
    """uint16 of the shape of float32 `data`: the bits of the nearest bfloat16, of two the even one. NaN stays NaN."""
    bits, found = np.ascontiguousarray(data).reshape(-1).view(np.uint32), np.empty(data.size, np.uint16)
    for first in range(0, data.size, AT_ONCE):
        some = bits[first : first + AT_ONCE]
        nearest, is_nan = some + np.uint32(0x7FFF) + (some >> 16 & 1), some & 0x7FFFFFFF > 0x7F800000
        found[first : first + AT_ONCE] = np.where(is_nan, some | 0x400000, nearest) >> 16
    return found.reshape(data.shape)


def bfloat16_numbers(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers that the bits of bfloat16 stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def is_narrow(tensor: Tensor) -> bool:
    """Whether a float32 constant may be stored as integers on its grid, or as float16."""
    return tensor.data is not None and (tensor.grid is not None or is_half(tensor.data))
