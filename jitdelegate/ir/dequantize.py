"""Constants that stand for other numbers: what their integers mean, and which integers floats were made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np
from xxhash import xxh3_128_digest

from jitdelegate.ir.bfloat16 import AT_ONCE
from jitdelegate.ir.graph import Quant, Tensor
from jitdelegate.program.shared_pages import unload

PACKED = ("int4", "int2")
"""Types that numpy lacks and `integers` unpacks."""
LEAST_NARROW = 256
"""Fewest floats that are worth a narrower type."""
LEAST_UNLOADED = 1 << 16
"""Fewest bytes of a constant whose pages are worth a system call."""
MOST_SUMS = 512
"""Constants whose sums are kept for further programs of the process; those of a language model take a megabyte."""
_SUMS: dict[tuple[object, ...], np.ndarray] = {}
SAMPLE = 4096
"""Floats that are tried before all are: few are float16 by chance."""


def integers(tensor: Tensor) -> np.ndarray:
    """The elements of a dense constant in its shape, as they are stored; an int4 or int2 as an int8."""
    assert tensor.data is not None
    assert tensor.sparsity is None
    if tensor.dtype not in PACKED:
        return tensor.data
    stored, bits = tensor.data.view(np.uint8), int(tensor.dtype.removeprefix("int"))
    count, sign = 8 // bits, np.int8(1 << bits - 1)
    found = np.empty(stored.size * count, np.int8)
    for first in range(0, stored.size, AT_ONCE):
        some = stored[first : first + AT_ONCE].astype(f"u{count}")
        part = found[count * first : count * (first + AT_ONCE)]
        words = part.view(some.dtype)
        words[:] = some
        for _ in range(count - 1):  # a number for each byte of a word, the first from the low bits
            some <<= 8 - bits
            words |= some
        words &= int.from_bytes(bytes([(1 << bits) - 1]) * count, "little")
        part ^= sign
        part -= sign
    found.flags.writeable = False  # tensors share what nobody can change
    return found[: tensor.size].reshape(tensor.shape)


def sums_of_blocks(numbers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float64[O]: the sums of rows of integers [O, ...] times f32[O, blocks], each scale for an equal part of a row."""
    sums = np.einsum("ijk->ij", numbers.reshape(*scales.shape, -1), dtype=np.int32)
    return np.asarray((sums * scales.astype(np.float64)).sum(1))


def sums_of_rows(tensor: Tensor) -> np.ndarray:
    """float64[O]: the sums of the rows of a constant [O, ...] of integers with a scale for each block. Every program
    needs them twice, and a constant is recognised by its content in less time than it is unpacked."""
    quant, data = tensor.quant, tensor.data
    assert quant is not None
    assert data is not None
    scales, zeros = _scales_of_rows(quant, tensor.shape), np.array(quant.zero_points, np.int64)
    assert scales is not None
    digests = (xxh3_128_digest(np.ascontiguousarray(each).data) for each in (data, scales, zeros))
    content = tensor.dtype, scales.shape, *digests
    sums = _SUMS.get(content)
    if sums is None:
        sums = _SUMS[content] = sums_of_blocks(centred(tensor), scales)
        for oldest in list(_SUMS)[:-MOST_SUMS]:
            _SUMS.pop(oldest, None)
    return sums


def real_numbers(tensor: Tensor) -> np.ndarray:
    """The float32 numbers that a dense constant of float16 or of quantized integers stands for."""
    quant = tensor.quant
    if not tensor.is_quantized or quant is None:
        return integers(tensor).astype(np.float32)
    numbers, scales = centred(tensor).astype(np.float32), np.array(quant.scales, np.float32)
    if quant.block_size and scales.size > 1:
        numbers.reshape(scales.size, -1)[:] *= scales[:, None]
    else:
        numbers *= _spread(scales, tensor.shape, quant)
    return numbers


def _spread(numbers: np.ndarray, shape: tuple[int, ...], quant: Quant) -> np.ndarray:
    """The numbers, per tensor, per slice or per block along the last axis, so that they broadcast to `shape`."""
    if quant.block_size and numbers.size > 1:
        return np.repeat(numbers, quant.block_size).reshape(shape)
    along = [1] * len(shape)
    if numbers.size > 1:
        along[quant.axis] = numbers.size
    return numbers.reshape(along)


@dataclass(frozen=True, eq=False)
class Derived(Tensor):
    """A constant whose elements are made of those of `stored`, which take a part of their memory: `data` makes them
    whenever it is read, and none are kept."""

    stored: Tensor | None = None

    @property  # type: ignore[misc]
    def data(self) -> np.ndarray | None:
        given: np.ndarray | None = self.__dict__["given"]
        if given is not None or self.stored is None:
            return given
        numbers = self._made(self.stored)
        numbers.flags.writeable = False
        return numbers

    @data.setter
    def data(self, elements: np.ndarray | None) -> None:
        """Called by the constructor; a copy that is made by `replace` has elements of its own."""
        self.__dict__["given"] = elements

    @property
    def integers(self) -> Tensor | None:
        """The constant that the elements are made of; None for a copy with other elements."""
        return self.stored if self.__dict__["given"] is None else None

    @property
    def is_constant(self) -> bool:
        return True

    @staticmethod
    def _made(tensor: Tensor) -> np.ndarray:
        """The elements."""
        raise NotImplementedError


