"""The file's buffers, and constants as read-only views of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from jitdelegate.errors import ModelError
from jitdelegate.ir.bfloat16 import bfloat16_numbers
from jitdelegate.tflite.record import Record

UNSIZED = frozenset({"string", "resource", "variant"})
"""Types whose elements have no fixed size in a buffer."""

_BITS_WITHOUT_NUMPY = {
    "int2": 2,
    "int4": 4,
    "uint4": 4,
    "bfloat16": 16,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    **dict.fromkeys(UNSIZED, 0),
}


def bits(dtype: str) -> int:
    """Bits of one element in a buffer; 0 where elements have no fixed size."""
    known = _BITS_WITHOUT_NUMPY.get(dtype)
    return np.dtype(dtype).itemsize * 8 if known is None else known


_SHARING_PER_BYTE = 64
_SHARING_AT_LEAST = 1 << 20


class Buffers:
    """The buffers of a model, inline or, in files of more than 2 GB, behind the FlatBuffer.

    Tensors may share a buffer, and later stages may copy each of them (to widen it, for example). So the total is
    limited to 64 times the file's size.
    """

    def __init__(self, content: memoryview, records: Sequence[Record]) -> None:
        self._content = content
        self._records = records
        self._left = _SHARING_PER_BYTE * len(content) + _SHARING_AT_LEAST

    def data(self, index: int, where: str) -> memoryview:
        """The bytes of buffer `index`, not copied; empty for runtime values. Buffer 0 means no data.

        Raises:
            ModelError: there is no such buffer, it lies partly outside the file, or shared buffers exceed the limit.
        """
        if index == 0:
            return memoryview(b"")
        if index >= len(self._records):
            raise ModelError(f"{where}: buffer {index} does not exist, there are {len(self._records)}")
        record = self._records[index]
        if record["data"]:
            return self._shared(record["data"], where)
        return self.external(record["offset"], record["size"], f"{where}: buffer {index}")

    def external(self, offset: int, size: int, where: str) -> memoryview:
        """`size` bytes from `offset` on; empty if either is 0 or 1, which TFLite reads as "not set".

        Raises:
            ModelError: as `data`.
        """
        if offset <= 1 or size <= 1:
            return memoryview(b"")
        if offset + size > len(self._content):
            raise ModelError(
                f"{where}: {size} bytes from {offset} on reach beyond the {len(self._content)} of the file"
            )
        return self._shared(self._content[offset : offset + size], where)

    def _shared(self, data: memoryview, where: str) -> memoryview:
        self._left -= len(data)
        if self._left < 0:
            raise ModelError(f"{where}: buffers of the file's {len(self._content)} bytes are used over and over")
        return data


def constant(data: memoryview, shape: tuple[int, ...], dtype: str, where: str) -> np.ndarray:
    """`data` as a read-only array of `shape`, not copied; of bfloat16 the float32 numbers, and uint8[n] for other types
    that numpy lacks.

    Raises:
        ModelError: the number of bytes does not fit shape and type.
    """
    elements = prod(shape)
    expected = (elements * bits(dtype) + 7) // 8
    if elements and dtype not in UNSIZED and len(data) != expected:
        raise ModelError(f"{where}: its buffer has {len(data)} bytes, expected {expected} for {dtype}{list(shape)}")
    if dtype == "bfloat16":
        numbers = bfloat16_numbers(_view(data[:expected], "uint16")).reshape(shape)
        numbers.flags.writeable = False
        return numbers
    if dtype in _BITS_WITHOUT_NUMPY:
        return _view(data, "uint8")
    return _view(data[:expected], dtype).reshape(shape)


def stored_values(data: memoryview, dtype: str, where: str) -> np.ndarray:
    """The stored values of a sparse constant as a read-only array [n]; uint8 for types that numpy lacks."""
    if dtype in _BITS_WITHOUT_NUMPY:
        return _view(data, "uint8")
    width = bits(dtype) // 8
    if len(data) % width:
        raise ModelError(f"{where}: its buffer has {len(data)} bytes, which is no multiple of {dtype}'s {width}")
    return _view(data, dtype)


def _view(data: memoryview, dtype: str) -> np.ndarray:
    array = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
    array.flags.writeable = False
    return array
