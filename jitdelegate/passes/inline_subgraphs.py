"""Inlines subgraphs of loops, branches and composites whose control flow is known while compiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.infer_shapes import Inference, Room
from jitdelegate.passes.resize_inputs import reshaped

COMPOSITE = "STABLEHLO_COMPOSITE"
OPERATORS: Mapping[str, str] = {
    "WHILE": "body_subgraph_index",
    "IF": "then_subgraph_index",
    COMPOSITE: "decomposition_subgraph_index",
}
"""The operators that run subgraphs, and the option that names one."""

MOST_NODES = 20_000
"""Nodes of subgraphs that are looked at, once per round of a loop: some five seconds. A model with more is left to
LiteRT, whose loops take no memory."""

MOST_LEVELS = 32
"""Subgraphs within subgraphs."""


def inline_subgraphs(graph: Graph, graphs: Sequence[Graph], *, hosted: bool = False) -> Graph:
    """%1 = WHILE(0, %0) {body: x * 2, four times} -> %1 = MUL(MUL(MUL(MUL(%0, 2), 2), 2), 2).

    So with IF whose condition is known, and with STABLEHLO_COMPOSITE, which stands for its decomposition. A composite
    that an operator of its name is declared for becomes that operator: a converter's decomposition may be wrong.
    Shapes, conditions and counters are followed as the nodes are walked. What cannot be followed stays as it is, for
    the check that reports it. Tensors keep their numbers, and what a followed operator wrote is written under the same
    number: signatures, callers and LiteRT name tensors by them.

    Args:
        graphs: the model's subgraphs, by the numbers that operators name them with.
        hosted: whether LiteRT's own interpreter is to run the graph. Loops, branches and variables are LiteRT's then,
            and composites alone are followed.
    """
    if not any(_is_followed(node, hosted=hosted) for node in graph.nodes):
        return graph
    try:
        return _Inlining(graph, graphs, hosted=hosted).inlined()
    except _TooLongError:
        return graph


def _is_followed(node: Node, *, hosted: bool) -> bool:
    return not node.custom and (node.op == COMPOSITE if hosted else node.op in OPERATORS)


class _TooLongError(Exception):
    """Subgraphs would become too many nodes."""


@dataclass
class _Budget:
    """How many nodes may still be looked at, and how many levels are left below the present one."""

    nodes: int = MOST_NODES
    levels: int = MOST_LEVELS

    def spend(self, nodes: int) -> None:
        """Takes note of a subgraph's nodes, and of the subgraph itself.

        Raises:
            _TooLongError: there are too many by now.
        """
        self.nodes -= 1 + nodes
        if self.nodes < 0 or not self.levels:
            raise _TooLongError


class _Inlining:
    """One graph whose nodes are kept, or replaced by the nodes of subgraphs; all name the draft's tensors."""

    def __init__(self, graph: Graph, graphs: Sequence[Graph], *, hosted: bool) -> None:
        self._graph = graph
        self._graphs = graphs
        self._hosted = hosted
        self._budget = _Budget()
        self._draft = GraphBuilder(graph)
        self._inference = Inference(self._draft.tensors, Room.beside(graphs))
        self._nodes: list[Node] = []
        self._constants: dict[int, int] = {}
        self._variables: dict[tuple[int, int], int] = {}

    def inlined(self) -> Graph:
        """The graph, its shapes and constants followed as far as they are known."""
        for node in self._graph.nodes:
            self._enter(node)
        return self._draft.graph(self._nodes)

    def _enter(self, node: Node) -> None:
        """One node, or what its subgraphs do in its place."""
        node = self._declared(node) or node
        if _is_followed(node, hosted=self._hosted):
            start = self._mark()
            outputs = self._outputs(node)
            if outputs is not None and self._settle(node, outputs, start[1]):
                return
            self._go_back(start)
        if self._inference.follow(node):
            self._nodes.append(node)

    def _declared(self, node: Node) -> Node | None:
        """The composite as the operator of its name; None for other nodes, and where that operator refuses it."""
        if node.custom or node.op != COMPOSITE or not self._inference.is_sure(node):
            return None
        options = bytes(node.attrs.get("composite_attributes") or b"")
        named = replace(node, op=str(node.attrs.get("name", "")), attrs={}, custom=True, custom_options=options)
        op = find(named)
        if op is None:
            return None
        named = replace(named, attrs=op.decode(options))
        call = self._inference.apart(named)
        return named if op.check(call.graph, call.node) is None else None

    def _mark(self) -> tuple[int, int]:
        return len(self._draft.tensors), len(self._nodes)

    def _go_back(self, mark: tuple[int, int]) -> None:
        """Forgets the tensors and nodes added since `mark`."""
        tensors, nodes = mark
        del self._draft.tensors[tensors:], self._nodes[nodes:]
        self._inference.unsure = {index for index in self._inference.unsure if index < tensors}
        self._constants = {key: index for key, index in self._constants.items() if index < tensors}
        self._variables = {key: index for key, index in self._variables.items() if index < tensors}

    def _settle(self, node: Node, found: Sequence[int], start: int) -> bool:
        """Let the node's outputs be what was found for them; whether they can.

        Args:
            found: what subgraphs make of the node's inputs.
            start: where their nodes begin.
        """
        if len(found) != len(node.outputs) or not self._inference.unsure.isdisjoint(found):
            return False
        tensors, pairs = self._draft.tensors, [*zip(node.outputs, found, strict=True)]
        if any(tensors[output].dtype != tensors[index].dtype for output, index in pairs):
            return False
        written = {index for each in self._nodes[start:] for index in each.outputs}
        renamed: dict[int, int] = {}
        copies: list[Node] = []
        for output, index in pairs:
            shape, data = tensors[index].shape, tensors[index].data
            tensors[output] = replace(reshaped(tensors[output], shape), data=data)
            if index in written and index not in renamed:
                renamed[index] = output
            elif data is None:
                copies.append(Node("RESHAPE", (index,), (output,), {"new_shape": shape}, origin=node.origin))
        self._nodes[start:] = [_renamed(each, renamed) for each in (*self._nodes[start:], *copies)]
        return True

    def _outputs(self, node: Node) -> tuple[int, ...] | None:
        """The tensors that the node's subgraphs make of its inputs; None where it is not known."""
        if node.op == "WHILE":
            return self._loop(node)
        if node.op == "IF":
            if not node.inputs or node.inputs[0] == ABSENT:
                return None
            condition = self._draft.tensors[node.inputs[0]].data
            if condition is None or condition.size != 1:
                return None
            branch = "then_subgraph_index" if condition.flat[0] else "else_subgraph_index"
            return self._run(node, branch, node.inputs[1:])
        return self._run(node, OPERATORS[node.op], node.inputs)

    def _loop(self, node: Node) -> tuple[int, ...] | None:
        values: tuple[int, ...] | None = node.inputs
        while values is not None:
            start = self._mark()
            found = self._run(node, "cond_subgraph_index", values)
            again = self._draft.tensors[found[0]].data if found else None
            self._go_back(start)
            if again is None or again.size != 1:
                return None
            if not again.flat[0]:
                return values
            values = self._run(node, "body_subgraph_index", values)
        return None

    def _run(self, node: Node, option: str, arguments: Sequence[int]) -> tuple[int, ...] | None:
        """What the subgraph named by an option of `node` makes of the arguments; None where it cannot be told.

        Raises:
            _TooLongError: there are too many nodes by now.
        """
        number = node.attrs.get(option, ABSENT)
        if not 0 <= number < len(self._graphs) or ABSENT in arguments:
            return None
        graph = self._graphs[number]
        if not self._takes(graph, arguments):
            return None
        self._budget.spend(len(graph.nodes))
        self._budget.levels -= 1
        places = self._places(number, arguments)
        for each in graph.nodes:
            inputs, outputs = (tuple(places[index] for index in side) for side in (each.inputs, each.outputs))
            self._enter(replace(each, inputs=inputs, outputs=outputs, origin=node.origin))
        self._budget.levels += 1
        return tuple(places[index] for index in graph.outputs)

    def _takes(self, graph: Graph, arguments: Sequence[int]) -> bool:
        """Whether the subgraph's inputs may be these tensors."""
        if len(graph.inputs) != len(arguments):
            return False
        pairs = [(graph.tensors[i], self._draft.tensors[j]) for i, j in zip(graph.inputs, arguments, strict=True)]
        if any(own.dtype != given.dtype or own.is_variable for own, given in pairs):
            return False
        return not (self._hosted and any(tensor.is_variable for tensor in graph.tensors))

    def _places(self, number: int, arguments: Sequence[int]) -> dict[int, int]:
        """Where the tensors of a subgraph are in the draft: its inputs are the arguments, others are new."""
        graph = self._graphs[number]
        places = {ABSENT: ABSENT, **dict(zip(graph.inputs, arguments, strict=True))}
        for index, tensor in enumerate(graph.tensors):
            if index not in places:
                places[index] = self._add(number, index, tensor)
        return places

    def _add(self, number: int, index: int, tensor: Tensor) -> int:
        """A tensor of a subgraph in the draft. A constant that every round of a loop has is one tensor, and a variable
        is the same one whenever its subgraph runs."""
        if tensor.is_variable:
            if (number, index) not in self._variables:
                self._variables[number, index] = self._draft.add(tensor)
            return self._variables[number, index]
        if tensor.data is None:
            return self._draft.add(tensor)
        key = id(tensor.data)  # kept alive by the tensor that the draft holds
        if key not in self._constants:
            self._constants[key] = self._draft.add(tensor)
        return self._constants[key]


def _renamed(node: Node, names: Mapping[int, int]) -> Node:
    inputs, outputs = (tuple(names.get(index, index) for index in side) for side in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)
