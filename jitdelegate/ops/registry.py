"""The operator table, and the base class of operators: check, lower, reference and cases in one class."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
from flatbuffers import flexbuffers

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr
from jitdelegate.ir.forms import Form, IndexMap, Map, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import ACTIVATIONS, INTEGERS, OPTION, Call, Shape, constant_problems, dequantization_problems
from jitdelegate.ops.case import Case

MAX_RANK = 8
"""The highest rank that kernels are generated for."""

MAX_ELEMENTS = (1 << 31) - 1
"""Most elements of one tensor: chunks are counted in 32 bits."""

MAX_PARTS = 4096
"""Most parts of one operator that are compiled one by one: groups, operands, phases. A thousand take about a second."""

MAX_NUMBERED = 1 << 24
"""Most elements of a constant that an operator may synthesize as a table of indices."""

MAX_SENTENCE = 500
"""Most characters of a reason: the shapes, lists and names that it quotes may be of any length."""


Kinds = Mapping[int, tuple[str, ...]]
"""Number of an operand or an output -> the types that it may have."""
FLOATS = ("float32",)
BOOLEANS = ("bool",)
NUMBERS = ("float32", "int32", "int64")
"""The types that kernels calculate with."""
QUANTIZED = ("int8", "uint8", "int16", "int32")
"""The types of quantized values that kernels can move."""
BYTES = ("int8", "uint8")
HYBRID = ("int8", "int4")
"""The types of quantized weights beside float32 data."""
NATIVE = (*NUMBERS, "bool", "int8", "uint8", "int16", "uint16", "uint32", "float16")
"""The types that kernels can move and numpy has."""
ANY = (*NATIVE, "bfloat16")
"""The types that kernels can move."""
HALF = ("float16",)
"""The type that LiteRT's kernels of floats, or XNNPACK's, also compute with."""
SHORT = (*HALF, "bfloat16")
"""Those of the operators that LiteRT has kernels of bfloat16 for."""
_UNREADABLE = (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError, MemoryError, struct.error)
"""The errors that flexbuffers raises on invalid bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Lowering:
    """One kernel: the computation of a value.

    Attributes:
        form: the kernel form.
        inputs: in the form's order, its own operands first: tensor indices (ABSENT where the form allows it), other
            lowerings (the same object twice is computed once), or arrays and tensors that become new constants.
        shape: the shape that the form writes; None for the shape of the node's output. Where the two differ, the output
            is a View of the result.
        dtype: the type that the form writes; None for the type of the node's output.
    """

    form: Form
    inputs: tuple[int | Lowering | np.ndarray | Tensor, ...]
    shape: Shape | None = None
    dtype: str | None = None


def computed_type(dtype: str) -> str:
    """The type in which kernels compute with values of a type that they only move."""
    return "int32" if dtype == "bool" else ELEMENT_TYPES[dtype].compute


@overload
def view(source: np.ndarray, shape: Shape, dtype: str = ...) -> np.ndarray: ...
@overload
def view(source: int | Lowering, shape: Shape, dtype: str = ...) -> Lowering: ...
def view(source: int | Lowering | np.ndarray, shape: Shape, dtype: str = "float32") -> Lowering | np.ndarray:
    """The same elements under another shape; those of an array at once."""
    return source.reshape(shape) if isinstance(source, np.ndarray) else Lowering(View(), (source,), shape, dtype)


def moved(source: int | Lowering, access: IndexMap, shape: Shape | None = None, dtype: str | None = None) -> Lowering:
    """The elements of a value that `access` reads; nothing is computed."""
    return Lowering(Map(Arg(0), (access,)), (source,), shape, dtype)


def cast(source: int | Lowering, shape: Shape, dtype: str) -> Lowering:
    """The elements of a value of `shape`, converted to another type."""
    return Lowering(Map(Cast(Arg(0), dtype), (IndexMap.broadcast(shape, shape),)), (source,), shape, dtype)


