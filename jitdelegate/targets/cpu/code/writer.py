"""Writer: finds the operands of a plan's nodes for the writers of the forms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, substitute
from jitdelegate.ir.forms import IndexMap, Shape
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream, follow
from jitdelegate.targets.cpu.code.kernel import Generator, Memory, channel_vector
from jitdelegate.targets.cpu.code.tasks import Plan
from jitdelegate.targets.planning.epilogue import EpilogueOperand
from jitdelegate.targets.planning.in_place import lies_in_code


@dataclass
class Writer:
    """The generator that jobs are added to, and the operands of nodes."""

    generator: Generator
    plan: Plan

    @property
    def graph(self) -> Graph:
        """The plan's graph."""
        return self.plan.graph

    def shape(self, index: int) -> tuple[int, ...]:
        """Sizes of a tensor."""
        return self.graph.tensors[index].shape

    def memory(self, index: int) -> Memory:
        """Where a tensor lies; constants are packed row-major on first use."""
        if index in self.plan.memories:
            return self.generator.numbered(self.plan.memories[index])
        return self.packed(self.constant(index), self.graph.tensors[index].dtype)

    def packed(self, data: np.ndarray, dtype: str) -> Memory:
        """Where a row-major constant lies."""
        layout, is_code = Layout(image_shape(data.shape), self.generator.lanes, dtype=dtype), lies_in_code(data)
        offset = self.generator.table(data.tobytes()) if is_code else self.generator.weights.add(data)
        return self.generator.numbered(Memory("code" if is_code else "weights", offset, layout))

    def ends(self, node: Node) -> tuple[Memory, Memory]:
        """Where the first operand and the result lie."""
        return self.memory(node.inputs[0]), self.memory(node.outputs[0])

    def constant(self, index: int) -> np.ndarray:
        """The elements of a constant."""
        data = self.graph.tensors[index].data
        assert data is not None
        return data

    def optional(self, index: int) -> np.ndarray | None:
        """The elements of a constant; None if the operand is absent."""
        return None if index == ABSENT else self.constant(index)

    def epilogue(self, node: Node) -> Epilogue:
        """The form's epilogue, with constants of one element as numbers and all other operands as streams."""
        form, output = form_of(node), self.shape(node.outputs[0])
        values: list[Expr] = [Arg(0)]
        streams: list[Stream] = []
        for index, index_map in zip(node.inputs[form.core :], form.operands, strict=True):
            data = self.graph.tensors[index].data
            if data is not None and data.size == 1:
                values.append(Cast(Const(data.flat[0].item()), str(data.dtype)))
            else:
                streams.append(self._stream(index, index_map, output))
                values.append(Arg(len(streams)))
        source = self.graph.tensors[node.inputs[0]].dtype if node.inputs else ""
        result = self.graph.tensors[node.outputs[0]].dtype
        return Epilogue(substitute(form.epilogue, values), tuple(streams), form.own_type(source), result)

    def _stream(self, index: int, index_map: IndexMap, output: Shape) -> Stream:
        tensor = self.graph.tensors[index]
        if tensor.data is not None and tensor.data.size == tensor.shape[-1] == output[-1]:
            lanes = self.generator.lanes
            offset = channel_vector(self.generator.weights, tensor.data, lanes)
            layout = Layout((1, 1, 1, output[-1]), lanes, blocked=True, dtype=tensor.dtype)
            memory = self.generator.numbered(Memory("weights", offset, layout))
            return Stream(memory, 0, 0, 0, 0, layout.block, splat=False)
        operand = EpilogueOperand.of(index_map, tensor.shape, output)
        assert operand is not None, f"{index_map} does not run along {output}"
        return follow(self.memory(index), operand)
