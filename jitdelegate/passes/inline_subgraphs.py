"""Inlines subgraphs of loops, branches and composites whose control flow is known while compiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jitdelegate.ir.faults import reason_of
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.stablehlo_windows import COMPUTATION, REPLACE
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.infer_shapes import Inference, Room
from jitdelegate.passes.resize_inputs import reshaped
from jitdelegate.passes.support import node_reason
from jitdelegate.passes.works_on import works_on

COMPOSITE, CASE = "STABLEHLO_COMPOSITE", "STABLEHLO_CASE"
REGIONS = {
    "STABLEHLO_SCATTER": "update_computation_subgraph_index",
    "STABLEHLO_REDUCE_WINDOW": "body_subgraph_index",
}
"""Operators with a region that combines two elements -> the option that names its subgraph."""
OPERATORS = frozenset(("WHILE", "IF", CASE, COMPOSITE))
"""Operators that run subgraphs."""

MOST_NODES = 20_000
"""Most nodes of subgraphs that are visited, counted once per loop iteration: some five seconds. Models with more keep
their subgraphs and run on LiteRT, whose loops take no memory."""

MOST_LEVELS = 32
"""Most levels of nested subgraphs."""


@works_on(*OPERATORS, *REGIONS)
def inline_subgraphs(graph: Graph, graphs: Sequence[Graph], *, hosted: bool = False) -> Graph:
    """%1 = WHILE(0, %0) {body: x * 2, four times} -> %1 = MUL(MUL(MUL(MUL(%0, 2), 2), 2), 2).

    IF and STABLEHLO_CASE with a known condition are inlined too, and STABLEHLO_COMPOSITE by its decomposition. If an
    operator is declared under the composite's name, the composite becomes that operator instead: a converter's
    decomposition may be wrong.
    Shapes, conditions and loop counters are inferred node by node. Operators that cannot be inlined stay as they are,
    and the check reports them. Tensors keep their indices, and outputs of inlined operators too: signatures, callers
    and LiteRT refer to tensors by index.

    Args:
        graphs: the model's subgraphs, by index.
        hosted: whether LiteRT's own interpreter runs the graph. Loops, branches and variables then stay with LiteRT,
            and only composites are inlined.
    """
    if not any(_is_followed(node, hosted=hosted) or node.op in REGIONS for node in graph.nodes):
        return graph
    try:
        return _Inlining(graph, graphs, hosted=hosted).inlined()
    except _TooLongError:
        return graph


def _is_followed(node: Node, *, hosted: bool) -> bool:
    return not node.custom and (node.op == COMPOSITE if hosted else node.op in OPERATORS)


class _TooLongError(Exception):
    """Inlined subgraphs would have too many nodes, or are nested too deep."""


@dataclass
class _Budget:
    """How many more nodes may be visited, and how many levels may follow below the current one."""

    nodes: int = MOST_NODES
    levels: int = MOST_LEVELS

    def spend(self, nodes: int) -> None:
        """Counts a subgraph with this number of nodes.

        Raises:
            _TooLongError: too many nodes were visited, or no level is left.
        """
        self.nodes -= 1 + nodes
        if self.nodes < 0 or not self.levels:
            raise _TooLongError


class _Inlining:
    """One graph whose nodes are kept, or replaced by nodes of subgraphs; all refer to tensors of the draft."""

    def __init__(self, graph: Graph, graphs: Sequence[Graph], *, hosted: bool) -> None:
        self._graph = graph
        self._graphs = graphs
        self._hosted = hosted
        self._budget = _Budget()
        self._draft = GraphBuilder(graph)
        self._inference = Inference(self._draft.tensors, Room.beside(graphs), graphs)
        self._nodes: list[Node] = []
        self._constants: dict[int, int] = {}
        self._variables: dict[tuple[int, int], int] = {}

    def inlined(self) -> Graph:
        """The inlined graph, with shapes and constants inferred where they are known."""
        for node in self._graph.nodes:
            self._enter(node)
        return self._draft.graph(self._nodes)

    def _enter(self, node: Node) -> None:
        """Appends one node, or the nodes of its subgraphs in its place."""
        node = self._with_computation(self._declared(node) or node)
        if _is_followed(node, hosted=self._hosted):
            start = self._mark()
            outputs = self._outputs(node)
            if outputs is not None and self._settle(node, outputs, start[1]):
                return
            node = replace(node, trouble=self._trouble(node.op, self._nodes[start[1] :]))
            self._go_back(start)
        left = self._inference.follow(node)
        if left is not None:
            self._nodes.append(left)

    def _trouble(self, op: str, inside: Sequence[Node]) -> str:
        """Why the shapes of an operator's results are not known: the reason of the first node inside whose own are not;
        "" where there is none."""
        for node in inside:
            if not self._inference.unsure.isdisjoint(node.outputs) and self._inference.is_sure(node):
                call = self._inference.apart(node)
                reason = node_reason(call.graph, call.node)
                return f"{op}: {reason}" if reason else ""
        return ""

    def _declared(self, node: Node) -> Node | None:
        """The composite as the operator of its name; None for other nodes, or if that operator refuses it or fails."""
        if node.custom or node.op != COMPOSITE or not self._inference.is_sure(node):
            return None
        options = bytes(node.attrs.get("composite_attributes") or b"")
        named = replace(node, op=str(node.attrs.get("name", "")), attrs={}, custom=True, custom_options=options)
        op = find(named)
        if op is None:
            return None
        try:
            named = replace(named, attrs=op.decode(options))
            call = self._inference.apart(named)
            return named if op.check(call.graph, call.node) is None else None
        except Exception as error:  # noqa: BLE001 - a fault of ours
            reason_of(error)  # nothing to tell: its decomposition is compiled
            return None

    def _with_computation(self, node: Node) -> Node:
        """A node with a region with the option that says what the region computes; other nodes as they are."""
        number = node.attrs.get(REGIONS.get(node.op, ""), ABSENT)
        if node.custom or not 0 <= number < len(self._graphs):
            return node
        inside = self._graphs[number].nodes
        computation = (inside[0].op if len(inside) == 1 else "") if inside else REPLACE
        return replace(node, attrs={**node.attrs, COMPUTATION: computation})

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
        """Write the results of the subgraphs to the node's outputs; False if they do not fit.

        Args:
            found: tensors that hold the results of the subgraphs.
            start: position of the first node of the subgraphs.
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
        """The tensors with the results of the node's subgraphs; None if its control flow is not known."""
        if node.op == "WHILE":
            return self._loop(node)
        if node.op == COMPOSITE:
            return self._run(node, node.attrs.get("decomposition_subgraph_index", ABSENT), node.inputs)
        if not node.inputs or node.inputs[0] == ABSENT:
            return None
        choice = self._draft.tensors[node.inputs[0]].data
        if choice is None or choice.size != 1:
            return None
        return self._run(node, _branch(node, int(choice.flat[0])), node.inputs[1:])

    def _loop(self, node: Node) -> tuple[int, ...] | None:
        values: tuple[int, ...] | None = node.inputs
        while values is not None:
            start = self._mark()
            found = self._run(node, node.attrs.get("cond_subgraph_index", ABSENT), values)
            again = self._draft.tensors[found[0]].data if found else None
            self._go_back(start)
            if again is None or again.size != 1:
                return None
            if not again.flat[0]:
                return values
            values = self._run(node, node.attrs.get("body_subgraph_index", ABSENT), values)
        return None

    def _run(self, node: Node, number: int, arguments: Sequence[int]) -> tuple[int, ...] | None:
        """Results of a subgraph that `node` names, for these arguments; None if it cannot be inlined.

        Raises:
            _TooLongError: as `_Budget.spend`.
        """
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
        """Whether these tensors may be the subgraph's inputs."""
        if len(graph.inputs) != len(arguments):
            return False
        pairs = [(graph.tensors[i], self._draft.tensors[j]) for i, j in zip(graph.inputs, arguments, strict=True)]
        if any(own.dtype != given.dtype or own.is_variable for own, given in pairs):
            return False
        return not (self._hosted and any(tensor.is_variable for tensor in graph.tensors))

    def _places(self, number: int, arguments: Sequence[int]) -> dict[int, int]:
        """Tensor index in the subgraph -> index in the draft. Inputs are the arguments, other tensors are added."""
        graph = self._graphs[number]
        places = {ABSENT: ABSENT, **dict(zip(graph.inputs, arguments, strict=True))}
        for index, tensor in enumerate(graph.tensors):
            if index not in places:
                places[index] = self._add(number, index, tensor)
        return places

    def _add(self, number: int, index: int, tensor: Tensor) -> int:
        """Index in the draft of a tensor of a subgraph. Loop iterations share one tensor per constant, and all runs of
        a subgraph share one tensor per variable."""
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


def _branch(node: Node, choice: int) -> int:
    """The subgraph that an IF or a STABLEHLO_CASE runs; of a case, the last one for a number that none has."""
    if node.op == "IF":
        return int(node.attrs.get("then_subgraph_index" if choice else "else_subgraph_index", ABSENT))
    branches = tuple(node.attrs.get("branch_subgraph_indices") or (ABSENT,))
    return int(branches[choice if 0 <= choice < len(branches) else -1])


def _renamed(node: Node, names: Mapping[int, int]) -> Node:
    inputs, outputs = (tuple(names.get(index, index) for index in side) for side in (node.inputs, node.outputs))
    return node.between(inputs, outputs)
