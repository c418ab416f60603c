"""DLPack: memory that arrays of other libraries share, and capsules that share ours.

numpy makes the capsules, so that C code owns and frees them, whoever drops one, and whenever; afterwards they are told
what numpy has no word for: a GPU, and types such as bfloat16. Source: dlpack.h, version 1.1.
"""

from __future__ import annotations

import ctypes
import sys

from jitdelegate.errors import TensorError
from jitdelegate.runtime.element_types import MEMORY_BITS, NAMES, TYPES, count, is_dense, is_packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Kinds of devices (`DLDeviceType`)."""
HOSTS, GPUS = (CPU, CUDA_HOST), (CUDA, CUDA_MANAGED)
DEFAULT_STREAM, NO_STREAM = 1, -1
"""CUDA's default stream, and that of a consumer who sees to the order himself, in the numbering of `__dlpack__`."""
VERSION = (1, 1)
"""The newest version that is read; all of major number 1 are alike."""
_READ_ONLY = 1
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED = {_PLAIN: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


for _name in _USED.values():
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_name))  # capsules point to it, and some are the last to go
_LAYOUTS: dict[bytes, Any] = {_PLAIN: _Managed, _VERSIONED: _ManagedVersioned}
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_get_pointer.restype = ctypes.c_void_p
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes = (ctypes.py_object, ctypes.c_char_p)


class Shared:
    """A dense tensor in memory of another library; give it back by dropping it.

    Attributes:
        address: of its first element; 0 for no elements.
        device_type, device: kind of its device, and which of them.
        dtype: numpy's name of the element type.
        shape: sizes, outermost first.
        is_readonly: whether nobody may write to it.
    """

    _is_ending = staticmethod(sys.is_finalizing)  # a module's own names are gone before its last objects

    def __init__(self, managed: Any) -> None:
        """
        Raises:
            TensorError: it is not dense, or its type is none of TYPES.
        """
        self._release: Any = None
        tensor = managed.tensor
        self.shape = tuple(tensor.shape[axis] for axis in range(tensor.rank))
        self.dtype = NAMES.get((tensor.code, tensor.bits), "") if tensor.lanes == 1 else ""
        if not self.dtype or is_packed(self.dtype):
            kind = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
            raise TensorError(f"DLPack memory of an unsupported dtype ({kind}), expected one of {', '.join(TYPES)}")
        strides = tuple(tensor.strides[axis] for axis in range(tensor.rank)) if tensor.strides else None
        if strides is not None and not is_dense(self.shape, strides):
            raise TensorError(
                f"DLPack memory of shape {list(self.shape)} has the strides {list(strides)}, expected contiguous"
                " (row-major) memory: make a contiguous copy"
            )
        self.address: int = (tensor.data or 0) + tensor.byte_offset
        self.device_type: int = tensor.device_type
        self.device: int = tensor.device
        self.is_readonly = bool(getattr(managed, "flags", 0) & _READ_ONLY)
        self._managed = managed

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return count(self.shape) * TYPES[self.dtype][1] // MEMORY_BITS

    def own(self) -> None:
        """Give the memory back when this object goes."""
        if self._managed.deleter:
            self._release = _Deleter(self._managed.deleter)

    def __del__(self) -> None:
        if self._release is not None and not self._is_ending():
            self._release(ctypes.addressof(self._managed))


def take(value: Any, stream: int | None = None) -> Shared:
    """The memory of an object with `__dlpack__`, or of a capsule, which nobody can take again.

    Args:
        stream: of a GPU, which then follows the producer's work on the memory; None for memory of the host.
    Raises:
        TensorError: it is neither of the two, was taken before, or its memory is not dense or of an unknown type.
    """
    if type(value).__name__ == "PyCapsule":
        return _taken(value)
    make = getattr(value, "__dlpack__", None)
    if make is None:
        raise TensorError(f"found {type(value).__name__}, expected an object with __dlpack__ or a DLPack capsule")
    asked = {} if stream is None else {"stream": stream}
    try:
        try:
            capsule = make(max_version=VERSION, **asked)
        except TypeError:  # a library from before DLPack 1.0
            capsule = make(**asked)
    except BufferError as error:
        raise TensorError(f"{type(value).__name__} does not share its memory through DLPack: {error}") from error
    return _taken(capsule)


def device_of(value: Any) -> tuple[int, int] | None:
    """(kind, number) of the device of an object's memory; None for a capsule, which says it only when it is taken."""
    ask = getattr(value, "__dlpack_device__", None)
    if ask is None:
        return None
    kind, number = ask()
    return int(kind), int(number)


def _taken(capsule: Any) -> Shared:
    for name, layout in _LAYOUTS.items():
        if _is_valid(capsule, name):
            managed = layout.from_address(_get_pointer(capsule, name))
            if name == _VERSIONED and managed.major != VERSION[0]:
                raise TensorError(f"the capsule is of DLPack {managed.major}.{managed.minor}, expected {VERSION[0]}.x")
            shared = Shared(managed)
            _set_name(capsule, _USED[name])
            shared.own()
            return shared
    if any(_is_valid(capsule, name) for name in _USED.values()):
        raise TensorError("the DLPack capsule was consumed before; make another one by __dlpack__()")
    raise TensorError(f"found {capsule!r}, expected a DLPack capsule")


def share(
    memory: Any, dtype: str, shape: tuple[int, ...], device: tuple[int, int], *, readonly: bool, asked: dict[str, Any]
) -> Any:
    """A capsule of dense memory, which keeps `memory` alive.

    Args:
        memory: a ctypes array on the memory, which may be a GPU's.
        asked: `max_version`, if the consumer names one.
    Raises:
        BufferError: the consumer cannot take it.
    """
    if is_packed(dtype):
        raise BufferError(f"elements of {dtype} share bytes, which other libraries do not read alike; use view()")
    import numpy

    code, bits = TYPES[dtype]
    plain = "complex128" if bits == 2 * 64 else f"uint{bits}"
    array: Any = numpy.ndarray(shape, plain, memory)
    array.flags.writeable = not readonly
    try:
        capsule = array.__dlpack__(**asked)
    except TypeError:  # numpy before 2.1, whose capsules have no version
        capsule = array.__dlpack__()
    name = next(name for name in _LAYOUTS if _is_valid(capsule, name))
    tensor = _LAYOUTS[name].from_address(_get_pointer(capsule, name)).tensor
    tensor.code, tensor.bits = code, bits
    tensor.device_type, tensor.device = device
    return capsule
