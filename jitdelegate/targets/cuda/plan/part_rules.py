"""Which tensors the kernels of the CUDA target write and read as parts of larger ones.

Part of the contract with kernels: those of the forms below take the distance between neighbouring rows as an argument,
and access rows in vectors that fit where the part begins (`Writer.pitch`, `Writer.grain`). All others take parts that
are dense and begin where the widest access may begin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import prod

from jitdelegate.ir.forms import Concat, Contract, Depthwise, Form, Map, MatMul, Pool, Resize
from jitdelegate.ir.graph import Node, form_of
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.planning.chains import Chain
from jitdelegate.targets.planning.epilogue import Reach, reach
from jitdelegate.targets.planning.parts import Part, Parts, find_parts

WIDEST_BYTES = 16
"""Bytes of the widest access to memory."""
WORD = 4
"""Fewest bytes of an access that are worth more than a copy beforehand."""
FORMS: Mapping[type[Form], int] = {
    Concat: 0,
    Contract: 1,
    Depthwise: 1,
    Map: 0,
    MatMul: 2,
    Pool: 1,
    Resize: 1,
}
"""Forms whose kernels write rows with any pitch, and read them: so many of their own operands, and those of epilogues.
All operands of Concats and Maps are of the second kind."""


def find_cuda_parts(writer: Writer, in_place: Collection[int], chains: Iterable[Chain[Writer]]) -> Parts:
    """The parts of the writer's graph.

    Args:
        in_place: positions of Updates that change their data.
        chains: nodes that are written together.
    """
    chained, inner, widths = [], [], dict[int, int]()
    for chain in chains:
        nodes = [writer.graph.nodes[position] for position in chain.positions]
        chained.append(nodes)
        inner += nodes[:-1] if chain.writes_rows else nodes
        widths[nodes[0].outputs[0]] = chain.width
    return find_parts(writer.graph, _Rules(writer, inner, widths), [*_fixed(writer, in_place, chained)])


def _fixed(writer: Writer, in_place: Collection[int], chained: Iterable[list[Node]]) -> Iterator[int]:
    """Tensors that are overwritten, and those of chains: their results except the last one are never in memory."""
    for position in in_place:
        node = writer.graph.nodes[position]
        yield from (node.inputs[0], *node.outputs)
    for nodes in chained:
        for node in nodes[:-1] if not isinstance(nodes[-1].form, Concat) else nodes:
            yield from node.outputs


class _Rules:
    """The rules of a graph's nodes.

    Args:
        chained: nodes of chains that neither read nor write rows.
        widths: `Chain.width`, by the result of the chain's first node.
    """

    def __init__(self, writer: Writer, chained: Iterable[Node], widths: Mapping[int, int]) -> None:
        self._writer, self._widths = writer, widths
        self._chained = frozenset(node.outputs[0] for node in chained)

    def may_write(self, node: Node, part: Part) -> bool:
        output = node.outputs[0]
        stored, whole = self._writer.element(output), self._writer.element(part.whole)
        if whole not in (stored, Element.FLOAT32):
            return False  # the whole has too few bits
        return self._fits(output, part, form_of(node)) if self._has_rows(node) else self._is_plain(part)

    def may_read(self, node: Node, operand: int, part: Part) -> bool:
        index, form = node.inputs[operand], form_of(node)
        if self._writer.element(index) is not self._writer.element(part.whole):
            return False
        width = self._widths.get(node.outputs[0], 0)
        if width and operand == 0:
            pitch = part.pitch_of(self._writer.shape(index)[-1])
            return pitch is not None and pitch % width == part.first % width == 0
        if not self._has_rows(node) or not (operand < FORMS[type(form)] or self._runs_along(node, operand)):
            return self._is_plain(part)
        return self._fits(index, part, form if operand < form.core or not form.core else None)

    def _has_rows(self, node: Node) -> bool:
        return type(node.form) in FORMS and node.outputs[0] not in self._chained

    def _runs_along(self, node: Node, operand: int) -> bool:
        """Whether an epilogue reads one element of an operand for every element of the output."""
        form, number = form_of(node), operand - form_of(node).core
        if not form.has_result or isinstance(form, Concat):
            return True
        shapes = [self._writer.shape(index) for index in (node.inputs[operand], node.outputs[0])]
        return number >= 0 and reach(form.operands[number], shapes[0], shapes[1]) is Reach.ELEMENT

    def _is_plain(self, part: Part) -> bool:
        """Whether kernels may take the part for a tensor with memory of its own."""
        return part.is_dense and part.first * self._writer.element(part.whole).nbytes % WIDEST_BYTES == 0

    def _fits(self, index: int, part: Part, form: Form | None) -> bool:
        """Whether a result or an operand has rows with a pitch, to which accesses are wide.

        Args:
            form: the form that writes it or reads it as its own operand; None for an operand of an epilogue.
        """
        shape, element = self._writer.shape(index) or (1,), self._writer.element(part.whole)
        strides = part.strides(shape)
        if isinstance(form, Map):
            return strides is not None
        if isinstance(form, MatMul):
            row, pitch = shape[-1], part.pitch if strides and strides[-1] == 1 else None
        else:
            row = prod(shape[form.axis :]) if isinstance(form, Concat) else shape[-1]
            pitch = part.pitch_of(row)
        if pitch is None:
            return False
        usual, width = (common_width(sizes, element.widest) for sizes in ((row,), (row, pitch, part.first)))
        return width * element.nbytes >= min(usual * element.nbytes, WORD)