class Op:
    """One operator of TFLite.

    A subclass declares the number of inputs, yields its own reasons to refuse in `problems`, and computes the output's
    shape, the lowering and the reference.
    """

    name: ClassVar[str]
    custom: ClassVar[bool] = False
    """True where `name` is a custom code; `decode` then reads the options."""
    version: ClassVar[int] = 1
    """The version of the operator in the cases' models, which LiteRT asks for; no condition for other models."""
    least: ClassVar[int] = 1
    """Fewest inputs; these must be given."""
    most: ClassVar[int] = 1
    """Most inputs."""
    parameters: ClassVar[tuple[int, ...]] = ()
    """Inputs that hold integers (axes, sizes, paddings) and have to be constants."""
    parameter_types: ClassVar[tuple[str, ...]] = INTEGERS
    """The types of `parameters`."""
    parameter_size: ClassVar[int] = 2 * MAX_RANK
    """Most elements of one of `parameters`."""
    shape_inputs: ClassVar[tuple[int, ...]] = ()
    """Further inputs that may decide the output's shape; where they do, they have to be constants."""
    types: ClassVar[tuple[str, ...]] = FLOATS
    """The types of values; all operands and outputs of a node have one of them in common."""
    kinds: ClassVar[Kinds] = {}
    """The types of the operands to which `types` does not apply."""
    results: ClassVar[Kinds] = {}
    """The types of the outputs to which `types` does not apply."""
    quantized: ClassVar[tuple[str, ...]] = ()
    """The types of quantized data that the operator is compiled for."""
    quantized_kinds: ClassVar[Kinds] = {}
    """Beside quantized data, the types of operands to which `quantized` does not apply; more than `kinds`."""
    quantized_results: ClassVar[Kinds] = {}
    """The same of outputs."""
    narrow: ClassVar[tuple[str, ...]] = ()
    """Further types of values that are not quantized: `passes.compute_wide` converts them to a wider one and back."""
    weights: ClassVar[tuple[int, ...]] = ()
    """Operands that may be quantized where the data is float32."""
    hybrid: ClassVar[tuple[str, ...]] = ()
    """The types that `weights` may then have."""
    folds: ClassVar[int] = MAX_ELEMENTS
    """Most elements of the outputs of a node that is folded. A `reference` that mainly serves the tests is slow."""
    takes_empty: ClassVar[bool] = False
    """True where operands may have no elements. Outputs without elements, and all that follows from operands without
    elements, are known while compiling, so that kernels never see such tensors, unless `skips_empty`."""
    skips_empty: ClassVar[bool] = False
    """True where `lowering` leaves out operands without elements, or what computes outputs without elements."""
    activates: ClassVar[bool] = False
    """True where the option `fused_activation_function` is applied."""
    window_start: ClassVar[int | None] = None
    """The operand with the index from which on the second operand replaces elements of the first; None if none does."""
    cases: ClassVar[tuple[Case, ...]] = ()

    def check(self, graph: Graph, node: Node) -> str | None:
        """None if `lower` can express the node, else one sentence that says what was found."""
        call = self._wide(Call(graph, node))
        reasons = (self.structure(call), self.sizes(call.outputs), self._values(call), self._emptiness(call))
        reason = next(chain.from_iterable(reasons), None)
        return reason if reason is None or len(reason) <= MAX_SENTENCE else f"{reason[:MAX_SENTENCE]} and so on."

    def widened(self, call: Call) -> frozenset[int]:
        """The tensors of `narrow` types among the values."""
        if not self.narrow:
            return frozenset()
        operands = (index for k, index in enumerate(call.node.inputs) if k not in (*self.parameters, *self.kinds))
        outputs = (index for k, index in enumerate(call.node.outputs) if k not in self.results)
        values = {index: call.graph.tensors[index] for index in (*operands, *outputs) if index != ABSENT}
        return frozenset(k for k, tensor in values.items() if tensor.dtype in self.narrow and not tensor.is_quantized)

    def _wide(self, call: Call) -> Call:
        """The call with the `widened` tensors in the types that they are computed in; constants have their old data."""
        widened = self.widened(call)
        if not widened:
            return call
        tensors = list(call.graph.tensors)
        for index in widened:
            tensors[index] = replace(tensors[index], dtype=computed_type(tensors[index].dtype))
        return Call(replace(call.graph, tensors=tuple(tensors)), call.node)

    def structure(self, call: Call) -> Iterator[str]:
        """Reasons why the node is invalid or cannot be expressed, even with all operands dense and not quantized.

        Only the first reason counts: code after a `yield` may rely on its condition being false. The shapes of the
        outputs are not checked: `shapes` computes them.
        """
        if self.custom and not call.node.attrs:
            yield f"{self.name}: its {len(call.node.custom_options)} bytes of options are not what its kernel reads."
        yield from self._operands(call)
        yield from self._parameters(call)
        yield from self._types(call)
        yield from self._activation(call)
        yield from self.problems(call)

    def _operands(self, call: Call) -> Iterator[str]:
        if not self.least <= call.count <= self.most:
            expected = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
            yield f"{self.name} has {call.count} inputs, expected {expected}."
        if len(call.node.outputs) != self.outputs(call):
            yield f"{self.name} has {len(call.node.outputs)} outputs, expected {self.outputs(call)}."
        missing = [k for k in range(self.least) if not call.given(k)]
        if missing:
            yield f"{self.name} lacks its input {missing[0]}."
        values = self._data(call)
        yield from self.sizes(values)
        if not self.takes_empty:
            yield from self._without_elements(values)
        for tensor in values + call.outputs:
            if tensor.is_variable:
                yield f"{self.name}: '{tensor.title}' is a variable, which keeps its value from run to run."

    def knows_shapes(self, call: Call) -> bool:
        """Whether `shapes` holds for the node, which may be quantized or have types that no kernel supports."""
        if self.custom and not call.node.attrs:
            return False
        reasons = (self._operands(call), self._parameters(call), self.problems(call))
        return next(chain.from_iterable(reasons), None) is None

    def sizes(self, tensors: Sequence[Tensor]) -> Iterator[str]:
        """Reasons why no kernel supports tensors of these shapes."""
        for tensor in tensors:
            if not tensor.has_rank:
                yield f"{self.name}: the rank of '{tensor.title}' is not known."
            if len(tensor.shape) > MAX_RANK:
                yield f"{self.name}: '{tensor.title}' has rank {len(tensor.shape)}, at most {MAX_RANK} is supported."
            if min(tensor.shape, default=0) < 0:
                yield f"{self.name}: the shape of '{tensor.title}' is {list(tensor.shape)}."
            if prod(tensor.shape) > MAX_ELEMENTS:
                yield f"{self.name}: '{tensor.title}' has {prod(tensor.shape)} elements, more than {MAX_ELEMENTS}."

    def _data(self, call: Call) -> list[Tensor]:
        """The operands that are given and no `parameters`."""
        return [call.tensor(k) for k in range(call.count) if call.given(k) and k not in self.parameters]

    def _without_elements(self, tensors: Sequence[Tensor]) -> Iterator[str]:
        for tensor in tensors:
            if 0 in tensor.shape:
                yield f"{self.name}: '{tensor.title}' has no elements, its shape is {list(tensor.shape)}."

    def _emptiness(self, call: Call) -> Iterator[str]:
        if not self.skips_empty:
            yield from self._without_elements([*self._data(call), *call.outputs])

    def _parameters(self, call: Call) -> Iterator[str]:
        for operand in filter(call.given, self.parameters):
            tensor = call.tensor(operand)
            if tensor.dtype not in self.parameter_types:
                yield f"{self.name}: input {operand} is {tensor.dtype}, {_only(self.parameter_types)} supported."
            yield from constant_problems(call, operand)
            if tensor.size > self.parameter_size:
                yield f"{self.name}: input {operand} has {tensor.size} elements, more than {self.parameter_size}."

    def _activation(self, call: Call) -> Iterator[str]:
        name = call.option(OPTION, "NONE")
        if name not in (ACTIVATIONS if self.activates else ("NONE",)):
            yield f"{self.name} with the fused activation {name} is not supported."

    def _types(self, call: Call) -> Iterator[str]:
        types, kinds, results = self._allowed(call.quantization)
        if not types:
            yield f"{self.name} of quantized values is not supported."
        own = {}
        for operand in range(call.count):
            if call.given(operand) and operand not in self.parameters:
                dtype = own[operand] = call.tensor(operand).dtype
                allowed = kinds.get(operand, types)
                if dtype not in allowed:
                    yield f"{self.name}: input {operand} is {dtype}, {_only(allowed)} supported."
        values = {dtype for operand, dtype in own.items() if operand not in kinds}
        if len(values) > 1:
            yield f"{self.name}: the inputs are {' and '.join(sorted(values))}, expected one type."
        for number, output in enumerate(call.outputs):
            allowed = results.get(number) or tuple(values) or types
            if output.dtype not in allowed:
                yield f"{self.name}: the output is {output.dtype}, {_only(allowed)} supported."

    def _allowed(self, quantization: str) -> tuple[Sequence[str], Kinds, Kinds]:
        """(types of values, types of other operands, types of other outputs) for a node that is so quantized."""
        if quantization == "integer":
            return self.quantized, {**self.kinds, **self.quantized_kinds}, {**self.results, **self.quantized_results}
        if quantization == "hybrid":
            weights = dict.fromkeys(self.weights, (*FLOATS, *self.hybrid))
            return self.types if weights else (), {**self.kinds, **weights}, self.results
        return self.types, self.kinds, self.results

    def _values(self, call: Call) -> Iterator[str]:
        for operand in range(call.count):
            is_odd = call.given(operand) and call.tensor(operand).is_constant and call.constant(operand) is None
            if is_odd and not (operand in self.weights and call.tensor(operand).dtype == "int4"):
                yield f"{self.name}: input {operand} is a sparse or packed constant."
        if call.quantization == "integer":
            yield from self.quantized_problems(call)
        if call.quantization == "hybrid":
            yield from self.hybrid_problems(call)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        """The operator's own reasons to refuse quantized data."""
        yield from ()

    def hybrid_problems(self, call: Call) -> Iterator[str]:
        """The operator's own reasons to refuse quantized weights of float32 data."""
        for operand in filter(call.given, self.weights):
            if call.tensor(operand).is_quantized:
                yield from dequantization_problems(call, operand)

    def widens(self, call: Call) -> bool:
        """Whether a node with float32 data and quantized weights computes with the floats that the weights stand for.
        `passes.widen_weights` then replaces them, and `hybrid_lowering` is not asked."""
        return True

    def problems(self, call: Call) -> Iterator[str]:
        """The operator's own reasons to refuse."""
        yield from ()

    def updates(self, node: Node) -> tuple[int, ...]:
        """The operands that are states: variables that the node also writes. After `passes.functional_state`, the node
        has one further output for each state, behind its other outputs."""
        return ()

    def outputs(self, call: Call) -> int:
        """The number of outputs that the node must have."""
        return 1

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        """The shapes of the outputs of a node without `problems`."""
        return (self.shape(call),)

    def shape(self, call: Call) -> Shape:
        """As `shapes`, for an operator with one output; by default that of the first operand."""
        return call.shape(0)

    def work(self, call: Call) -> int:
        """An estimate of the multiply-adds of one run, or of steps of about their size."""
        return max((prod(tensor.shape) for tensor in (*call.operands, *call.outputs)), default=0)

    def lower(self, graph: Graph, node: Node) -> tuple[Lowering, ...]:
        """How to compute each output of a node that `check` accepts."""
        call = Call(graph, node)
        lowerings = {"": self.lowering, "integer": self.quantized_lowering, "hybrid": self.hybrid_lowering}
        lowered = lowerings[call.quantization](call)
        return lowered if isinstance(lowered, tuple) else (lowered,)

    def lowering(self, call: Call) -> Lowering | tuple[Lowering, ...]:
        """As `lower`."""
        raise NotImplementedError

    def quantized_lowering(self, call: Call) -> Lowering | tuple[Lowering, ...]:
        """As `lower`, of quantized data: by default the operator moves numbers, whatever they stand for."""
        return self.lowering(call)

    def hybrid_lowering(self, call: Call) -> Lowering | tuple[Lowering, ...]:
        """As `lower`, of float32 data and quantized weights, for nodes that `widens` is false for."""
        raise NotImplementedError

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        """The outputs in plain numpy, sums in float64; None in `arrays` stands for an operand that is not given."""
        raise NotImplementedError

    def decode(self, options: bytes) -> dict[str, Any]:
        """The options of a custom operator by name; no options where the bytes are not in its kernel's format."""
        raise NotImplementedError

    def foldable(self, call: Call) -> bool:
        """True where the node's outputs are known while compiling. Quantized nodes are excluded, because `reference`
        does not know quantization, and results of bfloat16, which numpy has no type for."""
        known = all(call.constant(k) is not None for k in range(call.count) if call.given(k))
        is_quantized = any(tensor.is_quantized for tensor in (*call.operands, *call.outputs))
        return known and not is_quantized and all(tensor.dtype != "bfloat16" for tensor in call.outputs)

    def fold(self, call: Call) -> list[np.ndarray]:
        """The outputs of a `foldable` node for which `structure` gives no reasons."""
        arrays = [call.constant(k) if call.given(k) else None for k in range(call.count)]
        return self.reference(arrays, call.node.attrs)

    def grid(self, call: Call) -> Quant | None:
        """The quantization of the integers that `fold` makes floats of; None for all other operators."""
        return None

    @staticmethod
    def epilogue(call: Call) -> Expr:
        """The fused activation as an epilogue."""
        return ACTIVATIONS[call.option(OPTION, "NONE")](RESULT)


def _only(types: Sequence[str]) -> str:
    """`only float32 is`, or `only float32, int32 and int64 are`."""
    *first, last = types
    return f"only {', '.join(first)} and {last} are" if first else f"only {last} is"


OPS: dict[str, Op] = {}
"""TFLite's name or the custom code -> the operator; importing `jitdelegate.ops` fills the table."""


def find(node: Node) -> Op | None:
    """The operator of the node, None if it is unknown or has failed."""
    op = OPS.get(node.op)
    return op if op and op.custom == node.custom and not node.trouble else None


Definition = TypeVar("Definition", bound=type[Op])


def op(name: str, *, custom: bool = False) -> Callable[[Definition], Definition]:
    """Registers the class in OPS: `@op("CONV_2D")`."""

    def register(definition: Definition) -> Definition:
        definition.name, definition.custom = name, custom
        OPS[name] = definition()
        return definition

    return register


def flex_map(content: bytes) -> dict[str, Any] | None:
    """The options in a FlexBuffer, by name, as custom operators and composites have them; None where it is no map."""
    try:
        options = flexbuffers.Loads(content)
    except _UNREADABLE:
        return None
    return options if isinstance(options, dict) else None
