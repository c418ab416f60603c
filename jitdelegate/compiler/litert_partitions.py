"""Programs of partitions for LiteRT's own interpreter, which runs the other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jitdelegate import passes
from jitdelegate.compiler.partitioned import Content, PartitionedModel, RefusedError, origins_of
from jitdelegate.ir.graph import Graph
from jitdelegate.passes.delegation import Delegation, delegate, refused_nodes, state_users, stuck, stuck_reason
from jitdelegate.passes.likely_shapes import likely_shapes
from jitdelegate.passes.partition import Subset, borders, partition
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.program.program import NOTHING_ELSE, Program

HOSTED_STATE = "Its variable lives in the memory of LiteRT's interpreter."
Positions = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostedDelegation:
    """The delegated operators of a subgraph.

    Attributes:
        graph: the folded subgraph, for the shapes that decided.
        delegation: of its nodes.
        groups: the delegated operators of the file, in LiteRT's groups.
    """

    graph: Graph
    delegation: Delegation
    groups: tuple[Positions, ...]

    @property
    def size(self) -> int:
        """Number of delegated operators."""
        return sum(map(len, self.groups))


class LiteRTPartitions(PartitionedModel):
    """Makes the programs of one model's subgraph for LiteRT's own interpreter.

    An interpreter asks for the delegated operators once, when it is made, and for kernels before each allocation. So
    all programs of a subgraph have the same groups of operators. Where the file's shapes are placeholders that allow
    less than likely shapes do, the likely shapes decide what is delegated.
    """

    def program(self) -> Program | None:
        """The program for the key's shapes; None where nothing is delegated.

        A program without partitions means that other subgraphs may have some."""
        if self._key.nodes:  # folding could remove some of them
            return self._grouped(self._entered(self._key.shapes, passes.INFER), (self._key.nodes,))
        if self._key.shapes:
            hosted = self._hosted_delegation()
            return self._grouped(self._folded(self._key.shapes), hosted.groups) if hosted.groups else None
        graph = self._folded()
        made = self._until_compiled(graph, lambda delegation: self._hosted(graph, delegation), self._refused(graph))
        likely = self._likelier(sum(len(partition.nodes) for partition in made.partitions) if made else 0)
        return made if likely is None else self._later(likely, graph)

    def _folded(self, shapes: Sequence[Positions] = ()) -> Graph:
        """The folded subgraph, ready for delegation; no shapes are the file's shapes."""
        return self._entered(shapes, passes.FOLD)

    def _entered(self, shapes: Sequence[Positions], chosen: Sequence[passes.Pass]) -> Graph:
        entered = specialize_subgraph(self._model, self._number, shapes, hosted=True)
        self._trace.graph("specialize_subgraph", entered.graphs[self._number])
        return passes.run(entered.graphs[self._number], self._trace.graph, chosen, self._faults)

    def _refused(self, graph: Graph) -> dict[int, str]:
        """Operators with variables, where compiled code cannot access LiteRT's memory."""
        users = (position for state in graph.states for position in state_users(graph, state))
        return dict.fromkeys(users, HOSTED_STATE) if self._target.is_accelerator else {}

    def _hosted_delegation(self) -> HostedDelegation:
        """The delegation for the file's shapes, or a larger one for likely shapes."""
        hosted = self._delegate_for(self._folded())
        return self._likelier(hosted.size) or hosted

    def _delegate_for(self, graph: Graph) -> HostedDelegation:
        delegation = delegate(self._model, graph, self._number, self._options, self._rates, self._refused(graph))
        groups = _delegated_groups(self._original, graph, delegation)
        return HostedDelegation(graph, delegation, tuple(subset.nodes for subset in groups))

    def _likelier(self, size: int) -> HostedDelegation | None:
        """The largest delegation for likely shapes, if it has more than `size` operators; else None."""
        best = None
        for shapes in likely_shapes(self._original):
            if size == len(self._original.nodes):
                break
            hosted = self._delegate_for(self._folded(shapes))
            if hosted.size > size:
                best, size = hosted, hosted.size
        return best

    def _later(self, hosted: HostedDelegation, file: Graph) -> Program:
        """A program whose partitions are compiled later, when LiteRT knows their shapes.

        Args:
            file: the subgraph for the file's shapes, which the interpreter begins with.
        """
        content = Content(self._sources)
        for group in hosted.groups:
            _, inputs, outputs = self._borders(hosted.graph, group)
            content.add(self._key.part("target"), group, (inputs, outputs), b"")
        self.reasons = list(self._reasons(hosted.graph, hosted.delegation).items())
        return self._program("delegate", content, hosted.delegation, hosted.graph, described=file)

    def _grouped(self, graph: Graph, groups: Sequence[Positions]) -> Program:
        """A program of these groups of a folded graph, without those that cannot be compiled."""
        refused = refused_nodes(self._model, graph, self._number, self._options) | self._refused(graph)
        content = Content(self._sources)
        for group in groups:
            try:
                self._add_group(content, graph, group, refused)
            except RefusedError as error:
                refused = error.reasons | refused
        delegation = Delegation((), refused)
        self.reasons = list(self._reasons(graph, delegation).items())
        return self._program("delegate", content, delegation, graph)

    def _add_group(self, content: Content, graph: Graph, group: Positions, refused: Mapping[int, str]) -> None:
        """
        Raises:
            RefusedError: nodes of the group cannot be compiled, or not without others.
        """
        nodes, inputs, outputs = self._borders(graph, group)
        reason = next((refused[node] for node in nodes if node in refused), "")
        own = set(nodes)
        for state in graph.states:
            users = set(state_users(graph, state))
            if not users.isdisjoint(own) and not users.issubset(own):
                reason = reason or f"The variable '{graph.tensors[state.before].title}' is used by operators elsewhere."
        for index in stuck(graph, nodes):
            reason = reason or stuck_reason(graph, index)
        if reason:
            raise RefusedError(dict.fromkeys(nodes, reason))
        if outputs:
            self._compile(content, graph, nodes, inputs, outputs, group)

    def _hosted(self, graph: Graph, delegation: Delegation) -> Program | None:
        content, refused = Content(self._sources), dict[int, str]()
        for subset in _delegated_groups(self._original, graph, delegation):
            try:
                nodes, inputs, outputs = self._borders(graph, subset.nodes)
                if outputs:
                    self._compile(content, graph, nodes, inputs, outputs, subset.nodes)
            except RefusedError as error:
                refused |= error.reasons
        if refused:
            raise RefusedError(refused)
        useful = content.partitions or self._may_compile_inside(graph)
        return self._program("delegate", content, delegation, graph) if useful else None

    def _borders(self, graph: Graph, group: Positions) -> tuple[Positions, Positions, Positions]:
        """The nodes of a group of the file's operators, and the tensors that it reads and writes as LiteRT sees it.

        Raises:
            RefusedError: it reads a tensor that LiteRT lacks.
        """
        own, file = set(group), self._original
        nodes = tuple(
            position for position, node in enumerate(graph.nodes) if node.origin and own.issuperset(node.origin)
        )
        inputs, _ = borders(graph, nodes)
        written = sorted(index for position in group for index in file.nodes[position].outputs)
        outputs = tuple(index for index in written if index in file.outputs or not own.issuperset(file.readers[index]))
        made = {index for position in nodes for index in graph.nodes[position].outputs}
        if any(index not in made and not graph.tensors[index].is_constant for index in outputs):
            raise RefusedError(dict.fromkeys(nodes, NOTHING_ELSE))
        unknown = next((index for index in inputs if index >= len(file.tensors)), None)
        if unknown is not None:
            raise RefusedError(dict.fromkeys(nodes, f"'{graph.tensors[unknown].title}' is not there in LiteRT."))
        return nodes, inputs, outputs


