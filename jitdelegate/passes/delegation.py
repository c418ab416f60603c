"""Which nodes of a folded graph are delegated, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jitdelegate.base.options import DelegateOptions
from jitdelegate.ir.graph import ABSENT, Graph, Model, Node, State
from jitdelegate.ops import find
from jitdelegate.passes.cost import Rates, saved_seconds
from jitdelegate.passes.functional_state import RESOURCE_OPS, resource_problem
from jitdelegate.passes.infer_shapes import unsure_tensors
from jitdelegate.passes.partition import Subset, borders, partition
from jitdelegate.passes.support import PORTS, node_reason
from jitdelegate.program.program import ITS_PARTITION
from jitdelegate.tflite.calls import called_subgraphs


@dataclass(frozen=True, slots=True)
class Delegation:
    """Attributes:
    subsets: partitions of the graph's nodes, in the order in which they run.
    reasons: node position -> one sentence, for every node that is not delegated.
    """

    subsets: tuple[Subset, ...]
    reasons: Mapping[int, str]

    @property
    def delegated(self) -> tuple[Subset, ...]:
        """The partitions that are compiled."""
        return tuple(subset for subset in self.subsets if subset.delegated)


def delegate(
    model: Model, graph: Graph, number: int, options: DelegateOptions, rates: Rates, more: Mapping[int, str]
) -> Delegation:
    """Cut a graph into partitions that are compiled and partitions that LiteRT runs.

    Args:
        model: the model as it was read.
        graph: its subgraph `number` after `passes.FOLD`.
        options: which nodes may be delegated, and the largest number of delegated partitions.
        rates: rates of the target and of the way in which compiled code is called.
        more: additional nodes that are not delegated, with reasons.
    """
    refused = {**refused_nodes(model, graph, number, options), **more}
    return _Delegating(graph, options, rates, refused).delegation()


def refused_nodes(model: Model, graph: Graph, number: int, options: DelegateOptions) -> dict[int, str]:
    """Node position -> one sentence, for every node of the folded subgraph `number` that cannot be compiled."""
    resources = resource_problem(model, number)
    unsure = unsure_tensors(graph)
    found = {}
    for position, node in enumerate(graph.nodes):
        reason = resources if resources and node.op in RESOURCE_OPS else _node_reason(graph, node, unsure, options)
        if reason is not None:
            found[position] = reason
    return found


def _node_reason(graph: Graph, node: Node, unsure: set[int], options: DelegateOptions) -> str | None:
    reasons = (_unsure_reason(graph, node, unsure), node_reason(graph, node), _excluded(graph, node, options))
    return next((each for each in reasons if each is not None), None)


def _unsure_reason(graph: Graph, node: Node, unsure: set[int]) -> str | None:
    """The reason if an operator that may be compiled reads a tensor of unknown shape: before all that it might say of
    the file's shape."""
    index = next((index for index in node.inputs if index in unsure), None)
    if index is None or find(node) is None:
        return None
    return f"{node.op}: the shape of '{graph.tensors[index].title}' is known only to LiteRT."  # as in UNKNOWN_SHAPE


def stuck(graph: Graph, nodes: Sequence[int]) -> list[int]:
    """The tensors that these nodes exchange with others and whose type cannot pass to and from LiteRT."""
    return [index for side in borders(graph, nodes) for index in side if graph.tensors[index].dtype not in PORTS]


def stuck_reason(graph: Graph, index: int) -> str:
    """Why the users of the `stuck` tensor are not delegated."""
    return f"'{graph.tensors[index].title}' is {graph.tensors[index].dtype}, which does not pass to and from LiteRT."


def _excluded(graph: Graph, node: Node, options: DelegateOptions) -> str | None:
    """The reason if the caller's options exclude the node."""
    if not options.quantized_models_allowed and _has_quantized_activations(graph, node):
        return "It has quantized activations, which quantized_models_allowed=False leaves to LiteRT."
    if options.only_ops is not None and node.op not in options.only_ops:
        return f"It is none of only_ops, {', '.join(options.only_ops)}."
    first, last = options.first_delegate_node_index, options.last_delegate_node_index
    if all(first <= position and (last is None or position <= last) for position in node.origin):
        return None
    return f"It is not among the operators {first} to {'the last' if last is None else last}, which may be delegated."


def _has_quantized_activations(graph: Graph, node: Node) -> bool:
    """Whether the node reads or writes quantized values; TFLite's flag takes no notice of constants."""
    tensors = (graph.tensors[index] for index in (*node.inputs, *node.outputs) if index != ABSENT)
    return any(tensor.is_quantized and not tensor.is_constant for tensor in tensors)


