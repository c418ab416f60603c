"""Subgraphs whose way is known when the model is compiled, in the place of the operators that run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.passes.draft import Draft
from jitdelegate.passes.infer_shapes import Room, infer_shapes

OPERATORS: Mapping[str, str] = {
    "WHILE": "body_subgraph_index",
    "IF": "then_subgraph_index",
    "STABLEHLO_COMPOSITE": "decomposition_subgraph_index",
}
"""The operators that run subgraphs, and the option that names one."""

MOST_NODES = 20_000
"""Nodes of subgraphs that are looked at, once per round of a loop: some five seconds. A model with more is left to
LiteRT, whose loops take no memory."""


def inline_subgraphs(graph: Graph, graphs: Sequence[Graph]) -> Graph:
    """%1 = WHILE(0, %0) {body: x * 2, four times} -> %1 = MUL(MUL(MUL(MUL(%0, 2), 2), 2), 2).

    So with IF whose condition is known, and with STABLEHLO_COMPOSITE, which stands for its decomposition.
    Conditions and counters are followed through `infer_shapes`. What cannot be followed stays as it is, for the check
    that reports it.

    Args:
        graphs: the model's subgraphs, by the numbers that operators name them with.
    """
    if not _runs_subgraphs(graph):
        return graph
    try:
        return _Inlining(graph, graphs, _Budget(Room.beside(graphs))).inlined()
    except _TooLongError:
        return graph


MOST_LEVELS = 32
"""Subgraphs within subgraphs."""


def _runs_subgraphs(graph: Graph) -> bool:
    return any(node.op in OPERATORS for node in graph.nodes)


class _TooLongError(Exception):
    """Subgraphs would become too many nodes."""


@dataclass
class _Budget:
    """How many nodes may still be looked at, how many levels are left below the present one, and how large constants
    may become."""

    room: Room
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
    """One graph whose nodes are copied, or replaced by the nodes of subgraphs."""

    def __init__(self, graph: Graph, graphs: Sequence[Graph], budget: _Budget) -> None:
        self._graph = infer_shapes(graph, budget.room)
        self._graphs = graphs
        self._budget = budget
        self._draft = Draft(self._graph)
        self._nodes: list[Node] = []
        self._instead: dict[int, int] = {}
        self._constants: dict[int, int] = {}

    def inlined(self) -> Graph:
        """The graph, its shapes and constants followed as far as they are known."""
        if not _runs_subgraphs(self._graph):
            return self._graph
        for node in self._graph.nodes:
            node = replace(node, inputs=self._current(node.inputs))
            outputs = self._followed(node)
            if outputs is None:
                self._nodes.append(node)
            else:
                self._instead |= dict(zip(node.outputs, outputs, strict=True))
        outputs = self._current(self._graph.outputs)
        return infer_shapes(replace(self._draft.graph(self._nodes), outputs=outputs), self._budget.room)

    def _current(self, indices: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._instead.get(index, index) for index in indices)

    def _followed(self, node: Node) -> tuple[int, ...] | None:
        """The tensors that the node's subgraphs make of its inputs; None for other nodes, and where it is not known."""
        start = self._mark()
        outputs = self._outputs(node)
        if outputs is not None and len(outputs) == len(node.outputs):
            return outputs
        self._go_back(start)
        return None

    def _mark(self) -> tuple[int, int]:
        return len(self._draft.tensors), len(self._nodes)

    def _go_back(self, mark: tuple[int, int]) -> None:
        """Forgets the tensors and nodes added since `mark`."""
        tensors, nodes = mark
        del self._draft.tensors[tensors:], self._nodes[nodes:]
        self._constants = {key: index for key, index in self._constants.items() if index < tensors}

    def _outputs(self, node: Node) -> tuple[int, ...] | None:
        if node.op == "WHILE":
            return self._loop(node)
        if node.op == "IF" and node.inputs and node.inputs[0] != ABSENT:
            condition = self._draft.tensors[node.inputs[0]].data
            if condition is None or condition.size != 1:
                return None
            branch = "then_subgraph_index" if condition.flat[0] else "else_subgraph_index"
            return self._run(node, branch, node.inputs[1:])
        return self._run(node, OPERATORS[node.op], node.inputs) if node.op == "STABLEHLO_COMPOSITE" else None

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
        """The nodes of a subgraph on these tensors; the answer is its outputs, None where they do not fit.

        Raises:
            _TooLongError: there are too many by now.
        """
        number = node.attrs.get(option, ABSENT)
        if not 0 <= number < len(self._graphs) or ABSENT in arguments:
            return None
        if len(self._graphs[number].inputs) != len(arguments):
            return None
        own = _on(self._graphs[number], [self._draft.tensors[index] for index in arguments])
        if own is None:
            return None
        self._budget.spend(len(own.nodes))
        self._budget.levels -= 1
        own = _Inlining(own, self._graphs, self._budget).inlined()
        self._budget.levels += 1
        return self._append(own, dict(zip(own.inputs, arguments, strict=True)), node.origin)

    def _append(self, own: Graph, places: Mapping[int, int], origin: tuple[int, ...]) -> tuple[int, ...]:
        """The subgraph's nodes behind the others; `places` says which tensors its inputs are."""
        moved = {ABSENT: ABSENT, **places}
        for index, tensor in enumerate(own.tensors):
            if index not in moved:
                moved[index] = self._add(tensor)
        for each in own.nodes:
            inputs, outputs = (tuple(moved[index] for index in side) for side in (each.inputs, each.outputs))
            self._nodes.append(replace(each, inputs=inputs, outputs=outputs, origin=origin))
        return tuple(moved[index] for index in own.outputs)

    def _add(self, tensor: Tensor) -> int:
        """The index of a tensor that is new; a constant that every round of a loop has is one tensor."""
        if tensor.data is None:
            return self._draft.add(tensor)
        key = id(tensor.data)  # kept alive by the tensor that the draft holds
        if key not in self._constants:
            self._constants[key] = self._draft.add(tensor)
        return self._constants[key]


def _on(graph: Graph, arguments: Sequence[Tensor]) -> Graph | None:
    """The subgraph with the arguments' shapes and, where they are constants, their values; None if types differ."""
    tensors = list(graph.tensors)
    for index, argument in zip(graph.inputs, arguments, strict=True):
        if tensors[index].dtype != argument.dtype or tensors[index].is_variable:
            return None
        tensors[index] = replace(argument, is_variable=False)
    return replace(graph, tensors=tuple(tensors))
