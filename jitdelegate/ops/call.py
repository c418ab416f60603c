"""A node with the tensors around it, in the form that operators need: operands, fused activation, scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitdelegate.ir.expr import Arg, Expr, clamp, evaluate, maximum
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor

Shape = tuple[int, ...]

INTEGERS = ("int32", "int64")
"""The types that TFLite allows for axes, sizes and paddings."""
WORDS = ("float32", "int32")
"""The types of LiteRT's kernels without int64."""

ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {
    "NONE": lambda x: x,
    "RELU": lambda x: maximum(x, 0),
    "RELU_N1_TO_1": lambda x: clamp(x, -1, 1),
    "RELU6": lambda x: clamp(x, 0, 6),
}
"""TFLite's name -> the expression. LiteRT's kernels silently ignore TANH and SIGN_BIT, so models with these two are
left to LiteRT."""

OPTION = "fused_activation_function"
"""TFLite's name of the option that holds the activation."""


def activated(name: str, values: np.ndarray) -> np.ndarray:
    """float32 values after the activation `name`, which has to be one of ACTIVATIONS."""
    return evaluate(ACTIVATIONS[name](Arg(0)), [values.astype(np.float32)])


def with_axis(shape: Shape, axis: int, *sizes: int) -> Shape:
    """The shape with one axis replaced by these sizes."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def given(arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The operands of a reference that are given."""
    return [array for array in arrays if array is not None]


@dataclass(frozen=True, slots=True)
class Call:
    """One node of a graph; operands are numbered as in the node's inputs."""

    graph: Graph
    node: Node

    @property
    def count(self) -> int:
        """Number of inputs, absent ones included."""
        return len(self.node.inputs)

    def given(self, operand: int) -> bool:
        """True where the operand is given: neither left out at the end nor ABSENT."""
        return operand < self.count and self.node.inputs[operand] != ABSENT

    def index(self, operand: int) -> int:
        """The operand's tensor index; ABSENT where the operand is not given."""
        return self.node.inputs[operand] if operand < self.count else ABSENT

    def tensor(self, operand: int) -> Tensor:
        """The tensor of an operand that is given."""
        return self.graph.tensors[self.node.inputs[operand]]

    def shape(self, operand: int) -> Shape:
        """The shape of an operand that is given."""
        return self.tensor(operand).shape

    def constant(self, operand: int) -> np.ndarray | None:
        """The operand's elements in its own shape; None for runtime values and for sparse or packed constants."""
        tensor = self.tensor(operand)
        data = tensor.data  # once: a Dequantized one is computed
        return data if data is not None and data.shape == tensor.shape else None

    def array(self, operand: int) -> np.ndarray:
        """As `constant`, for an operand that is known to be a constant."""
        data = self.constant(operand)
        assert data is not None
        return data

    def integers(self, operand: int) -> Shape:
        """The elements, flattened, of a constant that `Op.structure` has found to hold integers."""
        return tuple(int(value) for value in self.array(operand).flat)

    def option(self, name: str, default: Any) -> Any:
        """The node's option; `default` where the file leaves the option out."""
        return self.node.attrs.get(name, default)

    @property
    def quantization(self) -> str:
        """How the node is quantized: "integer" (its values), "hybrid" (only its weights, beside float values) or ""."""
        if not any(tensor.is_quantized for tensor in (*self.operands, *self.outputs)):
            return ""
        data = [self.tensor(0)] if self.given(0) else []
        return "integer" if any(tensor.is_quantized for tensor in (*data, *self.outputs)) else "hybrid"

    @property
    def operands(self) -> list[Tensor]:
        """The tensors of the operands that are given, in order."""
        return [self.graph.tensors[index] for index in self.node.inputs if index != ABSENT]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that the node writes."""
        return [self.graph.tensors[index] for index in self.node.outputs]

    @property
    def output(self) -> Tensor:
        """The tensor that the node writes."""
        return self.graph.tensors[self.node.outputs[0]]


def constant_problems(call: Call, *operands: int) -> Iterator[str]:
    """Reasons to refuse the node, where one of these given operands is known only at run time."""
    for operand in operands:
        if call.constant(operand) is None:
            yield f"{call.node.op}: input {operand} ('{call.tensor(operand).title}') is not a constant."


def dequantization_problems(call: Call, operand: int) -> Iterator[str]:
    """Reasons to refuse the node, unless its quantized operand is a constant whose real numbers are known."""
    tensor = call.tensor(operand)
    quant, name = tensor.quant, f"{call.node.op}: input {operand} ('{tensor.title}')"
    if tensor.data is None or tensor.sparsity is not None or quant is None:
        yield f"{name} is {tensor.dtype} and no dense constant."
        return
    count = len(quant.scales)
    has_blocks = quant.block_size > 0 and count * quant.block_size == tensor.size
    if count != 1 and not has_blocks and (quant.axis >= len(tensor.shape) or count != tensor.shape[quant.axis]):
        yield f"{name} has {count} scales along axis {quant.axis}, which do not fit the shape {list(tensor.shape)}."
    if len(quant.zero_points) not in (0, 1, count):
        yield f"{name} has {len(quant.zero_points)} zero points for {count} scales."


def scale(tensor: Tensor) -> np.float32:
    """The scale of a tensor that has one for all its elements."""
    assert tensor.quant is not None
    return np.float32(tensor.quant.scales[0])


def zero(tensor: Tensor) -> int:
    """The zero point of a tensor that has one for all its elements; 0 without quantization."""
    return int(tensor.quant.zero_points[0]) if tensor.is_quantized and tensor.quant else 0


def parameters(tensor: Tensor) -> tuple[float, int]:
    """Scale and zero point: equal for tensors whose stored numbers stand for the same."""
    return float(scale(tensor)), zero(tensor)


def same_axis(a: Tensor, b: Tensor) -> bool:
    """Whether the scales of both lie along the same axis, which XNNPACK looks at even where there is one scale."""
    return (a.quant.axis if a.quant else 0) == (b.quant.axis if b.quant else 0)
