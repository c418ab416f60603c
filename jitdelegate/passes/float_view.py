"""The float view of quantized models: float32 arithmetic on the numbers that stored ones stand for.

Source: TFLite's GPU delegate, tensorflow/lite/delegates/gpu/common/transformations/add_quant_adjustments.cc and
common/tasks/quantize_and_dequantize.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jitdelegate.ir.dequantize import dequantized
from jitdelegate.ir.expr import Arg, Cast, Const, Expr
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.quantized import quantize
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops import OPS
from jitdelegate.ops.call import parameters, scale, zero
from jitdelegate.ops.quantization import parameter_problems
from jitdelegate.ops.registry import Op
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.works_on import quantized_values, works_on

VIEWED = ("int8", "uint8")
"""The types of data that TFLite's GPU delegate views as floats."""
BIASED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
"""Operators whose int32 bias is counted in products of the scales of data and weights."""


@works_on(quantized_values)
def float_view(graph: Graph) -> Graph:
    """%2: i8 = CONV_2D(%0: i8, %w: i8, %b: i32) -> %3: f32 = DEQUANTIZE(%0); %4 = CONV_2D(%3, %w, %b: f32);
    %5 = the multiple of %2's scale that is nearest to %4; where the option `quantized_execution` is "float_view".

    Readers inside the graph read %5, the caller gets %4, quantized. Operators that take no floats keep their integers.
    """
    return _FloatView(graph).rewritten() if graph.quantized.execution == "float_view" else graph


class _FloatView:
    """The graph under construction.

    Attributes:
        real: by viewed tensor, the float32 tensor that its readers read.
        exact: by viewed tensor, the float32 tensor before it was rounded.
        stored: the viewed tensors whose stored numbers are there.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.draft = graph, GraphBuilder(graph)
        self.nodes: list[Node] = []
        self.real: dict[int, int] = {}
        self.exact: dict[int, int] = {}
        self.stored = set(graph.inputs)

    def rewritten(self) -> Graph:
        for node in self.graph.nodes:
            twin = self._twin(node) if any(map(self._is_viewed, (*node.inputs, *node.outputs))) else None
            if twin is None:
                self._store(node.inputs, self.real, node)
                self.nodes.append(node)
                self.stored.update(node.outputs)
                continue
            self.nodes.append(twin)
            for index, exact in zip(node.outputs, twin.outputs, strict=True):
                if index != exact:
                    self._round(node, index, exact)
        last = self.graph.nodes[-1:]
        for node in last:
            self._store(self.graph.outputs, self.exact, node)
        return self.draft.graph(self.nodes)

    def _is_viewed(self, index: int) -> bool:
        if index == ABSENT:
            return False
        tensor = self.graph.tensors[index]
        if tensor.dtype not in VIEWED or tensor.quant is None or tensor.is_constant or tensor.is_variable:
            return False
        return not any(parameter_problems(tensor))

    def _twin(self, node: Node) -> Node | None:
        """The node on float32; None if its operator does not take floats."""
        if node.op in ("QUANTIZE", "DEQUANTIZE"):
            return self._copied(node)
        outputs = tuple(self._as_float(index) if self._is_viewed(index) else index for index in node.outputs)
        op = OPS[node.op]
        for kept in dict.fromkeys((op.weights, ())):
            inputs = tuple(self._operand(node, op, place, kept) for place in range(len(node.inputs)))
            twin = replace(node, inputs=inputs, outputs=outputs)
            if op.check(self.draft.graph(()), twin) is None:
                return twin
        return None

    def _copied(self, node: Node) -> Node | None:
        """A QUANTIZE or DEQUANTIZE, whose operand and result are the same floats; None where one has another type."""
        (source,), (output,) = node.inputs, node.outputs
        found = [self._is_viewed(index) or self.graph.tensors[index].dtype == "float32" for index in (source, output)]
        if not all(found):
            return None
        source = self._real(source, node) if self._is_viewed(source) else source
        output = self._as_float(output) if self._is_viewed(output) else output
        return _mapped(node, Arg(0), source, output, self.graph.tensors[node.outputs[0]])

    def _as_float(self, index: int) -> int:
        """A new float32 tensor of the shape of another one."""
        tensor = self.graph.tensors[index]
        return self.draft.add(Tensor(tensor.name, tensor.shape, "float32"))

    def _operand(self, node: Node, op: Op, place: int, kept: Sequence[int]) -> int:
        """Operand number `place` of the twin; constants of the `kept` places stay as they are stored."""
        index = node.inputs[place]
        if index == ABSENT or place in op.parameters or place in kept:
            return index
        tensor = self.graph.tensors[index]
        if self._is_viewed(index):
            return self._real(index, node)
        if not tensor.is_constant or tensor.data is None:
            return index
        if tensor.is_quantized:
            return self.draft.add(dequantized(tensor))
        if place == 2 and node.op in BIASED and tensor.dtype == "int32":
            data, weights = (self.graph.tensors[index].quant for index in node.inputs[:2])
            if data is not None and weights is not None:
                factors = np.float32(data.scales[0]) * np.array(weights.scales, np.float32)
                return self.draft.constant(tensor.name, tensor.data.astype(np.float32) * factors)
        return index

    def _real(self, index: int, reader: Node) -> int:
        """The float32 tensor with the numbers that a viewed tensor stands for."""
        if index not in self.real:
            self.real[index] = self._as_float(index)
            self.nodes.append(Node("DEQUANTIZE", (index,), (self.real[index],), origin=reader.origin))
        return self.real[index]

    def _store(self, indices: Sequence[int], source: dict[int, int], reader: Node) -> None:
        """Quantizes those of the tensors whose stored numbers are not there yet."""
        for index in dict.fromkeys(indices):
            if index != ABSENT and self._is_viewed(index) and index not in self.stored:
                self.nodes.append(Node("QUANTIZE", (source[index],), (index,), origin=reader.origin))
                self.stored.add(index)

    def _round(self, node: Node, index: int, exact: int) -> None:
        """Rounds a viewed tensor, computed by `node` as tensor `exact`, to the numbers that stored ones stand for."""
        self.exact[index] = self.real[index] = exact
        if not self.graph.readers[index] or self._moves(node, index):
            return
        tensor = self.graph.tensors[index]
        self.real[index] = self._as_float(index)
        self.nodes.append(_mapped(node, _rounded(tensor), exact, self.real[index], tensor))

    def _moves(self, node: Node, output: int) -> bool:
        """Whether the node only moves numbers that are rounded already."""
        viewed = [self.graph.tensors[index] for index in (*node.inputs, output) if self._is_viewed(index)]
        is_mover = type(OPS[node.op]).quantized_lowering is Op.quantized_lowering
        return is_mover and len(viewed) > 1 and len(set(map(parameters, viewed))) == 1


def _mapped(node: Node, expr: Expr, source: int, output: int, tensor: Tensor) -> Node:
    """A lowered QUANTIZE with the origin of `node`."""
    form = Map(expr, (IndexMap.broadcast(tensor.shape, tensor.shape),))
    return Node("QUANTIZE", (source,), (output,), origin=node.origin, form=form)


def _rounded(tensor: Tensor) -> Expr:
    """round((clamp(x, min, max) - min) / scale) * scale + min, for the tensor's smallest and largest number."""
    element, step = ELEMENT_TYPES[tensor.dtype], scale(tensor)
    lowest = float(step * np.float32(element.minimum - zero(tensor)))
    steps = quantize((Arg(0) - lowest) / Const(float(step)), "uint8", rounding="away")
    return Cast(steps, "float32") * Const(float(step)) + lowest
