"""One partition in one interpreter, from LiteRT's `init` to its `free`."""

from __future__ import annotations

import ctypes

from jitdelegate.errors import DeviceError, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.engine.litert_delegate.context import Context, Partition
    from jitdelegate.engine.litert_delegate.delegate_client import DelegateKernel
    from jitdelegate.engine.litert_delegate.delegation import Delegation

_ENTRY, _ARGUMENTS, _NUMBER, _WORDS = 0, 1, 2, 4
_WORD_BYTES = 8


class Shapes(dict[int, tuple[int, ...]]):
    """Current shapes of tensors by index, read on first access."""

    __slots__ = ("_context",)

    def __init__(self, context: Context, indices: Sequence[int]) -> None:
        super().__init__((index, context.tensor(index).shape) for index in indices)
        self._context: Context | None = context

    def __missing__(self, index: int) -> tuple[int, ...]:
        if self._context is None or not 0 <= index < self._context.num_tensors():
            raise KeyError(index)
        self[index] = self._context.tensor(index).shape
        return self[index]

    def seal(self) -> None:
        """Allow no further reads: LiteRT continues, and the context may change."""
        self._context = None

    def hold(self, context: Context) -> bool:
        """Whether all of them are unchanged in `context`."""
        return all(context.tensor(index).shape == shape for index, shape in self.items())


class Kernel:
    """The kernel behind LiteRT's node of a delegated partition.

    Attributes:
        delegation: of the kernel's delegate.
        subgraph: index in the file.
        nodes: positions of the operators.
        inputs: tensors that they read from outside.
        outputs: tensors that others read.
        slot: four words that node->user_data points at: the function to run, its arguments, the kernel's number, and
            one unused. They keep their address while the kernel lives.
    """

    __slots__ = (
        "_client_kernel",
        "_python_entry",
        "_shapes",
        "delegation",
        "inputs",
        "nodes",
        "outputs",
        "slot",
        "subgraph",
    )

    def __init__(self, delegation: Delegation, subgraph: int, number: int, python_entry: int) -> None:
        self.delegation = delegation
        self.subgraph = subgraph
        self.nodes: tuple[int, ...] = ()
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()
        self.slot = (ctypes.c_uint64 * _WORDS)(python_entry, 0, number, 0)
        self._python_entry = python_entry
        self._shapes: Shapes | None = None
        self._client_kernel: DelegateKernel | None = None

    @property
    def address(self) -> int:
        """Address of the slot."""
        return ctypes.addressof(self.slot)

    def take(self, partition: Partition) -> None:
        """Keep LiteRT's description of the partition."""
        self.nodes = partition.nodes
        self.inputs = tuple(index for index in partition.inputs if index >= 0)
        self.outputs = partition.outputs

    def prepare(self, context: Context) -> None:
        """Get the client's kernel for the current shapes, and set the output shapes in LiteRT.

        Raises:
            DeviceError: an input's shape is not known yet, or LiteRT refuses a shape.
        """
        for index in self.inputs:
            _refuse_unknown(context, index)
        if self._shapes is None or not self._shapes.hold(context):
            self._open(context)
        kernel = self._client_kernel
        assert kernel is not None
        for index, shape in zip(kernel.outputs, kernel.output_shapes, strict=True):
            context.resize(index, shape)

    def run(self, context: Context) -> None:
        """One inference through Python.

        Raises:
            DeviceError: `prepare` did not succeed.
        """
        kernel = self._client_kernel
        if kernel is None:
            raise DeviceError("a partition runs that was never prepared")
        kernel.run(context.data((*kernel.inputs, *kernel.outputs)))

    def close(self) -> None:
        """Close the client's kernel; harmless a second time."""
        kernel, self._client_kernel, self._shapes = self._client_kernel, None, None
        if kernel is not None:
            kernel.close()

    def _open(self, context: Context) -> None:
        shapes = Shapes(context, self.inputs)
        new = self.delegation.client.kernel(self.subgraph, self.nodes, shapes, context.address)
        shapes.seal()
        others = sorted((set(self.outputs) ^ set(new.outputs)) | (set(new.inputs) - set(self.inputs)))
        if others:
            new.close()
            raise DeviceError(f"a kernel and its partition differ in the tensors {', '.join(map(str, others))}")
        old, self._client_kernel, self._shapes = self._client_kernel, new, shapes
        self.slot[_ENTRY], self.slot[_ARGUMENTS] = new.entry or self._python_entry, new.arguments
        if old is not None:
            old.close()


def number_at(slot: int) -> int:
    """The number of the kernel with this slot; 0 for the address 0."""
    return ctypes.c_uint64.from_address(slot + _NUMBER * _WORD_BYTES).value if slot else 0


def _refuse_unknown(context: Context, index: int) -> None:
    tensor = context.tensor(index)
    if tensor.is_dynamic and not tensor.data and 0 not in tensor.shape:
        raise DeviceError(f"tensor {index} ({shortened(tensor.name)}) gets its shape only while the model runs")