class _Delegating:
    """Takes nodes back until every delegated partition saves time and is allowed."""

    def __init__(self, graph: Graph, options: DelegateOptions, rates: Rates, reasons: dict[int, str]) -> None:
        self._graph = graph
        self._options = options
        self._rates = rates
        self._reasons = reasons
        self._confined = {
            index for index, each in enumerate(graph.tensors) if each.dtype not in PORTS and not each.is_constant
        }
        self._take_back_whole_operators()

    def delegation(self) -> Delegation:
        while True:
            subsets = self._subsets()
            taken_back = self._taken_back([subset for subset in subsets if subset.delegated])
            if not taken_back:
                return Delegation(tuple(subsets), self._reasons)
            self._reasons |= taken_back
            self._take_back_whole_operators()

    def _subsets(self) -> list[Subset]:
        delegated = [position for position in range(len(self._graph.nodes)) if position not in self._reasons]
        return partition(self._graph.nodes, delegated)

    def _take_back_whole_operators(self) -> None:
        """An operator of the file that became several nodes is delegated as a whole or not at all."""
        first: dict[int, str] = {}
        for position, reason in self._reasons.items():
            for origin in self._graph.nodes[position].origin:
                first.setdefault(origin, reason)
        for position, node in enumerate(self._graph.nodes):
            for origin in node.origin:
                if origin in first:
                    self._reasons.setdefault(position, first[origin])

    def _taken_back(self, delegated: list[Subset]) -> dict[int, str]:
        """Nodes that will not be delegated after all, with reasons, from the first rule that finds any."""
        kinds = (self._stuck, self._parted_states, self._small, self._costly, self._beyond)
        return next((found for kind in kinds if (found := dict(kind(delegated)))), {})

    def _stuck(self, delegated: list[Subset]) -> Iterator[tuple[int, str]]:
        """Users of stuck tensors, and users of what would be stuck without these, as far as one walk there and back
        finds them."""
        for subset in delegated if self._confined else ():
            causes = {index: index for index in stuck(self._graph, subset.nodes)}
            for position in (*subset.nodes, *reversed(subset.nodes)) if causes else ():
                node = self._graph.nodes[position]
                confined = self._confined.intersection((*node.inputs, *node.outputs))
                cause = next((causes[index] for index in sorted(confined) if index in causes), None)
                if cause is not None:
                    causes |= dict.fromkeys(confined - causes.keys(), cause)
                    yield position, f"{node.op}: {stuck_reason(self._graph, cause)}"

    def _small(self, delegated: list[Subset]) -> Iterator[tuple[int, str]]:
        least = self._options.min_nodes_per_partition
        for subset in delegated:
            if len(subset.nodes) < least:
                yield from _because(subset, f"has fewer than min_nodes_per_partition={least}")

    def _costly(self, delegated: list[Subset]) -> Iterator[tuple[int, str]]:
        if self._options.partitioning == "all" or not self._reasons:
            return
        for subset in delegated:
            if self._value(subset) < 0:
                yield from _because(subset, "would take longer to reach than it saves")

    def _beyond(self, delegated: list[Subset]) -> Iterator[tuple[int, str]]:
        most = self._options.max_delegated_partitions
        if most is not None:
            for subset in sorted(delegated, key=self._value, reverse=True)[most:]:
                yield from _because(subset, f"is beyond max_delegated_partitions={most}")

    def _value(self, subset: Subset) -> float:
        """The value of a partition: seconds saved; with "all", its number of nodes, which is LiteRT's own measure."""
        if self._options.partitioning == "all":
            return len(subset.nodes)
        return saved_seconds(self._graph, subset.nodes, self._rates)

    def _parted_states(self, delegated: list[Subset]) -> Iterator[tuple[int, str]]:
        """Takes back the users of a variable unless one partition has them all."""
        for state in self._graph.states:
            users = set(state_users(self._graph, state))
            homes = [subset for subset in delegated if not users.isdisjoint(subset.nodes)]
            if homes and not users.issubset(homes[0].nodes):
                name = self._graph.tensors[state.before].title
                for position in users - self._reasons.keys():
                    yield position, f"Its variable '{name}' is used by operators elsewhere."


def _because(subset: Subset, fault: str) -> Iterator[tuple[int, str]]:
    """(position, sentence) for every node of a partition."""
    count = len(subset.nodes)
    sentence = f"{ITS_PARTITION}{'one operator' if count == 1 else f'{count} operators'} {fault}."
    return ((position, sentence) for position in subset.nodes)


def state_users(graph: Graph, state: State) -> Iterator[int]:
    """Positions of the nodes that read a state's old value, and of the node that writes its new value."""
    yield from graph.readers[state.before]
    writer = graph.writer[state.after]
    if writer is not None:
        yield writer


def needs_host(graph: Graph, delegation: Delegation) -> str:
    """Why LiteRT's partitions cannot be independent models of their own; "" if they can."""
    users = {position for state in graph.states for position in state_users(graph, state)}
    ports = {*graph.inputs, *graph.outputs}
    for subset in delegation.subsets:
        ports.update(*borders(graph, subset.nodes))
        for position in () if subset.delegated else subset.nodes:
            node = graph.nodes[position]
            if names_others(node):
                return f"{node.op} names other subgraphs or variables."
            if position in users or any(i != ABSENT and graph.tensors[i].is_variable for i in node.inputs):
                return f"{node.op} has a variable."
    unwritten = next((index for index in graph.returned if graph.writer[index] is None), None)
    if unwritten is not None:
        return f"The output '{graph.tensors[unwritten].title}' is written by no operator."
    odd = next((graph.tensors[index] for index in ports if graph.tensors[index].dtype not in PORTS), None)
    if odd is not None:
        return f"'{odd.title}' is {odd.dtype}."
    unsure = min(unsure_tensors(graph) & ports, default=None)
    return "" if unsure is None else f"LiteRT finds out the shape of '{graph.tensors[unsure].title}' as it runs."


def names_others(node: Node) -> bool:
    """Whether the operator refers to subgraphs or variables, so that it makes sense only within its model."""
    return node.op in RESOURCE_OPS or any(True for _ in called_subgraphs(node))
