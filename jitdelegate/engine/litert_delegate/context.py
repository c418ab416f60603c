"""A TfLiteContext: the tensors and nodes of one subgraph in LiteRT, and its functions for delegates.

Reads are plain reads, for contexts that passed `check.py`.
"""

from __future__ import annotations

import ctypes
import struct

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.litert_layout import CONTEXT_FUNCTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jitdelegate.runtime.litert_layout import Layout

TYPES = (
    *("none", "float32", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float16"),
    *("float64", "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16", "int2"),
    *("uint4", "float8_e4m3fn", "float8_e5m2"),
)
"""Names of the types, by the value of TfLiteTensor.type."""
READ_ONLY, ARENA, DYNAMIC = 1, 2, 4
"""Some of TfLiteTensor.allocation_type: constants of the file, planned memory, memory of its own."""
_OK = 0
_LARGEST_REGISTRATION = 256

Address = ctypes.c_void_p
Word = ctypes.c_uint64


class Registration(ctypes.Structure):
    """A TfLiteRegistration as an argument: by value, so it is copied to the stack and may be longer than LiteRT's.

    The bytes after today's fields are zero, so that fields of later versions are unset.
    """

    _fields_ = (("words", _LARGEST_REGISTRATION // 8 * Word),)


_byte, _int32, _uint64 = ctypes.c_uint8.from_address, ctypes.c_int32.from_address, Word.from_address
_malloc = ctypes.CDLL(None).malloc
_malloc.restype = Address
_malloc.argtypes = (ctypes.c_size_t,)
_GET_PLAN = ctypes.CFUNCTYPE(ctypes.c_int, Address, Address)
_GET_NODE = ctypes.CFUNCTYPE(ctypes.c_int, Address, ctypes.c_int, Address, Address)
_RESIZE = ctypes.CFUNCTYPE(ctypes.c_int, Address, Address, Address)
_REPORT = ctypes.CFUNCTYPE(None, Address, ctypes.c_char_p)
_REPLACE = ctypes.CFUNCTYPE(ctypes.c_int, Address, Registration, Address, Address)
_PREVIEW = ctypes.CFUNCTYPE(ctypes.c_int, Address, Address, Address, Address)


class Tensor:
    """One TfLiteTensor; attributes are read on access.

    Attributes:
        index: in the subgraph.
        address: of the structure, valid until LiteRT adds tensors.
    """

    __slots__ = ("_fields", "_layout", "address", "index")

    def __init__(self, layout: Layout, index: int, address: int) -> None:
        self._layout = layout
        self._fields = layout.tensor
        self.index = index
        self.address = address

    @property
    def dtype(self) -> str:
        """numpy's name of the type, or TFLite's in lower case."""
        return type_name(_int32(self.address + self._fields["type"]).value)

    @property
    def data(self) -> int:
        """The address of the elements; 0 where they have no memory."""
        return _uint64(self.address + self._fields["data"]).value

    @property
    def shape(self) -> tuple[int, ...]:
        return integers(self._layout, _uint64(self.address + self._fields["dims"]).value)

    @property
    def nbytes(self) -> int:
        return _uint64(self.address + self._fields["bytes"]).value

    @property
    def name(self) -> str:
        address = _uint64(self.address + self._fields["name"]).value
        return ctypes.string_at(address).decode("utf-8", "surrogateescape") if address else ""

    @property
    def allocation_type(self) -> int:
        return _int32(self.address + self._fields["allocation_type"]).value

    @property
    def is_variable(self) -> bool:
        """Whether it keeps its value from run to run."""
        return bool(_byte(self.address + self._fields["is_variable"]).value)

    @property
    def is_dynamic(self) -> bool:
        """Whether its shape is known only after the operator that writes it has run."""
        return self.allocation_type == DYNAMIC


class Node:
    """One operator as LiteRT holds it.

    Attributes:
        inputs, outputs: tensors; -1 for inputs that are not given.
        builtin_code: TFLite's number of the operator.
    """

    __slots__ = ("builtin_code", "inputs", "outputs")

    def __init__(self, layout: Layout, node: int, registration: int) -> None:
        self.inputs = integers(layout, _uint64(node + layout.node["inputs"]).value)
        self.outputs = integers(layout, _uint64(node + layout.node["outputs"]).value)
        self.builtin_code = _int32(registration + layout.registration["builtin_code"]).value


class Partition:
    """One TfLiteDelegateParams.

    Attributes:
        delegate: the address of the TfLiteDelegate.
        nodes: positions of the operators.
        inputs: tensors that they read and do not write, constants included.
        outputs: tensors that others read.
    """

    __slots__ = ("delegate", "inputs", "nodes", "outputs")

    def __init__(self, layout: Layout, address: int) -> None:
        fields = layout.params
        self.delegate = _uint64(address + fields["delegate"]).value
        self.nodes = integers(layout, _uint64(address + fields["nodes_to_replace"]).value)
        self.inputs = integers(layout, _uint64(address + fields["input_tensors"]).value)
        self.outputs = integers(layout, _uint64(address + fields["output_tensors"]).value)


class Context:
    """One TfLiteContext.

    Attributes:
        address: of the structure.
        layout: offsets of its fields.
    """

    __slots__ = ("address", "layout")

    def __init__(self, address: int, layout: Layout) -> None:
        self.address = address
        self.layout = layout

    def tensor(self, index: int) -> Tensor:
        """A tensor of the subgraph; the index must be valid."""
        return Tensor(self.layout, index, self._tensors() + index * self.layout.tensor.size)

    def num_tensors(self) -> int:
        """Number of tensors, LiteRT's temporary ones included."""
        return _uint64(self.address + self.layout.context["tensors_size"]).value

    def data(self, indices: Sequence[int]) -> list[int]:
        """Addresses of the tensors' elements."""
        first, size = self._tensors() + self.layout.tensor["data"], self.layout.tensor.size
        return [_uint64(first + index * size).value for index in indices]

    def execution_plan(self) -> tuple[int, ...]:
        """The nodes that run, in order."""
        array = ctypes.c_uint64()
        self._call("GetExecutionPlan", _GET_PLAN, ctypes.addressof(array))
        return integers(self.layout, array.value)

    def node(self, position: int) -> Node:
        """An operator of the execution plan."""
        node, registration = ctypes.c_uint64(), ctypes.c_uint64()
        addresses = ctypes.addressof(node), ctypes.addressof(registration)
        self._call("GetNodeAndRegistration", _GET_NODE, position, *addresses)
        return Node(self.layout, node.value, registration.value)

    def preview(self, nodes: Sequence[int]) -> list[Partition]:
        """LiteRT's groups of `nodes`, were they delegated."""
        claimed, first, count = int_array(self.layout, nodes), ctypes.c_uint64(), ctypes.c_int32()
        addresses = ctypes.addressof(claimed), ctypes.addressof(first), ctypes.addressof(count)
        self._call("PreviewDelegatePartitioning", _PREVIEW, *addresses)
        size = self.layout.params.size
        return [Partition(self.layout, first.value + number * size) for number in range(count.value)]

    def replace(self, registration: bytearray, nodes: Sequence[int], delegate: int) -> None:
        """Replace `nodes` by kernels of `registration`, the bytes of a `Registration`.

        Raises:
            DeviceError: LiteRT refuses.
        """
        claimed = int_array(self.layout, nodes)
        arguments = Registration.from_buffer_copy(registration), ctypes.addressof(claimed), delegate
        self._call("ReplaceNodeSubsetsWithDelegateKernels", _REPLACE, *arguments)

    def resize(self, index: int, shape: Sequence[int]) -> None:
        """Set a tensor's shape; LiteRT allocates its memory later.

        Raises:
            DeviceError: LiteRT refuses.
        """
        content = _int_array_bytes(self.layout, shape)
        address = _malloc(len(content))
        if not address:
            raise DeviceError(f"no memory of {len(content)} bytes")
        ctypes.memmove(address, content, len(content))
        self._call("ResizeTensor", _RESIZE, self.tensor(index).address, address)  # which frees the array

    def report(self, text: str) -> None:
        """Make `text` the text of LiteRT's next error."""
        words = text.replace("%", "%%").encode("utf-8", "replace").replace(b"\0", b"?")
        _REPORT(self._function("ReportError"))(self.address, words)

    def _tensors(self) -> int:
        return _uint64(self.address + self.layout.context["tensors"]).value

    def _function(self, name: str) -> int:
        assert name in CONTEXT_FUNCTIONS
        return _uint64(self.address + self.layout.context[name]).value

    def _call(self, name: str, prototype: Callable[[int], Callable[..., int]], *arguments: object) -> None:
        status = prototype(self._function(name))(self.address, *arguments)
        if status != _OK:
            raise DeviceError(f"LiteRT's {name} answered {status}, expected 0")


def integers(layout: Layout, address: int) -> tuple[int, ...]:
    """The numbers of the TfLiteIntArray at `address`; () at 0."""
    if not address:
        return ()
    count = _int32(address + layout.int_array["size"]).value
    return tuple((ctypes.c_int32 * max(count, 0)).from_address(address + layout.int_array["data"]))


def int_array(layout: Layout, numbers: Sequence[int]) -> ctypes.Array[ctypes.c_char]:
    """A TfLiteIntArray in our memory."""
    content = _int_array_bytes(layout, numbers)
    return ctypes.create_string_buffer(content, len(content))


def type_name(number: int) -> str:
    """The name of a TfLiteType; "type 99" for an unknown one."""
    return TYPES[number] if 0 <= number < len(TYPES) else f"type {number}"


def _int_array_bytes(layout: Layout, numbers: Sequence[int]) -> bytes:
    start = layout.int_array["data"]
    content = bytearray(max(start + 4 * len(numbers), layout.int_array.end()))
    struct.pack_into("<i", content, layout.int_array["size"], len(numbers))
    struct.pack_into(f"<{len(numbers)}i", content, start, *numbers)
    return bytes(content)
