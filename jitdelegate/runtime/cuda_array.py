"""The CUDA array interface, version 3: memory of a GPU as CuPy, PyTorch and Numba describe it.

Source: Numba's documentation, "CUDA Array Interface (Version 3)".
"""

from __future__ import annotations

import sys

from jitdelegate.errors import TensorError
from jitdelegate.runtime.element_types import MEMORY_BITS, TYPES, bits_of, is_dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
_LETTERS = {"bool": "b", **{name: letter for letter, name in _KINDS.items()}}


class CudaArray:
    """A dense array in memory of a GPU.

    Attributes:
        address: of its first element; 0 for no elements.
        dtype: numpy's name of the element type.
        shape: sizes, outermost first.
        is_readonly: whether nobody may write to it.
        stream: handle of the stream with the producer's work on the memory, by the interface's numbers (1 is the legacy
            default stream, 2 the thread's); None if there is none to wait for.
    """

    __slots__ = ("address", "dtype", "is_readonly", "shape", "stream")

    def __init__(self, value: Any) -> None:
        """
        Raises:
            TensorError: the object has no such interface, or its array is masked, not dense, or of an unknown type.
        """
        interface = getattr(value, "__cuda_array_interface__", None)
        if not isinstance(interface, dict):
            raise TensorError(f"found {type(value).__name__}, expected an object with __cuda_array_interface__")
        if interface.get("mask") is not None:
            raise TensorError("the CUDA array is masked, expected an array without a mask")
        self.dtype = _dtype(interface["typestr"])
        self.shape = tuple(map(int, interface["shape"]))
        strides = interface.get("strides")
        if strides is not None and not self._is_dense(strides):
            raise TensorError(
                f"the CUDA array of shape {list(self.shape)} has the strides {list(strides)} in bytes, expected"
                " contiguous (row-major) memory: make a contiguous copy"
            )
        address, self.is_readonly = interface["data"]
        self.address = int(address or 0)
        self.stream = interface.get("stream")
        if self.stream == 0:
            raise TensorError("the CUDA array's stream is 0, which the interface does not allow; expected 1 or 2")

    def _is_dense(self, strides: tuple[int, ...]) -> bool:
        size = bits_of(self.dtype) // MEMORY_BITS
        return not any(step % size for step in strides) and is_dense(
            self.shape, tuple(step // size for step in strides)
        )


def _dtype(typestr: str) -> str:
    order, kind, size = typestr[:1], typestr[1:2], typestr[2:]
    name = "bool" if typestr[1:] == "b1" else f"{_KINDS.get(kind, kind)}{MEMORY_BITS * int(size or 0)}"
    own = "<" if sys.byteorder == "little" else ">"
    if order not in ("|", "=", own) or name not in TYPES:
        raise TensorError(
            f"the CUDA array's type is {typestr!r}, expected numbers that numpy knows; create_from_dlpack takes others"
        )
    return name


def interface(
    address: int, dtype: str, shape: tuple[int, ...], *, readonly: bool, stream: int | None = None
) -> dict[str, Any]:
    """The description of a dense array; types without a letter are raw bytes ("V").

    Args:
        stream: whose work the consumer has to follow, by the interface's numbers; None for no work.
    """
    size = bits_of(dtype) // MEMORY_BITS
    kind = _LETTERS.get(dtype.rstrip("0123456789"), "V")
    order = "|" if size == 1 else "<" if sys.byteorder == "little" else ">"
    return {
        "shape": shape,
        "typestr": f"{order}{kind}{size}",
        "data": (address, readonly),
        "strides": None,
        "version": 3,
        "stream": stream,
    }
