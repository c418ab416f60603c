"""Element types of numpy's arrays as those of tensor buffers."""

from __future__ import annotations

import sys

from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.runtime.element_types import TYPES, is_packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LITERT_TYPES = {
    *("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("int32", "int8", "uint8", "bool"),
}
"""What LiteRT writes to and reads from a buffer of any type, byte by byte; other types have to be the buffer's."""
ML_TYPES = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
"""Types that numpy has from ml_dtypes."""
_names: dict[Any, str] = {}


def array_type(array: Any) -> str:
    """The element type of a numpy array.

    Raises:
        TensorError: it is no array, or of a type that no buffer has.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray):
        raise TensorError("data_array must be a NumPy array")
    return type_name(array.dtype)


def type_name(dtype: Any) -> str:
    """numpy's name of an element type, which is looked up once.

    Raises:
        TensorError: no buffer has it.
    """
    try:
        return _names[dtype]
    except (KeyError, TypeError):  # unknown, or nothing that a dictionary can hold
        name = _found_name(dtype)
    _names[dtype] = name
    return name


def _found_name(dtype: Any) -> str:
    try:
        found = numpy_type(dtype) if isinstance(dtype, str) else numpy_module().dtype(dtype)
    except TypeError:
        found = None
    if dtype is None or found is None or not found.isnative or found.name not in TYPES or is_packed(found.name):
        raise TensorError(f"Unsupported dtype: {dtype}")
    return str(found.name)


def numpy_type(name: str) -> Any:
    """numpy's element type of this name, or that of ml_dtypes; bytes for packed elements.

    Raises:
        TypeError: there is none.
        TensorError: ml_dtypes would have it, but is not installed.
    """
    if name in TYPES and is_packed(name):
        return numpy_module().dtype("uint8")
    if name not in ML_TYPES:
        return numpy_module().dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise TensorError(f"numpy has no {name}: pip install ml_dtypes") from error
    return numpy_module().dtype(getattr(ml_dtypes, name))


def numpy_module() -> Any:
    """numpy, which runs of models do without.

    Raises:
        DeviceError: it cannot be imported, as while Python exits.
    """
    try:
        import numpy
    except ImportError as error:
        raise DeviceError(f"numpy cannot be imported: {error}") from error
    return numpy
