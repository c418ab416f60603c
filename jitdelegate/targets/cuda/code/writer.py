"""Collects the launches and constants that the writers of the kernel forms produce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import Contract, Depthwise, Map, MatMul, Pool, Recurrent, Reduce, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.program.check import LARGEST_GRID
from jitdelegate.targets.cuda.code.choices import Choices, Question, Step, nothing
from jitdelegate.targets.cuda.code.cost import moving_cycles
from jitdelegate.targets.cuda.code.element import OWN, Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.expression import quantizes
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.sizes import flattened
from jitdelegate.targets.cuda.code.template import (
    Argument,
    Launch,
    NoPointer,
    Pointer,
    Template,
    TensorPointer,
    WeightsPointer,
)
from jitdelegate.targets.planning.buffer_plan import Buffers, view_roots
from jitdelegate.targets.planning.constants import Constants
from jitdelegate.targets.planning.epilogue import Reach, reach, without_constants
from jitdelegate.targets.planning.parts import Part
from jitdelegate.targets.planning.refusals import Refusals

ALIGN = 256
"""Alignment of tensors and weights, in bytes."""
LARGEST_MEMORY = 1 << 31
"""A tensor, a constant or an intermediate has fewer bytes than this: kernels count in int32."""
LARGEST_NUMBER = (1 << 31) - 1
GROWING = Contract, Depthwise, Map, MatMul, Pool, Reduce
"""Forms whose results may be larger than all that they are computed of."""
WIDEST = 8
"""Most bytes of an element."""
STORED = {
    "float32": Element.FLOAT32,
    "tf32": Element.FLOAT32,
    "float16": Element.FLOAT16,
    "bfloat16": Element.BFLOAT16,
}
"""Element type of float32 tensors between the graph's inputs and outputs, by precision."""
Candidate = TypeVar("Candidate")


