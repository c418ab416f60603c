"""The caller's tensors: addresses of inputs, and outputs that need no numpy.

An input is anything with the buffer protocol or numpy's array protocols; only small arrays, and memory that is not
contiguous or aligned, are copied. An output is a ctypes array, whose buffer has the right element format and shape from
Python 3.11 on, so numpy.asarray(output) copies nothing. It behaves like the array on its memory, and imports numpy for
that.
"""

from __future__ import annotations

import ctypes
import sys

from jitdelegate.errors import DeviceError, TensorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import numpy as np

    from jitdelegate.program.program import Port

ELEMENTS: dict[str, Any] = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "uint16": ctypes.c_uint16,
    "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool,
}
ENCODED: dict[str, Any] = {"float16": ctypes.c_uint16}
"""Types that ctypes lacks -> the type of their bits. Callers get numpy's arrays on the memory of such outputs."""
_FLOATS, _SIGNED, _UNSIGNED = tuple("efd"), tuple("bhilqn"), tuple("BHILQN")
_COMPLEX, _RAW = ("Zf", "Zd"), tuple("Bbc")
_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "xor", "or")
_OTHERS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"),
    *("getitem", "setitem", "iter", "contains", "str", "format"),
)
"""Operators of arrays: those that also exist reflected and in place, and the others."""
_CHARS = {
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "lq",
}
_CHARS.update({"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "LQ"})
"""Element type -> numpy's characters for it."""
_COUNTED = ("int32", "int64")
"""Types of tokens and positions, for which integers of other types are taken: numpy makes int64 of Python's."""
_DLPACK_CPU = 1
_item: Any = ctypes.Array.__getitem__
LARGEST_SIZE = 2147483647
"""LiteRT's sizes are int32."""
LARGEST_COPY = 1 << 14
"""Bytes of an array up to which a copy takes less time than its address."""
_PLAIN_BUFFER = 0  # PyBUF_SIMPLE: contiguous, read-only memory will do


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("nbytes", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None


class Borrowed:
    """The memory of a contiguous object, held in place until `release`.

    Attributes:
        address: of its first byte; 0 for no bytes.
        nbytes: its length.
    """

    __slots__ = ("_buffer", "address", "nbytes")
    _give_back = staticmethod(_release_buffer)  # a module's own names are gone before its last objects

    def __init__(self, value: Any) -> None:
        self._buffer = _Buffer()
        _get_buffer(value, ctypes.byref(self._buffer), _PLAIN_BUFFER)
        self.address: int = self._buffer.address or 0
        self.nbytes: int = self._buffer.nbytes

    def release(self) -> None:
        """Release the memory; harmless a second time."""
        self._give_back(self._buffer)

    def __del__(self) -> None:
        self.release()


def is_port_array(value: Any, port: Port) -> bool:
    """Whether a value is a numpy array of the port's type and shape in one piece; takes a tenth of `checked`'s time."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.shape != port.shape:
        return False
    dtype, flags = value.dtype, value.flags
    is_type = dtype.char in _CHARS.get(port.dtype, "") and dtype.isnative and value.nbytes == port.nbytes
    return is_type and flags.c_contiguous and flags.aligned


def borrow(value: Any, port: Port) -> Borrowed:
    """The memory of an input, checked against its port as by `taken`.

    Memory that is not contiguous or not aligned to its elements is copied.

    Raises:
        TensorError: the type, shape or length is not the port's.
        DeviceError: out of memory for a copy.
    """
    if is_port_array(value, port):
        return Borrowed(value)
    view = taken(value, port, port.shape)
    if not view.c_contiguous:
        return Borrowed(_copy(view, port))
    borrowed = Borrowed(view)
    if borrowed.address % alignment_of(port.dtype):
        return Borrowed(_copy(view, port))
    return borrowed


def alignment_of(dtype: str) -> int:
    """Bytes to which memory of an element type is aligned."""
    return ctypes.alignment(ELEMENTS.get(dtype) or ENCODED.get(dtype, ctypes.c_uint8))


class InputSlot:
    """Where one input of a run lies: in place, or a copy of a small array, which takes less time than its address.

    Attributes:
        port: the input.
    """

    __slots__ = ("_address", "_array_class", "_copy", "_dtype", "_shape", "port")
    _address: int

    def __init__(self, port: Port) -> None:
        self.port = port
        self._array_class: Any = None

    def address_of(self, value: Any, borrowed: list[Borrowed]) -> int:
        """The address of the elements; raises the errors of `borrow`.

        Args:
            borrowed: receives the memory that has to be held during the run.
        """
        if type(value) is self._array_class and value.dtype is self._dtype and value.shape == self._shape:
            self._copy[...] = value
            return self._address
        memory = borrow(value, self.port)
        borrowed.append(memory)
        if self._array_class is None and memory.nbytes <= LARGEST_COPY:
            self._expect_arrays(value)
        return memory.address

    def _expect_arrays(self, value: Any) -> None:
        """Copy numpy arrays like this one, which the port accepts, from now on."""
        numpy = sys.modules.get("numpy")
        if numpy is None or type(value) is not numpy.ndarray or value.dtype.name != self.port.dtype:
            return
        self._copy = numpy.empty_like(value, order="C", subok=False)
        self._address = self._copy.ctypes.data
        self._dtype, self._shape = value.dtype, value.shape
        self._array_class = numpy.ndarray


def _copy(view: memoryview, port: Port) -> bytes:
    try:
        return view.tobytes()
    except MemoryError as error:
        raise no_memory(port, view.nbytes) from error


def no_memory(port: Port, nbytes: int) -> DeviceError:
    """The error about a tensor that is too large for this machine."""
    return DeviceError(f"no memory of {nbytes} bytes for tensor {port.title!r}")


def checked(value: Any, port: Port, shape: tuple[int, ...]) -> memoryview:
    """The elements of a tensor in row-major order, for any target.

    An array must have the port's element type and `shape`. Flat buffers without a shape (bytes, array.array, ctypes
    arrays) must have the right length, in elements of the port's type or in bytes (format B, b or c). Nested lists of
    numbers, and objects with numpy's array protocols or DLPack go through numpy.

    Raises:
        TensorError: the type, shape or length is wrong.
        DeviceError: out of memory for an array.
    """
    view = _view(value, port)
    if not _has_elements(view, value, port, shape):
        raise _mismatch(view, port, shape)
    return view


def taken(value: Any, port: Port, shape: tuple[int, ...]) -> memoryview:
    """The elements of an input, as by `checked`; integers of another type are converted for an int32 or int64 input.

    Raises:
        TensorError, DeviceError: as `checked`; also for an integer that does not fit the input's type.
    """
    view = _view(value, port)
    if _has_elements(view, value, port, shape):
        return view
    count = port.nbytes // ctypes.sizeof(ELEMENTS.get(port.dtype, ctypes.c_uint8))
    is_flat = not hasattr(value, "dtype") and view.shape == (count,)
    if not takes_integers(port, _dtype(view)) or not (is_flat or view.shape == shape):
        raise _mismatch(view, port, shape)
    import numpy

    numbers: Any = in_type(numpy.asarray(view), port.title, port.dtype)
    return memoryview(numbers)


def counted_type(dtype: str, scales: Sequence[float]) -> str:
    """The type of an input that takes integers of any type where they fit; "" for one that does not."""
    return dtype if dtype in _COUNTED and not len(scales) else ""


def takes_integers(port: Port, dtype: str) -> bool:
    """Whether an input takes values of this element type where they fit its own."""
    return bool(counted_type(port.dtype, port.scales)) and dtype.startswith(("int", "uint"))


def in_type(array: np.ndarray, name: str, dtype: str) -> np.ndarray:
    """Integers in another type.

    Args:
        name: of the tensor that they are for.
    Raises:
        TensorError: one does not fit.
    """
    import numpy

    limits = numpy.iinfo(dtype)
    outside = (array < limits.min) | (array > limits.max)
    if outside.any():
        index = tuple(map(int, numpy.argwhere(outside)[0]))
        raise TensorError(
            f"tensor {name!r}: found {array[index]} at {list(index)}, expected {dtype}: {limits.min} to {limits.max}"
        )
    return numpy.ascontiguousarray(array, dtype).reshape(array.shape)


def _has_elements(view: memoryview, value: Any, port: Port, shape: tuple[int, ...]) -> bool:
    return _is_raw(view, port) or _is_typed(view, port, shape, hasattr(value, "dtype"))


def _mismatch(view: memoryview, port: Port, shape: tuple[int, ...]) -> TensorError:
    is_real = bool(port.scales) and _dtype(view) == "float32"
    return TensorError(
        f"tensor {port.title!r}: found {_dtype(view)}{list(view.shape or ())},"
        f" expected {port.dtype}{list(shape)} or {port.nbytes} bytes"
        f"{', or the option quantize_inputs' if is_real else ''}"
    )


def accepted_shape(value: Any, port: Port) -> tuple[int, ...]:
    """The input's shape for this value: the port's, or an array's own shape where the model leaves sizes open.

    Only an array of a type that the port takes counts; the length of a flat buffer determines no sizes.
    """
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or shape == port.shape:
        return port.shape
    dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]  # of "float32", or "torch.float32"
    if dtype != port.dtype and not takes_integers(port, dtype):
        return port.shape
    return tuple(shape) if fits(shape, port.shape_signature) else port.shape


def fits(shape: Sequence[int], signature: Sequence[int]) -> bool:
    """Whether a shape has the sizes of a signature, in which -1 is any size."""
    return len(shape) == len(signature) and all(
        size in (-1, given) for given, size in zip(shape, signature, strict=True)
    )


def integers(value: Any, port: Port, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The elements of an int32 or int64 input, row-major; raises the errors of `checked`."""
    content = memoryview(_copy(taken(value, port, shape), port))
    return tuple(content.cast("i" if port.dtype == "int32" else "q").tolist())


def _view(value: Any, port: Port) -> memoryview:
    try:
        return memoryview(value)
    except (TypeError, ValueError, BufferError):
        pass
    import numpy

    is_array = hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    array: Any
    try:
        if not is_array and hasattr(value, "__dlpack__"):
            array = numpy.from_dlpack(value)
        else:
            array = numpy.asarray(value)
            if not is_array:
                array = _numbers(array, value, port)
        return memoryview(array)
    except (TypeError, ValueError, OverflowError, BufferError) as error:
        raise TensorError(f"tensor {port.title!r} cannot be made from {type(value).__name__}: {error}") from error
    except MemoryError as error:
        raise no_memory(port, port.nbytes) from error


def _numbers(array: Any, value: Any, port: Port) -> Any:
    """A list's numbers in the port's type; numpy alone would also accept None and strings, and truncate fractions."""
    import numpy

    kinds = "bui" if port.dtype.startswith(("int", "uint", "bool")) else "buifc"
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"it holds {array.dtype.name} values, expected numbers that fit {port.dtype}")
    return numpy.asarray(value, port.dtype)


def _is_raw(view: memoryview, port: Port) -> bool:
    return view.ndim == 1 and _code(view) in _RAW and view.nbytes == port.nbytes


def _is_typed(view: memoryview, port: Port, shape: tuple[int, ...], is_array: bool) -> bool:
    flat = not is_array and view.ndim == 1 and view.nbytes == port.nbytes
    return _dtype(view) == port.dtype and (flat or view.shape == shape)


def _code(view: memoryview) -> str:
    """The element's format without a mark for native byte order."""
    return view.format.lstrip("@=<")


def _dtype(view: memoryview) -> str:
    """numpy's name of the element type; the format if there is none."""
    code = _code(view)
    if code == "?":
        return "bool"
    for kind, codes in (("float", _FLOATS), ("int", _SIGNED), ("uint", _UNSIGNED), ("complex", _COMPLEX)):
        if code in codes:
            return f"{kind}{8 * view.itemsize}"
    return f"format {view.format!r}"


class ElementType(str):
    """An output's element type: numpy's name of it, which also equals numpy's type and has its attributes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) if isinstance(other, str) else bool(self._numpys() == other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocols
            raise AttributeError(f"an ElementType has no attribute {name!r}")
        return getattr(self._numpys(), name)

    def _numpys(self) -> Any:
        import numpy

        return numpy.dtype(str(self))


class Tensor:
    """An output: memory with a shape, an element type and the buffer protocol.

    `numpy.asarray(tensor)` and `torch.from_dlpack(tensor)` share the memory, which lives as long as they do;
    `bytes(tensor)` copies it. Indexing, operators and all other methods and attributes are those of the numpy array on
    this memory, and import numpy. They make numpy's arrays and numbers; in-place operators return the tensor itself.

    Attributes:
        shape: sizes, outermost first.
        dtype: numpy's name of the element type, which equals numpy's own.
        nbytes: length of the row-major memory.
    """

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: ElementType
    nbytes: int

    def tolist(self) -> Any:
        """Nested lists of Python numbers; a number for rank 0."""
        if not self.shape:
            return self.value
        if len(self.shape) == 1:
            return _item(self, slice(None))
        return [_nested(_item(self, index), len(self.shape) - 1) for index in range(self.shape[0])]

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """numpy's description of the memory, version 3."""
        address, size = ctypes.addressof(self), ctypes.sizeof(ELEMENTS[self.dtype])  # type: ignore[arg-type]
        order = "|" if size == 1 else "<" if sys.byteorder == "little" else ">"
        kind = f"{order}{self.dtype[0]}{size}"
        return {"shape": self.shape, "typestr": kind, "data": (address, False), "version": 3}

    def __dlpack__(self, **asked: Any) -> Any:
        """A DLPack capsule of the memory, which is the CPU's; raises numpy's errors."""
        return self.__array__().__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocols that arrays of this kind do not have
            raise AttributeError(f"a Tensor has no attribute {name!r}")
        return getattr(self.__array__(), name)

    def __dir__(self) -> list[str]:
        """Names to complete: an array's methods too."""
        return [*super().__dir__(), *(name for name in dir(self.__array__()) if not name.startswith("_"))]

    def __bytes__(self) -> bytes:
        return memoryview(self).tobytes()

    def __bool__(self) -> bool:
        return bool(self.__array__())

    def __int__(self) -> int:
        """
        Raises:
            ValueError: there is not exactly one element; so for `float` and `complex`.
        """
        return int(self.__array__().item())

    def __float__(self) -> float:
        return float(self.__array__().item())

    def __complex__(self) -> complex:
        return complex(self.__array__().item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy

        array = numpy.asarray(memoryview(self))
        return as_asked(self, array.view(str(self.dtype)) if self.dtype in ENCODED else array, dtype, copy)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by type, shape and elements."""
        return _tensor_of, (str(self.dtype), self.shape, bytes(self))

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{list(self.shape)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: type, shape, range and some elements."""
        from jitdelegate.base.html_tables import array_rows, html_table  # not before: only notebooks ask for it

        return html_table(repr(self), array_rows(self.__array__()))


def as_asked(owner: Any, array: Any, dtype: Any, copy: bool | None) -> Any:
    """What `__array__(dtype, copy)` of `owner` answers, whose memory is `array`.

    Raises:
        ValueError: no copy is wanted, but the type is another one.
    """
    if dtype is None or array.dtype == dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(f"{owner!r} cannot be shared as {dtype}")
    return array.astype(dtype)


def _nested(values: Any, rank: int) -> Any:
    if rank == 1:
        return values[:]
    return [_nested(row, rank - 1) for row in values]


def _of_array(name: str) -> Callable[..., Any]:
    """The array's operator as a method."""

    def operator(self: Tensor, *operands: Any) -> Any:
        return getattr(self.__array__(), name)(*operands)

    return operator


def _in_place(name: str) -> Callable[..., Any]:
    """The array's in-place operator as a method that returns the tensor."""

    def operator(self: Tensor, operand: Any) -> Any:
        done = getattr(self.__array__(), name)(operand)
        return done if done is NotImplemented else self

    return operator


for _name in (*_BINARY, "divmod", *(f"r{name}" for name in (*_BINARY, "divmod")), *_OTHERS):
    setattr(Tensor, f"__{_name}__", _of_array(f"__{_name}__"))
for _name in _BINARY:
    setattr(Tensor, f"__i{_name}__", _in_place(f"__i{_name}__"))


def _tensor_of(dtype: str, shape: tuple[int, ...], content: bytes) -> Any:
    return tensor_class(dtype, shape).from_buffer_copy(content)


def handed_out(output: Tensor) -> Any:
    """What a caller gets of an output: the tensor, or numpy's array on its memory where ctypes lacks its type."""
    return output.__array__() if output.dtype in ENCODED else output


_classes: dict[tuple[str, tuple[int, ...]], type] = {}


def tensor_class(dtype: str, shape: tuple[int, ...]) -> Any:
    """The class of zeroed tensors of this type and shape; its objects own their memory.

    Raises:
        TensorError: unknown element type, or too large.
    """
    key = (dtype, shape)
    if key not in _classes:
        _classes[key] = _make_class(dtype, shape)
    return _classes[key]


def bytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Length of a tensor of this type and shape; raises the errors of `tensor_class`, whose making takes longer."""
    if dtype not in ELEMENTS and dtype not in ENCODED:
        raise TensorError(f"a tensor of {dtype} cannot be made, expected one of {', '.join((*ELEMENTS, *ENCODED))}")
    nbytes = ctypes.sizeof(ELEMENTS.get(dtype) or ENCODED[dtype])
    for size in reversed(shape):
        nbytes *= size
        if size < 0 or nbytes > sys.maxsize:
            raise TensorError(f"a tensor {dtype}{list(shape)} cannot be made: {nbytes} bytes from size {size} on")
    return nbytes


def _make_class(dtype: str, shape: tuple[int, ...]) -> type:
    nbytes = bytes_of(dtype, shape)
    element: Any = ELEMENTS.get(dtype) or ENCODED[dtype]
    memory = element
    for size in reversed(shape):
        memory = memory * size
    values = {"shape": shape, "dtype": ElementType(dtype), "nbytes": nbytes, "__slots__": ()}
    if "int" in dtype and nbytes == ctypes.sizeof(element):
        values["__index__"] = Tensor.__int__
    return type("Tensor", (Tensor, memory), values)
