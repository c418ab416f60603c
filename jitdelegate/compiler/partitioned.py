"""Programs of graphs that are compiled in part: partitions for the target, and partitions for LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from xxhash import xxh3_128_hexdigest

from jitdelegate import passes
from jitdelegate.compiler.codegen import Origins, target_program
from jitdelegate.compiler.compilation import Compilation
from jitdelegate.compiler.program_metadata import as_in_file, code, executions, ports
from jitdelegate.compiler.trace import Trace
from jitdelegate.errors import CompileError
from jitdelegate.ir.faults import Faults, reason_of
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ops.call import Shape
from jitdelegate.passes.cost import BESIDE, INSIDE, Rates, litert_seconds, tensor_bytes
from jitdelegate.passes.delegation import Delegation, delegate, names_others, needs_host
from jitdelegate.passes.inline_subgraphs import OPERATORS as CONTROL_FLOW
from jitdelegate.passes.partition import borders, extract
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.program import (
    LITERT,
    NO_KERNEL,
    NO_PARTITION,
    NOTHING_ELSE,
    ZEROS,
    Kernel,
    Operator,
    Partition,
    Program,
    State,
    aligned,
)
from jitdelegate.program.shared_pages import whole_bytes
from jitdelegate.program.write import front_of_whole
from jitdelegate.runtime.cache.key import FEATURES, TUNED
from jitdelegate.targets import target_named
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.read import read

if TYPE_CHECKING:
    from jitdelegate.program.program import Bytes, SharedPages

MOST_CROSSING = 0.002
"""Largest share of a run for crossings between LiteRT's partitions and compiled ones. Above it, LiteRT's own
interpreter calls the compiled code, at a few hundred nanoseconds a crossing."""
MOST_BESIDE = 4 << 20
"""Most bytes of tensors and constants of LiteRT's partitions, of which each has its own as a model of its own. Above
it, LiteRT's own interpreter runs them: it has one arena for all tensors, and maps the model's file."""
MOST_COPYING = 0.01
"""Largest share of a run for copies of inputs and outputs to and from that interpreter, where only bytes are saved."""
MOST_TRIED = 2
"""How many times the nodes of a partition that fails may be compiled once more, in parts, to find those to blame. One
node is found by halves in twice."""
MOST_ROUNDS = 4
"""Most times that operators to blame are taken out and the others compiled again; from the second time on, with all
operators of their name."""


@dataclass
class Content:
    """The files of the partitions, concatenated at page boundaries, with their descriptions.

    Attributes:
        data: the files, without the `shared` pages.
        sources: the programs that store those.
        shared, named: as in `Program.shared` and `Program.named_constants`.
    """

    sources: Sequence[Program | None] = ()
    data: bytearray = field(default_factory=bytearray)
    shared: list[tuple[int, int, int, int]] = field(default_factory=list)
    named: list[tuple[int, int, int, int]] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    kernel_of: dict[int, int] = field(default_factory=dict)
    executions: dict[int, str] = field(default_factory=dict)
    tuned: list[str] = field(default_factory=list)
    arena_bytes: int = 0
    scratch_bytes: int = 0

    def add(
        self,
        place: str,
        nodes: Iterable[int],
        graph_ports: tuple[tuple[int, ...], ...],
        *parts: Bytes,
        shared: SharedPages = (),
    ) -> None:
        """Append a partition, whose file has these parts and which computes the operators at these positions.

        Args:
            shared: pages that the last part lacks.
        """
        self.data.extend(bytes(aligned(len(self.data)) - len(self.data)))
        inputs, outputs = graph_ports
        self.partitions.append(
            Partition(
                place=place,
                nodes=tuple(sorted(set(nodes))),
                inputs=inputs,
                outputs=outputs,
                offset=whole_bytes(self.data, self.shared),
                nbytes=sum(map(len, parts[:-1])) + whole_bytes(parts[-1], shared),
                hash=xxh3_128_hexdigest(b"".join(parts)) if place == LITERT else "",
            )
        )
        start = whole_bytes(self.data, self.shared) + sum(map(len, parts[:-1]))
        for part in parts:
            self.data.extend(part)
        self.shared += [(start // PAGE + run[0], *run[1:]) for run in shared]

    def add_compiled(self, program: Program, nodes: Sequence[int], origins: Origins) -> None:
        """Append a compiled partition."""
        start = len(self.kernels)
        self.kernel_of |= {
            position: start + kernel for kernel, positions in enumerate(origins) for position in positions
        }
        self.kernels += program.kernels
        self.states += [state.altered(initial=ZEROS) for state in program.states]  # the partition has their values
        self.arena_bytes = max(self.arena_bytes, program.arena_bytes)
        self.scratch_bytes = max(self.scratch_bytes, program.scratch_bytes)
        inputs, outputs = (tuple(port.index for port in side) for side in (program.inputs, program.outputs))
        front = front_of_whole(program, self.sources)
        self.add(program.target, nodes, (inputs, outputs), front, program.weights, shared=program.shared)
        first = (self.partitions[-1].offset + len(front)) // PAGE
        self.named += [(*name[:2], first + name[2], name[3]) for name in program.named_constants]


class PartitionedModel:
    """Makes the programs of one model's subgraph for one target.

    Attributes:
        reasons: (position, sentence) pairs of the operators that are not delegated.
        needs_host: why `cut` returned None although operators are delegated; else "".
    """

    def __init__(self, one: Compilation) -> None:
        """
        Args:
            one: the compilation; operators that failed in it are not tried again.
        """
        self._bytes = one.content
        self._model = one.model
        self._options = one.options
        self._sources, self._known = one.sources, one.known
        self._key = one.key
        self._trace = one.trace
        self._faults = one.faults
        self._target = target_named(one.key.part("target"))
        self._number = one.key.subgraph
        self._original = one.model.graphs[self._number]
        self.reasons: list[tuple[int, str]] = []
        self.needs_host = ""

    def cut(self, graph: Graph) -> Program | None:
        """A program whose partitions for LiteRT are models of their own. None where these depend on each other in
        other ways than by tensors, or nothing is delegated.

        Args:
            graph: the folded subgraph.
        """
        return self._until_compiled(graph, lambda delegation: self._cut(graph, delegation), {})

    def _may_compile_inside(self, graph: Graph) -> bool:
        """Whether LiteRT's interpreter runs loops and branches, whose bodies it offers to the delegate."""
        return self._can_host and any(node.op in CONTROL_FLOW for node in graph.nodes)

    def blame(self, graph: Graph, nodes: Sequence[int], error: Exception) -> dict[int, str]:
        """The operators that are to blame for the `error` of these nodes' compilation, by position in the file, with
        reasons; they are not compiled again.

        Raises:
            Exception: the error is no fault of the compiler.
        """
        if isinstance(error, CompileError):
            reasons = error.reasons or dict.fromkeys(origins_of(graph, nodes), reason_of(error))
        else:
            groups = self._failing(graph, nodes, reason_of(error))
            reasons = {origin: why for group, why in groups for origin in origins_of(graph, group)}
        self._faults.reasons |= reasons
        return reasons

    def _failing(self, graph: Graph, nodes: Sequence[int], reason: str) -> Iterator[tuple[Sequence[int], str]]:
        """The smallest groups of nodes that fail by themselves, as far as compiling halves of halves may find them, and
        why. After other faults, all nodes."""
        room, pending = 0 if self._faults.reasons else MOST_TRIED * len(nodes), [(nodes, reason)]
        while pending:
            group, why = pending.pop(0)
            failing = []
            if 1 < len(group) <= room:
                room -= len(group)
                halves = group[: len(group) // 2], group[len(group) // 2 :]
                failing = [(half, told) for half in halves if (told := self._trial(graph, half))]
            if failing:
                pending += failing
            else:
                yield group, why

    def _trial(self, graph: Graph, nodes: Sequence[int]) -> str:
        """Why these nodes fail to compile by themselves; "" if they do not."""
        try:
            lowered = passes.run(extract(graph, nodes, *borders(graph, nodes)), faults=Faults(), passes=passes.REWRITE)
            target_program(lowered, self._options, self._key, Trace("trial", None))
        except Exception as error:  # noqa: BLE001 - a fault of ours
            return reason_of(error)
        return ""

    def _until_compiled(
        self, graph: Graph, make: Callable[[Delegation], Program | None], refused: dict[int, str]
    ) -> Program | None:
        """The program that `make` returns, without the nodes in `refused` and those that cannot be compiled."""
        rounds = 0
        while True:
            refused |= self._faulty(graph, rounds)
            delegation = delegate(self._model, graph, self._number, self._options, self._rates, refused)
            self.reasons = list(self._reasons(graph, delegation).items())
            known = len(self._faults.reasons)
            try:
                return make(delegation)
            except RefusedError as error:
                refused |= error.reasons
            rounds += len(self._faults.reasons) > known

    def _faulty(self, graph: Graph, rounds: int) -> dict[int, str]:
        """The nodes that are not tried again after so many rounds of faults, with reasons."""
        reasons = self._faults.reasons
        faulty = {
            position: reasons[origin]
            for position, node in enumerate(graph.nodes)
            for origin in node.origin
            if origin in reasons
        }
        if faulty and rounds >= MOST_ROUNDS:
            return dict.fromkeys(range(len(graph.nodes)), next(iter(faulty.values()))) | faulty
        named = {graph.nodes[position].op: reason for position, reason in faulty.items()} if rounds > 1 else {}
        alike = {at: named[node.op] for at, node in enumerate(graph.nodes) if node.op in named}
        return alike | faulty

    def _cut(self, graph: Graph, delegation: Delegation) -> Program | None:
        if not delegation.delegated:
            self.needs_host = "Subgraphs that it runs may be compiled." if self._may_compile_inside(graph) else ""
            return None
        reasons = (needs_host(graph, delegation), self._renumbered(graph), self._prefers_host(graph, delegation))
        self.needs_host = next(filter(None, reasons), "")
        if self.needs_host:
            return None
        content, cutter, refused = Content(self._sources), Cutter(self._bytes), dict[int, str]()
        for subset in delegation.subsets:
            inputs, outputs = borders(graph, subset.nodes)
            if subset.delegated:
                try:
                    self._compile(content, graph, subset.nodes, inputs, outputs)
                except RefusedError as error:
                    refused |= error.reasons
                continue
            nodes = [graph.nodes[position] for position in subset.nodes]
            try:
                partition = cutter.partition(graph, self._number, nodes, inputs, outputs)
            except CompileError as error:
                self.needs_host = str(error)
                return None
            content.add(LITERT, origins_of(graph, subset.nodes), (inputs, outputs), partition)
        if refused:
            raise RefusedError(refused)
        return self._program("partitions", content, delegation, graph)

    @property
    def _can_host(self) -> bool:
        """Whether LiteRT's interpreter may call compiled code."""
        return self._target.runs_in_litert(self._key)

    @property
    def _rates(self) -> Rates:
        return self._target.rates("delegate" if self._can_host else "partitions", self._key.part(FEATURES))

    def _renumbered(self, graph: Graph) -> str:
        """Sentence about an output that is the new value of a variable, or "". Partitions and callers would know it by
        different indices."""
        pairs = zip(self._original.outputs, graph.returned, strict=True)
        moved = next((old for old, new in pairs if old != new), None)
        return "" if moved is None else f"The output '{self._original.tensors[moved].title}' is a variable."

    def _prefers_host(self, graph: Graph, delegation: Delegation) -> str:
        """Why to run in LiteRT's interpreter although separate partitions would do; "" not to."""
        if all(subset.delegated for subset in delegation.subsets):
            return ""  # nothing crosses
        if any(names_others(node) for node in self._original.nodes):
            return ""  # LiteRT's interpreter would run what is inlined here
        if not self._can_host:
            return ""
        seconds = sum(litert_seconds(graph, node) for node in graph.nodes)
        share = BESIDE.crossing * len(delegation.delegated) / seconds
        if share > MOST_CROSSING:
            return f"Crossings would take {share:.0%} of a run."
        copied = sum(tensor_bytes(graph.tensors[index]) for index in (*graph.given, *graph.returned))
        nbytes = sum(_model_bytes(graph, subset.nodes) for subset in delegation.subsets if not subset.delegated)
        if nbytes > MOST_BESIDE and copied / INSIDE.copied <= MOST_COPYING * seconds:
            return f"LiteRT's partitions would take {nbytes >> 20} MB as models of their own."
        return ""

    def _compile(
        self,
        content: Content,
        graph: Graph,
        nodes: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        positions: Sequence[int] = (),
    ) -> None:
        """
        Args:
            positions: of the .tflite operators, if they are more than those of `nodes`.
        Raises:
            RefusedError: code for these nodes would take too long to compile, or the compiler fails.
        """
        part = extract(graph, nodes, inputs, outputs)
        trace = self._trace.partition(positions or origins_of(graph, nodes))
        trace.graph("extract", part)
        try:
            lowered = passes.run(part, trace.graph, passes.REWRITE, self._faults)
            program, origins = target_program(lowered, self._options, self._key, trace, self._known)
        except Exception as error:
            reasons = self.blame(graph, nodes, error)
            mine = {at: reasons[origin] for at in nodes for origin in graph.nodes[at].origin if origin in reasons}
            raise RefusedError(mine or dict.fromkeys(nodes, str(error))) from error
        content.tuned.append(program.part(TUNED))
        program.key = ()
        program.outputs = as_in_file(program.outputs, part, part.returned)
        content.executions |= executions(part, lowered)
        content.add_compiled(program, positions or origins_of(graph, nodes), origins)

    def _program(
        self, loader: str, content: Content, delegation: Delegation, graph: Graph, described: Graph | None = None
    ) -> Program:
        """
        Args:
            graph: has the nodes of the delegation.
            described: has the shapes that the program tells of its inputs and outputs, where those of `graph` decided
                what is delegated only.
        """
        described = described or graph
        between = {index for partition in content.partitions for index in (*partition.inputs, *partition.outputs)}
        between -= {*graph.given, *graph.returned}
        return Program(
            key=self._key.tuned(content.tuned).parts,
            target=self._key.part("target"),
            features=self._key.part("features"),
            loader=loader,
            inputs=ports(described, described.given),
            outputs=ports(described, described.returned),
            states=tuple(content.states) if loader == "partitions" else (),
            operators=self._operators(content, delegation, graph, NOTHING_ELSE if loader == "delegate" else ""),
            kernels=tuple(content.kernels),
            arena_bytes=content.arena_bytes,
            scratch_bytes=content.scratch_bytes,
            weights=content.data,
            shared=tuple(content.shared),
            named_constants=tuple(content.named),
            partitions=tuple(content.partitions),
            between=ports(graph, tuple(sorted(between))),
        )

    @staticmethod
    def _reasons(graph: Graph, delegation: Delegation) -> dict[int, str]:
        """Position to reason, for the file's operators that run on LiteRT."""
        return {
            origin: reason for position, reason in delegation.reasons.items() for origin in graph.nodes[position].origin
        }

    def _operators(self, content: Content, delegation: Delegation, graph: Graph, left: str) -> tuple[Operator, ...]:
        """Every operator of the subgraph: its place, partition and reason.

        Args:
            left: why LiteRT runs operators without a partition; "" where they are folded.
        """
        partition_of = {
            position: number for number, partition in enumerate(content.partitions) for position in partition.nodes
        }
        reasons = self._reasons(graph, delegation)
        operators = []
        for index, node in enumerate(self._original.nodes):
            partition = partition_of.get(index, NO_PARTITION)
            reason = reasons.get(index, left if partition == NO_PARTITION else "")
            place = LITERT if reason else "folded" if partition == NO_PARTITION else content.partitions[partition].place
            kernel = content.kernel_of.get(index, NO_KERNEL)
            operators.append(
                Operator(
                    index=index,
                    op=node.op,
                    place=place,
                    reason=reason,
                    kernel=kernel,
                    partition=partition,
                    code=code(node),
                    execution=content.executions.get(index, ""),
                )
            )
        return tuple(operators)


class RefusedError(Exception):
    """Nodes that cannot be delegated after all, and why: position to sentence."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(*reasons.values())
        self.reasons = dict(reasons)


def _model_bytes(graph: Graph, nodes: Sequence[int]) -> int:
    """Bytes of inputs, outputs and constants of nodes that become a model of their own."""
    constants = {i for at in nodes for i in graph.nodes[at].inputs if i != ABSENT and graph.tensors[i].is_constant}
    return sum(tensor_bytes(graph.tensors[index]) for index in constants.union(*borders(graph, nodes)))


def origins_of(graph: Graph, nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(chain.from_iterable(graph.nodes[position].origin for position in nodes))))


@dataclass(frozen=True, slots=True)
class CutNodes:
    """Operators as a model of their own.

    Attributes:
        content: the .tflite file.
        inputs, outputs: tensors that they read from and write for other operators.
        variables: (tensor of the whole model, tensor of this one) pairs of the variables that they update.
    """

    content: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    variables: tuple[tuple[int, int], ...]


def cut_nodes(content: bytes, number: int, nodes: tuple[int, ...], shapes: Mapping[int, Shape]) -> CutNodes:
    """Operators of subgraph `number` as a model of their own.

    Args:
        content: the .tflite file.
        nodes: positions of the operators.
        shapes: by index, of the tensors that they read.
    Raises:
        CompileError: the operators depend on other parts of the model.
    """
    graph = read(content).graphs[number]
    read_here, outputs = borders(graph, nodes)
    chosen = [graph.nodes[position] for position in nodes]
    tensors = list(graph.tensors)
    for index in read_here:
        tensors[index] = replace(tensors[index], shape=shapes[index])
    variables = _variables(graph, chosen)
    inputs = tuple(index for index in read_here if index not in variables)
    partition = Cutter(content).partition(replace(graph, tensors=tuple(tensors)), number, chosen, inputs, outputs)
    made = read(partition).graphs[0]
    return CutNodes(partition, inputs, outputs, tuple(zip(variables, _variables(made, made.nodes), strict=True)))


def _variables(graph: Graph, nodes: Iterable[Node]) -> tuple[int, ...]:
    """The variable tensors of these nodes, in the order of their inputs."""
    read_here = dict.fromkeys(index for node in nodes for index in node.inputs if index != ABSENT)
    return tuple(index for index in read_here if graph.tensors[index].is_variable)
