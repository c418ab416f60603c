"""The test cases of an operator as data; a case builds the one-op graph and the arrays to run it with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor

Shape = tuple[int, ...]


class Operator(Protocol):
    """The parts of an operator that a case needs; `ops.registry.Op` has them."""

    name: ClassVar[str]
    version: ClassVar[int]
    custom: ClassVar[bool]

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        """The outputs in plain numpy."""
        ...


@dataclass(frozen=True, slots=True)
class Weights:
    """A float32 constant of random values, small as trained weights are."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Fed:
    """A fed value of any type: random numbers within the case's bounds, or truth values."""

    shape: Shape
    dtype: str


def ints(*values: Any) -> np.ndarray:
    """An int32 constant: `ints(1, 2)` is [1, 2], `ints((0, 0), (1, 2))` is a matrix."""
    return np.array(values, np.int32)


Entry = Shape | Fed | Weights | np.ndarray | None


@dataclass(frozen=True, eq=False)
class Case:
    """One use of an operator.

    Attributes:
        inputs: one entry per operand: a shape for a fed float32 value, `Fed` for a fed value of another type, `Weights`
            or an array for a constant, None for an operand that is not given.
        attrs: TFLite's options.
        low, high: bounds of the fed values.
        seed: for the random values and weights.
    """

    inputs: tuple[Entry, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    low: float = -8.0
    high: float = 8.0
    seed: int = 0

    def arrays(self) -> list[np.ndarray | None]:
        """The values of all operands, constants included; None where not given; equal at every call."""
        random = np.random.default_rng(self.seed)
        return [self._array(random, entry) for entry in self.inputs]

    def _array(self, random: np.random.Generator, entry: Entry) -> np.ndarray | None:
        if entry is None or isinstance(entry, np.ndarray):
            return entry
        if isinstance(entry, Weights):
            return random.uniform(-1, 1, entry.shape).astype(np.float32)
        shape, dtype = (entry.shape, entry.dtype) if isinstance(entry, Fed) else (entry, "float32")
        if dtype == "complex64":
            return np.asarray(random.uniform(self.low, self.high, (*shape, 2)).astype("float32").view(dtype)[..., 0])
        if dtype == "bool":
            return random.random(shape) < 0.5
        return np.asarray(random.uniform(self.low, self.high, shape)).astype(dtype)

    def feeds(self) -> list[np.ndarray]:
        """The values of the fed operands, in order: the graph's inputs."""
        pairs = zip(self.inputs, self.arrays(), strict=True)
        return [array for entry, array in pairs if is_fed(entry) and array is not None]

    def outputs(self, op: Operator) -> list[np.ndarray]:
        """The outputs of the operator's reference."""
        return op.reference(self.arrays(), self.attrs)

    def expected(self, op: Operator) -> np.ndarray:
        """As `outputs`, for an operator with one output."""
        (output,) = self.outputs(op)
        return output

    def graph(self, op: Operator) -> Graph:
        """The operator alone: fed operands are the graph's inputs, its outputs are the graph's outputs."""
        tensors: list[Tensor] = []
        operands: list[int] = []
        for entry, array in zip(self.inputs, self.arrays(), strict=True):
            operands.append(ABSENT if array is None else len(tensors))
            if array is not None:
                data = None if is_fed(entry) else array
                tensors.append(Tensor(f"operand{len(operands) - 1}", array.shape, str(array.dtype), data))
        inputs = tuple(i for i, tensor in enumerate(tensors) if not tensor.is_constant)
        expected = self.outputs(op)
        outputs = tuple(range(len(tensors), len(tensors) + len(expected)))
        tensors += [Tensor(f"output{k}", array.shape, str(array.dtype)) for k, array in enumerate(expected)]
        node = Node(op.name, tuple(operands), outputs, self.attrs, op.version, op.custom, origin=(0,))
        return Graph(tuple(tensors), (node,), inputs, outputs)


def pairs(shape: Shape, dtypes: Sequence[str], low: float, high: float) -> tuple[Case, ...]:
    """A case of two fed values of one shape for each type."""
    return tuple(Case((Fed(shape, dtype), Fed(shape, dtype)), low=low, high=high) for dtype in dtypes)


def named(names: Sequence[str], *values: Any) -> dict[str, Any]:
    """Options by name."""
    return dict(zip(names, values, strict=True))


def is_fed(entry: Entry) -> bool:
    """True for entries of a case that are not constants."""
    return isinstance(entry, tuple | Fed)