def _delegated_groups(original: Graph, graph: Graph, delegation: Delegation) -> list[Subset]:
    """The operators of the file to delegate, in LiteRT's groups: those of delegated nodes, and folded ones that only
    these need."""
    present = set(origins_of(graph, range(len(graph.nodes))))
    delegated = present - set(origins_of(graph, delegation.reasons))
    known = _only_needed_by(original, delegated, set(range(len(original.nodes))) - present)
    while True:
        subsets = [subset for subset in partition(original.nodes, delegated | known) if subset.delegated]
        apart = {position for subset in subsets for position in _read_elsewhere(original, subset, known)}
        if not apart:
            return subsets
        known -= apart


def _only_needed_by(original: Graph, delegated: set[int], candidates: set[int]) -> set[int]:
    """The candidates whose results are read only by delegated operators and by each other."""
    needed: set[int] = set()
    for position in sorted(candidates, reverse=True):
        outputs = original.nodes[position].outputs
        readers = {reader for index in outputs for reader in original.readers[index]}
        if readers and readers <= delegated | needed and not set(outputs) & set(original.outputs):
            needed.add(position)
    return needed


def _read_elsewhere(original: Graph, subset: Subset, known: set[int]) -> set[int]:
    """Folded operators of a subset, for which no code is generated, with readers outside of it."""
    own = set(subset.nodes)
    return {
        position
        for position in own & known
        if any(not own.issuperset(original.readers[index]) for index in original.nodes[position].outputs)
    }