class Dequantized(Derived):
    """The float32 constant that a quantized one stands for."""

    _made = staticmethod(real_numbers)


class Unpacked(Derived):
    """An int4 or int2 constant as an int8."""

    _made = staticmethod(integers)


def unpacked(tensor: Tensor) -> Tensor:
    """The constant as an int8."""
    return Unpacked(**_fields(tensor) | {"dtype": "int8", "data": None}, stored=tensor)


def unload_constants(tensors: Iterable[Tensor]) -> None:
    """Let the system take the file's pages of constants that have been read from the memory of this process."""
    for tensor in tensors:
        source = tensor.integers if isinstance(tensor, Derived) else tensor
        base: object = source.data if source is not None and source.is_constant else None
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, memoryview) and base.nbytes >= LEAST_UNLOADED:
            unload(base)


def _fields(tensor: Tensor) -> dict[str, Any]:
    return {each.name: getattr(tensor, each.name) for each in fields(Tensor)}


def dequantized(tensor: Tensor) -> Tensor:
    """The float32 constant that `tensor` stands for; it remembers the integers, so that `requantized` finds them."""
    if not tensor.is_quantized:
        return replace(tensor, dtype="float32", quant=None).holding(real_numbers(tensor))
    own = {"dtype": "float32", "data": None, "quant": None, "grid": tensor.quant}
    return Dequantized(**_fields(tensor) | own, stored=tensor)


def requantized(tensor: Tensor, dtype: str = "int8") -> tuple[np.ndarray, np.ndarray] | None:
    """(integers of type `dtype` [O, ...], f32[O, blocks]) whose products are exactly the elements of a float32 constant
    [O, ...]; None if there are none.

    Each of the `blocks` equal parts of a row has a scale of its own.
    """
    if tensor.grid is None:
        return None
    stored = tensor.integers if isinstance(tensor, Dequantized) else None
    if stored is None:
        assert tensor.data is not None
        return on_grid(tensor.data, tensor.grid, dtype)
    scales = _scales_of_rows(tensor.grid, tensor.shape)
    return None if scales is None or not np.isfinite(scales).all() else _in_range(centred(stored), scales, dtype)


def centred(tensor: Tensor) -> np.ndarray:
    """The integers of a quantized constant minus its zero points."""
    stored, quant = integers(tensor), tensor.quant
    if quant is None or not any(quant.zero_points):
        return stored
    zeros = _spread(np.array(quant.zero_points, np.int32), tensor.shape, quant)
    return np.asarray(stored.astype(np.int32) - zeros)


def on_grid(data: np.ndarray, grid: Quant, dtype: str = "int8") -> tuple[np.ndarray, np.ndarray] | None:
    """As `requantized`, for floats [O, ...] that may have been such products."""
    scales = _scales_of_rows(grid, data.shape)
    if scales is None:
        return None
    blocks = data.reshape(*scales.shape, -1)
    numbers = np.rint(blocks / np.where(scales, scales, 1)[..., None])
    is_exact = np.array_equal(numbers * scales[..., None], blocks)
    return _in_range(numbers.reshape(data.shape), scales, dtype) if is_exact else None


def _scales_of_rows(grid: Quant, shape: tuple[int, ...]) -> np.ndarray | None:
    """f32[O, blocks] of weights [O, ...]; None where parts of rows, or rows, share none."""
    rows, size = shape[0], prod(shape)
    scales = np.array(grid.scales, np.float32)
    if scales.size > 1 and not grid.block_size and (grid.axis != 0 or scales.size != rows):
        return None
    parts = scales.reshape(rows, -1) if scales.size % rows == 0 else np.repeat(scales, rows).reshape(rows, -1)
    return None if parts.size > size or size % parts.size else parts


def _in_range(numbers: np.ndarray, scales: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers in a type that may not hold all of them, and their scales."""
    limits = np.iinfo(dtype)
    fits = limits.min <= numbers.min(initial=0) and numbers.max(initial=0) <= limits.max
    return (numbers.astype(dtype, copy=False), scales) if fits else None


def is_half(data: np.ndarray) -> bool:
    """Whether every one of many floats is a float16."""
    return data.size >= LEAST_NARROW and all(map(_are_half, (data.reshape(-1)[:SAMPLE], data)))


def _are_half(data: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(data.astype(np.float16), data))


def is_narrow(tensor: Tensor) -> bool:
    """Whether a float32 constant may be stored as integers on its grid, or as float16."""
    return tensor.is_constant and (tensor.grid is not None or (tensor.data is not None and is_half(tensor.data)))
