"""Model, Graph, Node, Tensor: immutable values that every stage of the compile path reads and rebuilds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from jitdelegate.base.targets import X86_64
from jitdelegate.errors import shortened

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from jitdelegate.ir.forms import Form

ABSENT = -1
"""Marks an optional operand that is not given in a node's inputs."""


class Numbers(Sequence[Any]):
    """A read-only array as a sequence of Python numbers, which are made when they are read: a language model has
    millions of scales. Where `convert` is given, the numbers are what it makes of the array's."""

    __slots__ = ("_array", "_convert")

    _AT_ONCE = 1 << 12

    def __init__(self, array: np.ndarray, convert: Callable[[np.ndarray], np.ndarray] | None = None) -> None:
        self._array, self._convert = array.reshape(-1), convert

    def __len__(self) -> int:
        return int(self._array.size)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Numbers(self._array[index], self._convert)
        return self._converted(self._array[index].reshape(1)).item()

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), self._AT_ONCE):
            yield from self._converted(self._array[start : start + self._AT_ONCE]).tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers | tuple) and np.array_equal(np.asarray(self), np.asarray(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self._converted(self._array)
        return found.astype(dtype or found.dtype, copy=bool(copy))

    def _converted(self, array: np.ndarray) -> np.ndarray:
        return self._convert(array) if self._convert else array


@dataclass(frozen=True, slots=True)
class Quant:
    """real = scale * (stored - zero_point), per tensor (one entry), per slice along `axis`, or per `block_size` ones
    in a row. One zero point may stand for all of them."""

    scales: Sequence[float]
    zero_points: Sequence[int]
    axis: int = 0
    block_size: int = 0
    minimum: tuple[float, ...] = ()
    maximum: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class DimensionMetadata:
    """How one dimension of a sparse constant is stored: DENSE with a size, or SPARSE_CSR with segments and indices."""

    sparse: bool
    dense_size: int = 0
    segments: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sparsity:
    """TFLite's SparsityParameters: the order in which dimensions (and blocks of them) are traversed."""

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    dimensions: tuple[DimensionMetadata, ...]


@dataclass(frozen=True, eq=False)
class Tensor:
    """One value of a graph.

    Attributes:
        name: the name in the file.
        shape: static sizes, outermost first; () is a scalar. A dimension unknown in the file has TFLite's
            placeholder size (1 as a rule) here and -1 in `shape_signature`.
        dtype: numpy's name ("float32", "int8", ...) or TFLite's own for types that numpy lacks
            ("string", "resource", "variant", "int4", "bfloat16").
        data: the constant's elements as a read-only row-major array of `shape`, None for runtime values. Of bfloat16
            the float32 numbers; raw bytes as uint8[n] of other types that numpy lacks; the stored values as [n] where
            `sparsity` is set.
        quant: quantization parameters, None for unquantized tensors.
        grid: of a float32 constant, the parameters of the integers that it was computed from; a hint only.
        shape_signature: as `shape`, -1 for dimensions that are not known.
        has_rank: False where the file says that even the rank is unknown.
        is_matrix: of a constant, whether another subgraph multiplies by it.
        is_static: of a value that an uncompiled operator writes, whether LiteRT has said that this is its shape.
        is_inner: whether it is no value of the file, but what an operator computes on the way to its results.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None
    quant: Quant | None = None
    shape_signature: tuple[int, ...] = ()
    is_variable: bool = False
    has_rank: bool = True
    sparsity: Sparsity | None = None
    grid: Quant | None = None
    is_matrix: bool = False
    is_static: bool = False
    is_inner: bool = False

    @property
    def title(self) -> str:
        """The name for messages, which is not longer than `errors.LONGEST_NAME`."""
        return shortened(self.name)

    @property
    def is_constant(self) -> bool:
        return self.data is not None

    @property
    def is_quantized(self) -> bool:
        """True where the stored integers stand for other numbers."""
        return self.quant is not None and bool(self.quant.scales) and not self.dtype.startswith("float")

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(prod(self.shape))

    def holding(self, elements: ArrayLike) -> Tensor:
        """The tensor as a constant: a read-only copy of these elements, which have its shape, in its type. Those of
        another constant are shared rather than copied."""
        is_constant = isinstance(elements, np.ndarray) and not elements.flags.writeable
        dtype = "float32" if self.dtype == "bfloat16" else self.dtype
        data = (np.asarray if is_constant else np.array)(elements, np.dtype(dtype), order="C")
        assert data.shape == self.shape, f"'{self.name}' cannot hold {data.shape}, its shape is {self.shape}"
        data.flags.writeable = False
        return replace(self, data=data)


@dataclass(frozen=True, eq=False)
class Node:
    """One operation.

    Attributes:
        op: TFLite's builtin name (CONV_2D), or the custom code where `custom` is set.
        inputs: tensor indices; ABSENT for optional operands not given.
        outputs: tensor indices.
        attrs: TFLite's option names and values (`padding`, `stride_w`, ...), enums as their TFLite names.
        version: the operator version, a hint only.
        custom: True for CUSTOM operators; `custom_options` then holds their raw bytes.
        origin: positions of the .tflite operators that this node stands for.
        intermediates: quantization of the values inside the operator, as the file lists them: an LSTM's gates.
        form: how the node is computed; None until `passes.lower` has run.
        trouble: why the compiler treats the operator as an unknown one; "" where it does not.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    custom: bool = False
    custom_options: bytes = b""
    origin: tuple[int, ...] = ()
    intermediates: tuple[Quant | None, ...] = ()
    form: Form | None = None
    trouble: str = ""

    def between(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Node:
        """The node between these tensors: itself where they are its own."""
        is_same = inputs == self.inputs and outputs == self.outputs
        return self if is_same else replace(self, inputs=inputs, outputs=outputs)


def form_of(node: Node) -> Form:
    """How a lowered node is computed."""
    assert node.form is not None, f"{node.op} is not lowered"
    return node.form


@dataclass(frozen=True, eq=False)
class State:
    """A value that lives from run to run: one run's output is the next one's input.

    Attributes:
        before: the tensor with the value that the last run left.
        after: the tensor with the value that this run leaves.
        initial: the value in the first run, None for zeros.
        is_resource: True for a resource variable, which LiteRT's `reset_all_variables` does not change.
    """

    before: int
    after: int
    initial: np.ndarray | None = None
    is_resource: bool = False


@dataclass(frozen=True, slots=True)
class QuantizedOptions:
    """How quantized operators are computed: the values of two options.

    Attributes:
        rounding: "litert" rounds as LiteRT does by default, "reference" as its reference kernels do.
        execution: "auto", "dynamic" or "float_view".
        multiplies_bytes: whether the device multiplies bytes several times faster than floats.
        cpu: the family of the CPU on which LiteRT gives the results to agree with.
    """

    rounding: str = "litert"
    execution: str = "auto"
    multiplies_bytes: bool = False
    cpu: str = X86_64


@dataclass(frozen=True, eq=False)
class Graph:
    """One subgraph: nodes in execution order over an indexed list of tensors.

    Attributes:
        inputs: the caller's inputs, then the `before` of each state.
        outputs: the caller's outputs, then the `after` of each state.
        states: empty until `passes.functional_state` has run.
        quantized: how quantized operators are computed.
        called: the model's subgraphs, if operators may name some; empty once shapes are inferred.
    """

    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str = ""
    states: tuple[State, ...] = ()
    quantized: QuantizedOptions = QuantizedOptions()
    called: tuple[Graph, ...] = ()

    @property
    def given(self) -> tuple[int, ...]:
        """The inputs that the caller gives."""
        return self.inputs[: len(self.inputs) - len(self.states)]

    @property
    def returned(self) -> tuple[int, ...]:
        """The outputs that the caller gets."""
        return self.outputs[: len(self.outputs) - len(self.states)]

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For every tensor, the positions of the nodes that read it, in order, without repetition."""
        found: list[list[int]] = [[] for _ in self.tensors]
        for position, node in enumerate(self.nodes):
            for index in dict.fromkeys(node.inputs):
                if index != ABSENT:
                    found[index].append(position)
        return tuple(tuple(positions) for positions in found)

    @cached_property
    def writer(self) -> tuple[int | None, ...]:
        """For every tensor, the position of the node that writes it, or None (constants and inputs)."""
        found: list[int | None] = [None] * len(self.tensors)
        for position, node in enumerate(self.nodes):
            for index in node.outputs:
                found[index] = position
        return tuple(found)

    def only_reader(self, index: int) -> int | None:
        """The position of the only node that reads tensor `index`; None if several nodes or the caller read it."""
        readers = self.readers[index]
        return readers[0] if len(readers) == 1 and index not in self.outputs else None


@dataclass(frozen=True, slots=True)
class Signature:
    """A named entry point: argument names -> tensor indices of one subgraph."""

    key: str
    graph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Model:
    """A whole .tflite file: `graphs[0]` is the main subgraph."""

    graphs: tuple[Graph, ...]
    signatures: tuple[Signature, ...] = ()
    description: str = ""
    version: int = 3
    metadata: Mapping[str, bytes] = field(default_factory=dict)
