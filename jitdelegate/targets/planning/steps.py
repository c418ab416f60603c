"""The steps of a graph on a target: which nodes are written together, which write into the memory of what they read,
and which only say where a tensor lies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import Form, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.targets.planning.fusions import Fusion, Pattern
from jitdelegate.targets.planning.in_place import updates_in_place
from jitdelegate.targets.planning.parts import Parts, Rules, find_parts

Known = TypeVar("Known")
"""What a target knows of a graph while it finds the steps."""


@dataclass(frozen=True)
class Task:
    """Nodes that are written together: one, or those of a Fusion. The last one stands for all.

    Attributes:
        in_place: whether the result may have the memory of the first operand.
    """

    nodes: tuple[Node, ...]
    fusion: Fusion | None = None
    in_place: bool = False

    @property
    def origin(self) -> tuple[int, ...]:
        """The positions of the operators in the file, in order."""
        return tuple(sorted({position for node in self.nodes for position in node.origin}))

    def reads(self) -> Iterator[int]:
        """Tensors that the nodes read, with constants, but without those that only they see."""
        inside = {node.outputs[0] for node in self.nodes[:-1]}
        return (index for node in self.nodes for index in node.inputs if index != ABSENT and index not in inside)

    def writes(self) -> int:
        """The tensor that the last node writes."""
        return self.nodes[-1].outputs[0]


@dataclass(frozen=True)
class Accepts(Generic[Known]):
    """What a target's kernels can do.

    Attributes:
        package: the target's. Functions are named in it, "module.function", and imported when a graph first needs them.
        writers: form -> the function that writes a node's kernels, called with the target's writer, the node and its
            form; Views have none.
        fusions: pattern -> the function that says which matches become a Fusion, called with what the target knows of
            the graph, and the matches. A node belongs to the first fusion that has it.
        rules: the rules of parts, from what the target knows of the graph, and the fusions.
        in_place: forms whose kernels read a row before they write it.
    """

    package: str
    writers: Mapping[type[Form], str]
    fusions: Mapping[Pattern, str]
    rules: Callable[[Known, Iterable[Fusion]], Rules]
    in_place: tuple[type[Form], ...] = ()

    def load(self, name: str) -> Callable[..., Any]:
        """The function "module.function" of the package."""
        module, _, own = name.rpartition(".")
        function: Callable[..., Any] = getattr(import_module(f"{self.package}.{module}"), own)
        return function

    def write(self, task: Task, writer: Any) -> Any:
        """Writes the kernels of a task.

        Raises:
            CompileError: the target has no writer for the node's form.
        """
        if task.fusion:
            return task.fusion.write(writer, task.nodes)
        (node,) = task.nodes
        form = form_of(node)
        if type(form) not in self.writers:
            target = self.package.rpartition(".")[2].upper()
            raise CompileError(f"{node.op} needs a {type(form).__name__}, which has no {target} kernel.")
        return self.load(self.writers[type(form)])(writer, node, form)

    def find_fusions(self, graph: Graph, known: Known) -> dict[int, Fusion]:
        """The fusions of a graph, by the position of their last node."""
        fusions: dict[int, Fusion] = {}
        taken: set[int] = set()
        for pattern, name in self.fusions.items():
            matches = list(pattern(graph))
            for fusion in self.load(name)(known, matches) if matches else ():
                if taken.isdisjoint(fusion.positions):
                    taken.update(fusion.positions)
                    fusions[fusion.positions[-1]] = fusion
        return fusions


@dataclass(frozen=True)
class Steps:
    """The tasks of a graph in order, and what nothing has to write.

    Attributes:
        tasks: with Views, but for those of parts.
        parts: tensors that lie in others.
        inside: results of nodes of fusions before the last one, which are never in memory.
    """

    tasks: tuple[Task, ...]
    parts: Parts
    inside: Collection[int]


def find_steps(graph: Graph, accepts: Accepts[Known], known: Known) -> Steps:
    """The steps of a lowered graph on a target, of which that much is known."""
    nodes, fusions = graph.nodes, accepts.find_fusions(graph, known)
    runs_at = {before: last for last, fusion in fusions.items() for before in fusion.positions[:-1]}
    in_place = updates_in_place(graph, runs_at, accepts.in_place)
    changed = (index for at in in_place for index in (nodes[at].inputs[0], nodes[at].outputs[0]))
    early = {nodes[at].outputs[0] for at in runs_at}
    inside = early.difference(nodes[at].outputs[0] for fusion in fusions.values() for at in fusion.kept)
    parts = find_parts(graph, accepts.rules(known, fusions.values()), {*changed, *early})
    tasks: list[Task] = []
    for position, node in enumerate(nodes):
        result = node.outputs[0]
        is_shown = isinstance(node.form, View) and result in parts.of
        if position in runs_at or parts.copied.get(result) == () or is_shown:
            continue
        fusion = fusions.get(position)
        together = tuple(nodes[at] for at in fusion.positions) if fusion else (node,)
        tasks.append(Task(together, fusion, position in in_place))
    return Steps(tuple(tasks), parts, inside)
