"""Fuses elementwise work into the epilogue of the node that computes its operand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jitdelegate.ir.expr import Arg, Expr, substitute
from jitdelegate.ir.forms import Form, IndexMap, Map
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.passes.works_on import works_on

MAX_APPLIES = 24
"""Operations in one epilogue: more would not stay in registers."""

MAX_OPERANDS = 4
"""Extra operands of one kernel: each takes a pointer and a stream of loads. As many constant vectors, which stay in the
first-level cache, may come in addition."""


TYPES = ("float32", "int8", "uint8", "int16")
"""Types of values in epilogues: real numbers, and quantized ones."""


@works_on(Map)
def fuse_elementwise(graph: Graph) -> Graph:
    """%1 = CONV_2D(%0, ...) by Contract(); %2 = ADD(%1, %x) by Map(add(a0, a1)) ->
    %2 = CONV_2D(%0, ..., %x) by Contract(epilogue=add(a0, a1), operands=(x at the output's index)).

    Requires that the Map is the producer's only reader, has the producer's shape and reads it at the output's index.
    The fused node moves to the Map's position, where all operands exist. Of two producers, the later one is fused: it
    moves less far.
    """
    fusion = _Fusion(graph)
    for position, node in enumerate(graph.nodes):
        fusion.place(position, node)
    return replace(graph, nodes=tuple(fusion.nodes.values()))


class _Fusion:
    """The fused nodes so far, by the position of the last graph node in each. Each writes the outputs of that node."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._readers = [set(positions) for positions in graph.readers]
        self.nodes: dict[int, Node] = {}

    def place(self, position: int, node: Node) -> None:
        """Appends the node, fused with all producers that it can join."""
        while isinstance(node.form, Map):
            merged = self._merged(node)
            if merged is None:
                break
            writer, node = merged
            for index in self.nodes.pop(writer).inputs:
                if index != ABSENT:
                    self._readers[index] = (self._readers[index] - {writer}) | {position}
        self.nodes[position] = node

    def _merged(self, node: Node) -> tuple[int, Node] | None:
        """(position of the latest producer that the Map can join, both as one node); None if there is none."""
        writers = {self._graph.writer[index] for index in node.inputs}
        for writer in sorted((w for w in writers if w is not None and w in self.nodes), reverse=True):
            producer = self.nodes[writer]
            joined = self._join(producer, node) if self._may_join(producer, node) else None
            if joined is not None:
                return writer, joined
        return None

    def _may_join(self, producer: Node, node: Node) -> bool:
        (value,), (output,), form = producer.outputs, node.outputs, form_of(producer)
        if not form.takes_epilogue:
            return False
        if form.has_result and not self._are_typed(form, (*producer.outputs, *node.inputs, *node.outputs)):
            return False
        same = self._graph.tensors[value].shape == self._graph.tensors[output].shape
        private = len(self._readers[value]) == 1 and value not in self._graph.outputs
        return same and private and all(index_map.is_identity() for index_map in _accesses(node, value))

    def _are_typed(self, form: Form, indices: Iterable[int]) -> bool:
        """Whether the form's epilogue may read and write these tensors."""
        allowed = TYPES if form.types_epilogue else ("float32",)
        return all(self._graph.tensors[index].dtype in allowed for index in indices)

    def _join(self, producer: Node, node: Node) -> Node | None:
        """Both as one node; None if that is too large, or if the producer's form cannot read one of the operands."""
        form, last = form_of(producer), form_of(node)
        own = form.core
        read = list(zip(producer.inputs[own:], form.operands, strict=True))
        shift = int(form.has_result)
        arguments: list[Expr] = []
        for index, index_map in zip(node.inputs, last.operands, strict=True):
            if index in producer.outputs:
                arguments.append(form.epilogue)
                continue
            if (index, index_map) not in read:
                read.append((index, index_map))
            arguments.append(Arg(shift + read.index((index, index_map))))
        epilogue = substitute(last.epilogue, arguments)
        vectors = min(sum(self._is_vector(index) for index, _ in read), MAX_OPERANDS)
        if len(read) - vectors > MAX_OPERANDS or applies(epilogue) > MAX_APPLIES:
            return None
        output = self._graph.tensors[node.outputs[0]].shape
        if form.has_result and not all(index_map.runs_along(output) for _, index_map in read):
            return None
        core = (*producer.inputs, *(ABSENT,) * own)[:own]
        return replace(
            producer,
            inputs=(*core, *(index for index, _ in read)),
            outputs=node.outputs,
            origin=tuple(sorted({*producer.origin, *node.origin})),
            form=replace(form, epilogue=epilogue, operands=tuple(index_map for _, index_map in read)),
        )

    def _is_vector(self, index: int) -> bool:
        """Whether a tensor is a constant with one element per channel."""
        tensor = self._graph.tensors[index]
        return tensor.is_constant and tensor.size == (tensor.shape or (1,))[-1]


def _accesses(node: Node, value: int) -> list[IndexMap]:
    return [index_map for index, index_map in zip(node.inputs, form_of(node).operands, strict=True) if index == value]


def applies(expr: Expr) -> int:
    """Number of operations in the expression."""
    return bool(expr.parts) + sum(map(applies, expr.parts))
