"""What kernels for the CPU can do: the writer of each form, the nodes that one kernel computes, and the parts of larger
tensors that kernels write and read by the distances of a `Layout`.

A part along the channels has the distances of the whole, and its halo, which is filled once for both. It may be blocked
where it begins with a whole block, and ends with one or with the whole. Every other part is row-major and has no halo.
"""

from __future__ import annotations

from collections.abc import Iterable

from jitdelegate.ir import forms, index_forms
from jitdelegate.ir.graph import Node, form_of
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.tasks import Plan
from jitdelegate.targets.planning.buffer_plan import view_roots
from jitdelegate.targets.planning.fusions import Fusion, attentions, separables
from jitdelegate.targets.planning.parts import PITCHED, Part
from jitdelegate.targets.planning.steps import Accepts

ANY_STRIDES = (forms.Concat, forms.Map, forms.MatMul)
"""Forms whose kernels have a distance for each axis of their own operands and results, of any rank. Otherwise only
images have one for each axis; tensors of other ranks are rows of pixels, with a distance between these."""


class PartRules:
    """See `planning.parts.Rules`. Fusions write and read as their nodes do."""

    def __init__(self, plan: Plan, fusions: Iterable[Fusion]) -> None:
        self._graph, self._layouts, self._roots = plan.graph, plan.layouts, view_roots(plan.graph)

    def may_write(self, node: Node, part: Part) -> bool:
        return self._fits(node, node.outputs[0], part, own=True)

    def may_read(self, node: Node, operand: int, part: Part) -> bool:
        return self._fits(node, node.inputs[operand], part, own=form_of(node).is_own(operand))

    def _fits(self, node: Node, index: int, part: Part, *, own: bool) -> bool:
        """Whether a node's kernels can write or read tensor `index`, or what it is a View of, as the part."""
        form, shape = form_of(node), self._graph.tensors[index].shape
        if isinstance(form, forms.Reduce) and own:
            known = form.reads_images(shape, self._graph.tensors[node.outputs[0]].shape)
        else:
            known = type(form) in PITCHED
        layouts = [self._layouts[seen] for seen in (index, self._roots[index], part.whole)]
        if not known or any(layout.dtype != "float32" for layout in layouts) or not self._may_lie(part, *layouts):
            return False
        if len(shape) != 4 and not (isinstance(form, ANY_STRIDES) and own):
            return part.pitch_of(shape[-1] if shape else 1) is not None
        strides = part.strides(shape)
        # Kernels on images, and products, load and store vectors of neighbours along the last axis. A Map stores lanes
        # that lie apart one by one, which takes longer than the copy of a Concat.
        is_spread = len(shape) == 4 or isinstance(form, forms.MatMul) or index in node.outputs
        return strides is not None and not (is_spread and shape[-1:] > (1,) and strides[-1] > 1)

    def _may_lie(self, part: Part, seen: Layout, own: Layout, whole: Layout) -> bool:
        """Whether the layouts of a tensor, of what it is a View of, and of the whole allow the part."""
        if all(layout.plain and not layout.blocked for layout in (seen, own, whole)):
            return True
        channels = own.shape[3]
        is_along_channels = own.shape[:3] == whole.shape[:3] and part.first + channels <= whole.shape[3]
        if seen is not own or own.blocked != whole.blocked or not is_along_channels:
            return False
        if any(own.halo) and (not any(whole.halo) or own.halo_value != whole.halo_value):
            return False  # other parts of a whole without a halo need not be along its channels
        is_last = part.first + channels == whole.shape[3]
        return not own.blocked or (part.first % own.lanes == 0 and (channels % own.lanes == 0 or is_last))


ACCEPTS = Accepts(
    package="jitdelegate.targets.cpu",
    writers={
        forms.Concat: "forms.map.write_concat",
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
        forms.Softmax: "forms.reduce.write_softmax",
        index_forms.ArgReduce: "forms.arg_reduce.write_arg_reduce",
        index_forms.Gather: "forms.gather.write_gather",
        index_forms.Scan: "forms.scan.write_scan",
        index_forms.Scatter: "forms.scatter.write_scatter",
        index_forms.Suppress: "forms.non_max_suppression.write_suppress",
        index_forms.TopK: "forms.arg_reduce.write_top_k",
        index_forms.Update: "forms.update.write_update",
    },
    fusions={
        separables: "products.depthwise.fuse_separables",
        attentions: "products.attention.fuse_attentions",
    },
    rules=PartRules,
    in_place=(forms.Softmax,),
)
"""Writers and fusions get the `code.writer.Writer` and give jobs; fusions are chosen by the `Plan` so far."""
