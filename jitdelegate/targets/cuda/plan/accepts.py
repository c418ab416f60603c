"""What CUDA kernels can do: the writer of each form, the nodes that one kernel computes, and the parts of larger
tensors that kernels write and read.

Part of the contract with kernels: those of the forms in `PITCHED` take the distance between neighbouring rows as an
argument, and access rows in vectors that fit where the part begins (`Writer.pitch`, `Writer.grain`). All others take
parts that are dense and begin where the widest access may begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from jitdelegate.ir import forms, index_forms
from jitdelegate.ir.forms import Form
from jitdelegate.ir.graph import Node, form_of
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.planning.cells import cells
from jitdelegate.targets.planning.epilogue import Reach, reach
from jitdelegate.targets.planning.fusions import Fusion, attentions, separables
from jitdelegate.targets.planning.parts import PITCHED, Part
from jitdelegate.targets.planning.steps import Accepts

WIDEST_BYTES = 16
"""Bytes of the widest access to memory."""
WORD = 4
"""Fewest bytes of an access that are worth more than a copy beforehand."""


class PartRules:
    """See `planning.parts.Rules`. Of the nodes of fusions, only those that a `Fusion` names access rows."""

    def __init__(self, writer: Writer, fusions: Iterable[Fusion]) -> None:
        nodes = writer.graph.nodes
        self._writer, self._dense, self._widths = writer, set[int](), dict[int, int]()
        for fusion in fusions:
            self._dense.update(nodes[at].outputs[0] for at in {*fusion.positions}.difference(fusion.pitched))
            self._widths[nodes[fusion.positions[0]].outputs[0]] = fusion.width

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
        if not self._has_rows(node) or not (operand < PITCHED[type(form)] or self._runs_along(node, operand)):
            return self._is_plain(part)
        return self._fits(index, part, form if form.is_own(operand) else None)

    def _has_rows(self, node: Node) -> bool:
        return type(node.form) in PITCHED and node.outputs[0] not in self._dense

    def _runs_along(self, node: Node, operand: int) -> bool:
        """Whether an epilogue reads one element of an operand for every element of the output."""
        form, number = form_of(node), operand - form_of(node).core
        if not form.has_result or isinstance(form, forms.Concat):
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
        if isinstance(form, forms.Map):
            return strides is not None
        if isinstance(form, forms.MatMul):
            row, pitch = shape[-1], part.pitch if strides and strides[-1] == 1 else None
        else:
            row = prod(shape[form.axis :]) if isinstance(form, forms.Concat) else shape[-1]
            pitch = part.pitch_of(row)
        if pitch is None:
            return False
        usual, width = (common_width(sizes, element.widest) for sizes in ((row,), (row, pitch, part.first)))
        return width * element.nbytes >= min(usual * element.nbytes, WORD)


ACCEPTS = Accepts(
    package="jitdelegate.targets.cuda",
    writers={
        forms.Concat: "forms.concat.write_concat",
        forms.Contract: "products.contract.write_contract",
        forms.Depthwise: "products.depthwise.write_depthwise",
        forms.Fourier: "forms.fourier.write_fourier",
        forms.Map: "forms.map.write_map",
        forms.MatMul: "products.matmul.write_matmul",
        forms.Normalize: "forms.normalize.write_normalize",
        forms.Pool: "forms.pool.write_pool",
        forms.Recurrent: "products.recurrent.write_recurrent",
        forms.Reduce: "forms.reduce.write_reduce",
        forms.Resize: "forms.resize.write_resize",
        forms.Softmax: "forms.normalize.write_softmax",
        index_forms.ArgReduce: "forms.arg_reduce.write_arg_reduce",
        index_forms.Gather: "forms.gather.write_gather",
        index_forms.Scan: "forms.scan.write_scan",
        index_forms.Scatter: "forms.scatter.write_scatter",
        index_forms.Suppress: "forms.non_max_suppression.write_suppress",
        index_forms.TopK: "forms.arg_reduce.write_top_k",
        index_forms.Update: "forms.update.write_update",
    },
    fusions={
        separables: "products.separable.fuse_separables",
        attentions: "products.attention.fuse_attentions",
        cells: "products.cell.fuse_cells",
    },
    rules=PartRules,
)
"""Writers and fusions get the `code.writer.Writer`, to which they add launches; fusions are chosen by it too."""