@dataclass
class Writer:
    """Launches in order, and the constants that they read.

    Attributes:
        graph: the lowered graph.
        gpu: the GPU that tiles are chosen for.
        precision: "float32", "tf32", "float16" or "bfloat16".
        temporaries: bytes of each intermediate, by its negative tensor number.
        weights: the constants.
        parts: the tensors that lie in larger ones.
        copied: for results of Concats, the numbers of the operands that are not yet there; all where there is no entry.
        choices: which of their candidates kernels take.
        refusals: what runs may say that are refused.
    """

    graph: Graph
    gpu: Gpu
    precision: str
    launches: list[Launch] = field(default_factory=list)
    weights: Constants = field(default_factory=lambda: Constants(ALIGN))
    temporaries: dict[int, int] = field(default_factory=dict)
    parts: Mapping[int, Part] = field(default_factory=dict)
    copied: Mapping[int, Sequence[int]] = field(default_factory=dict)
    choices: Choices = field(default_factory=Choices)
    refusals: Refusals = field(default_factory=Refusals)
    _nodes: tuple[Node, ...] = ()
    _step: Step = nothing

    def begin(self, *nodes: Node, step: Step = nothing) -> None:
        """Starts a node, or several that are written together: the launches that follow belong to them.

        Args:
            step: writes them once more.
        """
        self._nodes, self._step = nodes, step

    def apart(self, choices: Choices) -> Writer:
        """A writer for the same graph that has written nothing, to write a step once more, by other choices."""
        return replace(self, launches=[], weights=Constants(ALIGN), temporaries={}, choices=choices, _nodes=())

    def choose(
        self, problem: str, candidates: Mapping[str, Candidate], cycles: Callable[[Candidate], float] | None = None
    ) -> Candidate:
        """The candidate for a problem: the tuned one, else that of the fewest cycles, the first of equal ones.

        Args:
            problem: as `choices.problem` describes it.
            candidates: by name, as `choices.candidate` makes it.
            cycles: estimates a candidate's time; None where the candidates come in the order of preference.
        """
        names = list(candidates)
        ranked = sorted(names, key=lambda name: cycles(candidates[name])) if cycles else names
        question = Question(self._step, tuple(ranked), len(self.launches))
        return candidates[self.choices.answer(problem, question)]

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.graph.tensors[index].shape

    def element(self, index: int) -> Element:
        """Element type of a stored tensor: float32 tensors are stored as the precision says, except constants, the
        graph's inputs and outputs, tensors that are one of these under another shape, and wide ones; these and all
        other types are stored unchanged. Parts are stored like the whole."""
        if index in self.parts:
            return self.element(self.parts[index].whole)
        if self.graph.tensors[index].dtype != "float32":
            return OWN[self.graph.tensors[index].dtype]
        is_exact = self._roots[index] in self._ports or self.graph.tensors[index].is_constant or index in self._wide
        return Element.FLOAT32 if is_exact else STORED[self.precision]

    @cached_property
    def _roots(self) -> Buffers:
        return view_roots(self.graph)

    @cached_property
    def _ports(self) -> frozenset[int]:
        return frozenset(self._roots[index] for index in (*self.graph.inputs, *self.graph.outputs))

    @cached_property
    def _wide(self) -> set[int]:
        """Results that stay float32, complex numbers, and Views of them; also Views of the graph's inputs, and tensors
        that only a View shows, as an output of the graph: a copy of another width would be a launch. In float16, also
        what an operator computes for itself alone: a sum of squares may overflow where the result does not."""
        graph = self.graph
        wide = {index for index, tensor in enumerate(graph.tensors) if tensor.dtype == "complex64"}
        views = [node for node in graph.nodes if isinstance(node.form, View)]
        shown = set(graph.outputs)
        for node in reversed(views):
            if not shown.isdisjoint(node.outputs) and graph.only_reader(node.inputs[0]) is not None:
                shown.update(node.inputs)
        for node in graph.nodes:
            is_view = isinstance(node.form, View) and not wide.union(graph.inputs).isdisjoint(node.inputs)
            is_moved = form_of(node).moves_only and wide.isdisjoint(node.inputs)
            if form_of(node).stays_float32 or is_view or (self._may_overflow(node) and not is_moved):
                wide.update(node.outputs)
        return wide | shown

    def _may_overflow(self, node: Node) -> bool:
        """Whether a node's sums or products, which other results have in float16, are seen by its own operator alone;
        but for those of recurrent cells, whose functions of them are constant long before."""
        (output,) = node.outputs
        if self.precision != "float16" or not isinstance(node.form, GROWING) or output in self.graph.outputs:
            return False
        tensor, readers = self.graph.tensors[output], self.graph.readers[output]
        is_gate = any(isinstance(self.graph.nodes[position].form, Recurrent) for position in readers)
        return tensor.is_inner and tensor.dtype == "float32" and not is_gate

    def of_node(self, node: Node) -> Writer:
        """This writer, or one that multiplies in float32 where a node reads nothing but what is kept from overflows."""
        computed = [index for index in node.inputs if index != ABSENT and not self.graph.tensors[index].is_constant]
        is_wide = self._may_overflow(node) and self._wide.issuperset((*computed, *node.outputs))
        return self._in_float32 if is_wide else self

    @cached_property
    def _in_float32(self) -> Writer:
        return replace(self, precision="float32")  # one for all nodes, since it finds anew which tensors are wide

    def part(self, index: int) -> Part:
        """Where a tensor lies in the tensor that has its memory: that may be itself."""
        size = self.graph.tensors[index].size
        return self.parts.get(index) or Part(index, 0, size, size)

    def pitch(self, index: int, axis: int = -1) -> int:
        """The distance between neighbouring rows of a tensor, in elements; rows are its elements from `axis` on."""
        pitch = self.part(index).pitch_of(prod((self.shape(index) or (1,))[axis:]))
        assert pitch is not None, "the rules of parts were not asked"
        return pitch

    def strides(self, index: int) -> tuple[int, ...]:
        """The strides of a tensor, in elements."""
        strides = self.part(index).strides(self.shape(index))
        assert strides is not None, "the rules of parts were not asked"
        return strides

    def grain(self, *indices: int) -> tuple[int, ...]:
        """What the widths of accesses to rows of these tensors have to divide, besides the lengths of the rows."""
        parts = (self.part(index) for index in indices)
        return tuple(number for part in parts for number in (part.first, *(() if part.is_dense else (part.pitch,))))

    def output_grain(self, node: Node) -> tuple[int, ...]:
        """The `grain` of a node's result and of the epilogue operands that are read beside it."""
        form, output = form_of(node), node.outputs[0]
        extra = node.inputs[form.core :] if form.has_result else ()
        return self.grain(output, *(index for index in extra if not self.graph.tensors[index].is_constant))

    def array(self, index: int, dtype: str = "float32") -> np.ndarray:
        """A constant's elements as numbers of type `dtype`.

        Raises:
            CompileError: the tensor is not constant.
        """
        data = self.graph.tensors[index].data
        if data is None:
            raise CompileError(f"'{self.graph.tensors[index].title}' is computed at run time, expected a constant")
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
        return WeightsPointer(self.weights.add(array))

    def packed(
        self, form: object, sources: Sequence[np.ndarray], make: Callable[[], Iterable[np.ndarray]]
    ) -> WeightsPointer:
        """Constant memory with what is made of `sources`, as `Constants.pack` describes it.

        Raises:
            CompileError: there are too many bytes.
        """
        offset = self.weights.pack(form, sources, make)
        check_memory("A constant", self.weights.sizes[offset])
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
        """A node's epilogue as part of a template, and its arguments. Where it has integers, constants are arguments
        too, so that layers with other scales and zero points have the same template.

        Every epilogue operand has a `reach`; the planner splits nodes with an operand that has none.
        """
        form, (kinds, pointers) = form_of(node), self.operands(node)
        own = form.own_type(self.graph.tensors[node.inputs[0]].dtype)
        operands = zip(kinds, node.inputs[form.core :], strict=True)
        pitches = [self.pitch(index) for (one, _), index in operands if one is Reach.ELEMENT]
        arguments: tuple[Argument, ...] = *pointers, *pitches
        if own == self.element(node.outputs[0]).dtype == "float32" and not quantizes(form.epilogue):
            return Epilogue(form.epilogue, kinds, own), arguments
        expr, numbers = without_constants(form.epilogue, [own, *(element.dtype for _, element in kinds)])
        types, values = tuple(dtype for dtype, _ in numbers), tuple(value for _, value in numbers)
        return Epilogue(expr, kinds, own, types), (*arguments, *values)

    def operands(self, node: Node) -> tuple[tuple[tuple[Reach, Element], ...], tuple[Pointer, ...]]:
        """How the extra operands of a node are read and stored, and their memory."""
        form, output = form_of(node), self.shape(node.outputs[0])
        extra = node.inputs[form.core :]
        reaches = [reach(access, self.shape(index), output) for access, index in zip(form.operands, extra, strict=True)]
        assert None not in reaches
        kinds = tuple((one, self.element(index)) for one, index in zip(reaches, extra, strict=True) if one)
        return kinds, tuple(map(self.pointer, extra))

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
        """Adds a launch of `template`, with one argument per parameter; those that `template.written` names point to
        tensors.

        Args:
            cycles: the launch's estimated cycles; None to estimate them by its reads, writes and multiplications.
            products: float32 multiply-adds of all threads.
        Raises:
            CompileError: there are too many blocks, or an integer has more than 32 bits.
        """
        node = self._nodes[-1]
        if any(size > most for size, most in zip(grid, LARGEST_GRID, strict=True)):
            raise CompileError(f"{node.op} takes a grid of {grid} blocks, expected at most {LARGEST_GRID}.")
        assert all(
            isinstance(one, WeightsPointer | NoPointer)
            for position in template.constants
            for one in flattened(arguments[position])
        ), f"{template.family} reads tensors as constants"
        flat: list[Argument] = flattened(arguments)
        assert all(isinstance(flat[at], TensorPointer) for at in template.written), f"{template.family} writes none"
        numbers = [argument for argument in flat if isinstance(argument, int)]
        if any(not ~LARGEST_NUMBER <= number <= LARGEST_NUMBER for number in numbers):
            raise CompileError(f"{node.op} takes the number {max(numbers, key=abs)}, expected 32 bits.")
        moved = (prod(grid), self._moved(node, flat), products) if cycles is None else ()
        self.launches.append(
            Launch(
                template,
                grid,
                tuple(flat),
                shared_bytes,
                " + ".join(type(node.form).__name__ for node in self._nodes),
                tuple(dict.fromkeys(origin for node in self._nodes for origin in node.origin)),
                moving_cycles(self.gpu, *moved) if cycles is None else cycles,
                moved,
            )
        )

    def _moved(self, node: Node, arguments: Sequence[Argument]) -> int:
        """Bytes that a launch of the node reads and writes, judged by its arguments."""
        visits_once = all(form_of(one).visits_once for one in self._nodes)
        most = self.graph.tensors[node.outputs[0]].size if visits_once else LARGEST_MEMORY
        pointers = [argument for argument in arguments if isinstance(argument, TensorPointer | WeightsPointer)]
        return sum(self._nbytes(pointer, most) for pointer in pointers)

    def _nbytes(self, pointer: TensorPointer | WeightsPointer, most: int) -> int:
        """Bytes of the tensor or constant at the pointer, but of at most `most` elements."""
        if isinstance(pointer, WeightsPointer):
            return min(self.weights.sizes[pointer.offset], most * WIDEST)
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
