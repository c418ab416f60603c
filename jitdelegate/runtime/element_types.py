"""Element types of memory that callers share, by numpy's names: more than programs compute with."""

from __future__ import annotations

from jitdelegate.errors import TensorError

_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_FLOAT8_E4M3FN, _FLOAT8_E5M2 = 10, 12

TYPES: dict[str, tuple[int, int]] = {
    "float64": (_FLOAT, 64),
    "float32": (_FLOAT, 32),
    "float16": (_FLOAT, 16),
    "bfloat16": (_BFLOAT, 16),
    "float8_e4m3fn": (_FLOAT8_E4M3FN, 8),
    "float8_e5m2": (_FLOAT8_E5M2, 8),
    "int64": (_INT, 64),
    "int32": (_INT, 32),
    "int16": (_INT, 16),
    "int8": (_INT, 8),
    "int4": (_INT, 4),
    "int2": (_INT, 2),
    "uint64": (_UINT, 64),
    "uint32": (_UINT, 32),
    "uint16": (_UINT, 16),
    "uint8": (_UINT, 8),
    "uint4": (_UINT, 4),
    "bool": (_BOOL, 8),
    "complex64": (_COMPLEX, 64),
    "complex128": (_COMPLEX, 128),
}
"""Name to DLPack's type code (`DLDataTypeCode`) and the bits of an element. Elements of less than a byte are packed."""
NAMES = {code_and_bits: name for name, code_and_bits in TYPES.items()}
MEMORY_BITS = 8
_LARGEST = (1 << 63) - 1


def bits_of(dtype: str) -> int:
    """Bits of one element.

    Raises:
        TensorError: no memory of a fixed size holds this type.
    """
    if dtype == "string":
        raise TensorError("strings differ in length, and a TensorBuffer has a fixed size: pass arrays of bytes instead")
    if dtype not in TYPES:
        raise TensorError(f"Unsupported dtype: {dtype}, expected one of {', '.join(TYPES)}")
    return TYPES[dtype][1]


def is_packed(dtype: str) -> bool:
    """Whether several elements share a byte; raises the errors of `bits_of`."""
    return bits_of(dtype) < MEMORY_BITS


def count(shape: tuple[int, ...]) -> int:
    """Number of elements."""
    elements = 1
    for size in shape:
        elements *= size
    return elements


def nbytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a dense tensor.

    Raises:
        TensorError: the type is unknown, a size is negative, or the tensor too large for any memory.
    """
    bits = bits_of(dtype)
    if any(size < 0 for size in shape):
        raise TensorError(f"a tensor {dtype}{list(shape)} cannot be made: a size is negative")
    nbytes = -(-count(shape) * bits // MEMORY_BITS)
    if nbytes > _LARGEST:
        raise TensorError(f"a tensor {dtype}{list(shape)} cannot be made: {nbytes} bytes are too many")
    return nbytes


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one index to the next along each axis of a row-major tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides, in elements, are those of a row-major tensor; axes of one element have any stride."""
    pairs = zip(shape, strides, dense_strides(shape), strict=True)
    return 0 in shape or all(size == 1 or stride == dense for size, stride, dense in pairs)
