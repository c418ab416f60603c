"""Collects the launches and constants that the writers of the kernel forms produce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.program.check import LARGEST_GRID
from jitdelegate.targets.constants import Constants
from jitdelegate.targets.cuda.cost import moving_cycles
from jitdelegate.targets.cuda.element import OWN, Element
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.expression import quantizes
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.sizes import flattened
from jitdelegate.targets.cuda.template import Argument, Launch, Pointer, Template, TensorPointer, WeightsPointer
from jitdelegate.targets.epilogue import reach, without_constants

ALIGN = 256
"""Alignment of tensors and weights, in bytes."""
LARGEST_MEMORY = 1 << 31
"""A tensor, a constant or an intermediate has fewer bytes than this: kernels count in int32."""
LARGEST_NUMBER = (1 << 31) - 1
WIDEST = 8
"""Most bytes of an element."""
STORED = {
    "float32": Element.FLOAT32,
    "tf32": Element.FLOAT32,
    "float16": Element.FLOAT16,
    "bfloat16": Element.BFLOAT16,
}
"""Element type of float32 tensors between the graph's inputs and outputs, by precision."""


@dataclass
class Writer:
    """Launches in order, and the constants that they read.

    Attributes:
        graph: the lowered graph.
        gpu: the GPU that tiles are chosen for.
        precision: "float32", "tf32", "float16" or "bfloat16".
        temporaries: bytes of each intermediate, by its negative tensor number.
        constants: bytes of each constant, by its offset in the weights.
    """

    graph: Graph
    gpu: Gpu
    precision: str
    launches: list[Launch] = field(default_factory=list)
    weights: Constants = field(default_factory=lambda: Constants(ALIGN))
    temporaries: dict[int, int] = field(default_factory=dict)
    constants: dict[int, int] = field(default_factory=dict)
    _node: Node | None = None

    def begin(self, node: Node) -> None:
        """Starts a node: the launches that follow belong to it."""
        self._node = node

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.graph.tensors[index].shape

    def element(self, index: int) -> Element:
        """Element type of a stored tensor: float32 tensors are stored as the precision says, except constants, the
        graph's inputs and outputs, and wide ones; these and all other types are stored unchanged."""
        if self.graph.tensors[index].dtype != "float32":
            return OWN[self.graph.tensors[index].dtype]
        is_port = index in self.graph.inputs or index in self.graph.outputs
        is_exact = is_port or self.graph.tensors[index].is_constant or index in self._wide
        return Element.FLOAT32 if is_exact else STORED[self.precision]

    @cached_property
    def _wide(self) -> set[int]:
        """Results that stay float32, complex numbers, and Views of them."""
        found = {index for index, tensor in enumerate(self.graph.tensors) if tensor.dtype == "complex64"}
        for node in self.graph.nodes:
            if form_of(node).stays_float32 or (isinstance(node.form, View) and not found.isdisjoint(node.inputs)):
                found.update(node.outputs)
        return found

    def array(self, index: int, dtype: str = "float32") -> np.ndarray:
        """A constant's elements as numbers of type `dtype`.

        Raises:
            CompileError: the tensor is not constant.
        """
        data = self.graph.tensors[index].data
        if data is None:
            raise CompileError(f"'{self.graph.tensors[index].name}' is computed at run time, expected a constant")
        return np.asarray(data, dtype)

    def pointer(self, index: int) -> Pointer:
        """The memory of a tensor or of a constant; a constant's elements are stored unchanged."""
        tensor = self.graph.tensors[index]
        if tensor.data is not None:
            return self.constant(np.asarray(tensor.data, tensor.dtype))
        return TensorPointer(index)

    def constant(self, array: np.ndarray) -> WeightsPointer:
        """Constant memory with the array's row-major bytes; equal contents share memory.

        Raises:
            CompileError: there are too many bytes.
        """
        check_memory("A constant", array.nbytes)
        offset = self.weights.add(array)
        self.constants[offset] = array.nbytes
        return WeightsPointer(offset)

    def packed(
        self, form: object, sources: Sequence[np.ndarray], make: Callable[[], Iterable[np.ndarray]]
    ) -> WeightsPointer:
        """Constant memory with what is made of `sources`, as `Constants.pack` describes it.

        Raises:
            CompileError: there are too many bytes.
        """
        offset = self.weights.pack(form, sources, make)
        nbytes = self.constants.setdefault(offset, len(self.weights.content) - offset)
        check_memory("A constant", nbytes)
        return WeightsPointer(offset)

    def temporary(self, nbytes: int) -> TensorPointer:
        """Memory for values that one launch passes to another.

        Raises:
            CompileError: the memory is too large.
        """
        check_memory("An intermediate result", nbytes)
        number = ABSENT - 1 - len(self.temporaries)
        self.temporaries[number] = nbytes
        return TensorPointer(number)

    def epilogue(self, node: Node) -> tuple[Epilogue, tuple[Argument, ...]]:
        """A node's epilogue as part of a template, and its operands. Where it has integers, its constants are operands
        too, so that layers with other scales and zero points have the same template.

        Every epilogue operand has a `reach`; the planner splits nodes with an operand that has none.
        """
        form = form_of(node)
        output = self.shape(node.outputs[0])
        extra = node.inputs[form.core :]
        found = [reach(access, self.shape(index), output) for access, index in zip(form.operands, extra, strict=True)]
        assert None not in found
        kinds = tuple((one, self.element(index)) for one, index in zip(found, extra, strict=True) if one)
        own = form.own_type(self.graph.tensors[node.inputs[0]].dtype)
        pointers = tuple(map(self.pointer, extra))
        if own == self.element(node.outputs[0]).dtype == "float32" and not quantizes(form.epilogue):
            return Epilogue(form.epilogue, kinds, own), pointers
        expr, numbers = without_constants(form.epilogue, [own, *(element.dtype for _, element in kinds)])
        types, values = tuple(dtype for dtype, _ in numbers), tuple(value for _, value in numbers)
        return Epilogue(expr, kinds, own, types), (*pointers, *values)

    def launch(
        self,
        template: Template,
        grid: tuple[int, int, int],
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        *,
        cycles: float | None = None,
        products: int = 0,
    ) -> None:
        """Adds a launch of `template`, with one argument per parameter; the pointer to the written tensor is first.

        Args:
            cycles: the launch's estimated cycles; None to estimate them by its reads, writes and multiplications.
            products: float32 multiply-adds of all threads.
        Raises:
            CompileError: there are too many blocks, or an integer has more than 32 bits.
        """
        node = self._node
        assert node is not None
        if any(size > most for size, most in zip(grid, LARGEST_GRID, strict=True)):
            raise CompileError(f"{node.op} takes a grid of {grid} blocks, expected at most {LARGEST_GRID}.")
        flat: list[Argument] = flattened(arguments)
        numbers = [argument for argument in flat if isinstance(argument, int)]
        if any(not ~LARGEST_NUMBER <= number <= LARGEST_NUMBER for number in numbers):
            raise CompileError(f"{node.op} takes the number {max(numbers, key=abs)}, expected 32 bits.")
        if cycles is None:
            cycles = moving_cycles(self.gpu, prod(grid), self._moved(node, flat), products)
        self.launches.append(
            Launch(template, grid, tuple(flat), shared_bytes, type(node.form).__name__, node.origin, cycles)
        )

    def _moved(self, node: Node, arguments: Sequence[Argument]) -> int:
        """Bytes that a launch of the node reads and writes, judged by its arguments."""
        most = self.graph.tensors[node.outputs[0]].size if form_of(node).visits_once else LARGEST_MEMORY
        pointers = [argument for argument in arguments if isinstance(argument, TensorPointer | WeightsPointer)]
        return sum(self._nbytes(pointer, most) for pointer in pointers)

    def _nbytes(self, pointer: TensorPointer | WeightsPointer, most: int) -> int:
        """Bytes of the tensor or constant at the pointer, but of at most `most` elements."""
        if isinstance(pointer, WeightsPointer):
            return min(self.constants[pointer.offset], most * WIDEST)
        if pointer.index < 0:
            return self.temporaries[pointer.index]
        return min(self.graph.tensors[pointer.index].size, most) * self.element(pointer.index).nbytes


def check_memory(what: str, nbytes: int) -> None:
    """Checks that kernels can count this many bytes.

    Raises:
        CompileError: there are too many bytes.
    """
    if nbytes >= LARGEST_MEMORY:
        raise CompileError(f"{what} has {nbytes} bytes, expected less than {LARGEST_MEMORY}: kernels count in int32.")
