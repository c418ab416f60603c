"""Programs of graphs that are compiled in part: partitions for the target, and LiteRT for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from xxhash import xxh3_128_hexdigest

from jitdelegate import passes
from jitdelegate.cache.key import Key
from jitdelegate.compiler.codegen import Origins, target_program
from jitdelegate.compiler.program_metadata import as_in_file, code, ports
from jitdelegate.compiler.trace import Trace
from jitdelegate.errors import CompileError
from jitdelegate.ir.graph import ABSENT, Graph, Model, Node
from jitdelegate.ops.call import Shape
from jitdelegate.options import Options
from jitdelegate.passes.cost import BESIDE, Rates, litert_seconds
from jitdelegate.passes.delegation import Delegation, delegate, names_others, needs_host
from jitdelegate.passes.inline_subgraphs import OPERATORS as CONTROL_FLOW
from jitdelegate.passes.partition import borders, extract
from jitdelegate.program.layout import aligned
from jitdelegate.program.program import NO_KERNEL, NO_PARTITION, ZEROS, Kernel, Operator, Partition, Program, State
from jitdelegate.program.write import write
from jitdelegate.targets.find import target_named
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.read import read

LITERT = "litert"
NOTHING_ELSE = "Nothing is compiled that it is needed for."
MOST_CROSSING = 0.002
"""The share of a run that may go into crossings between models of LiteRT's and compiled code; above it LiteRT's own
interpreter calls the code, which is a matter of a few hundred nanoseconds."""


@dataclass
class Content:
    """The files of the partitions, one after another at page boundaries, and what is known of them."""

    data: bytearray = field(default_factory=bytearray)
    partitions: list[Partition] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    kernel_of: dict[int, int] = field(default_factory=dict)

    def add(self, place: str, nodes: Iterable[int], graph_ports: tuple[tuple[int, ...], ...], content: bytes) -> None:
        """One partition more, which computes the operators at these positions."""
        self.data.extend(bytes(aligned(len(self.data)) - len(self.data)))
        inputs, outputs = graph_ports
        self.partitions.append(
            Partition(
                place=place,
                nodes=tuple(sorted(set(nodes))),
                inputs=inputs,
                outputs=outputs,
                offset=len(self.data),
                nbytes=len(content),
                hash=xxh3_128_hexdigest(content) if place == LITERT else "",
            )
        )
        self.data.extend(content)

    def add_compiled(self, program: Program, nodes: Sequence[int], origins: Origins) -> None:
        """A compiled partition."""
        start = len(self.kernels)
        self.kernel_of |= {position: start + kernel for kernel, each in enumerate(origins) for position in each}
        self.kernels += program.kernels
        self.states += [state.altered(initial=ZEROS) for state in program.states]  # the partition has their values
        inputs, outputs = (tuple(port.index for port in side) for side in (program.inputs, program.outputs))
        self.add(program.target, nodes, (inputs, outputs), write(program))


class PartitionedModel:
    """Makes the programs of one model's subgraph for one target.

    Attributes:
        reasons: (position of the operator, sentence) pairs of what is not delegated.
        needs_host: why `cut` gave nothing although something is delegated; "" else.
    """

    def __init__(self, content: bytes, model: Model, options: Options, key: Key, trace: Trace) -> None:
        """
        Args:
            content: the .tflite file.
            model: as it was read.
            key: says which subgraph and which target.
            trace: receives the graphs.
        """
        self._bytes = content
        self._model = model
        self._options = options
        self._key = key
        self._trace = trace
        self._target = target_named(key.part("target"))
        self._number = key.subgraph
        self._original = model.graphs[self._number]
        self.reasons: list[tuple[int, str]] = []
        self.needs_host = ""

    def cut(self, graph: Graph) -> Program | None:
        """A program that gives LiteRT models of their own for what it runs; None where these would have to know of
        each other, or nothing is delegated.

        Args:
            graph: the subgraph as `passes.enter` and `passes.FOLD` leave it.
        """
        return self._until_compiled(graph, lambda delegation: self._cut(graph, delegation), {})

    def _may_compile_inside(self, graph: Graph) -> bool:
        """Whether loops and branches are left to LiteRT's interpreter, which offers what they run to the delegate."""
        return self._can_host and any(node.op in CONTROL_FLOW for node in graph.nodes)

    def _until_compiled(
        self, graph: Graph, make: Callable[[Delegation], Program | None], refused: dict[int, str]
    ) -> Program | None:
        """What `make` makes of the graph, without the nodes in `refused` and those whose code cannot be generated."""
        while True:
            delegation = delegate(self._model, graph, self._number, self._options, self._rates, refused)
            self.reasons = list(self._reasons(graph, delegation).items())
            try:
                return make(delegation)
            except RefusedError as error:
                refused |= dict.fromkeys(error.nodes, error.reason)

    def _cut(self, graph: Graph, delegation: Delegation) -> Program | None:
        if not delegation.delegated:
            self.needs_host = "Subgraphs that it runs may be compiled." if self._may_compile_inside(graph) else ""
            return None
        reasons = (needs_host(graph, delegation), self._renumbered(graph), self._prefers_host(graph, delegation))
        self.needs_host = next(filter(None, reasons), "")
        if self.needs_host:
            return None
        content, cutter = Content(), Cutter(self._bytes)
        for subset in delegation.subsets:
            inputs, outputs = borders(graph, subset.nodes)
            if subset.delegated:
                self._compile(content, graph, subset.nodes, inputs, outputs)
                continue
            nodes = [graph.nodes[position] for position in subset.nodes]
            try:
                partition = cutter.partition(graph, self._number, nodes, inputs, outputs)
            except CompileError as error:
                self.needs_host = str(error)
                return None
            content.add(LITERT, origins_of(graph, subset.nodes), (inputs, outputs), partition)
        return self._program("partitions", content, delegation, graph)

    @property
    def _can_host(self) -> bool:
        """Whether LiteRT's interpreter may take CPU code in."""
        return self._target.runs_in_litert(self._key)

    @property
    def _rates(self) -> Rates:
        return self._target.rates("delegate" if self._can_host else "partitions")

    def _renumbered(self, graph: Graph) -> str:
        """Which output is not what the file says, but what a variable holds after the run: partitions and callers would
        know it by two numbers; "" where there is none."""
        pairs = zip(self._original.outputs, graph.returned, strict=True)
        moved = next((old for old, new in pairs if old != new), None)
        return "" if moved is None else f"The output '{self._original.tensors[moved].name}' is a variable."

    def _prefers_host(self, graph: Graph, delegation: Delegation) -> str:
        """Why LiteRT's interpreter is the better place, where it may take compiled code in; "" where it is not."""
        if all(subset.delegated for subset in delegation.subsets):
            return ""  # nothing crosses
        if any(names_others(node) for node in self._original.nodes):
            return ""  # there, what is inlined here would be LiteRT's
        crossings = BESIDE.crossing * len(delegation.delegated)
        share = crossings / sum(litert_seconds(graph, node) for node in graph.nodes)
        return f"Crossings would take {share:.0%} of a run." if self._can_host and share > MOST_CROSSING else ""

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
            positions: of the .tflite operators, where these are more than those of `nodes`.
        Raises:
            RefusedError: code for these nodes would take too long to compile.
        """
        part = extract(graph, nodes, inputs, outputs)
        trace = self._trace.partition(positions or origins_of(graph, nodes))
        trace.graph("extract", part)
        try:
            lowered = passes.run(part, trace.graph, passes.REWRITE)
            program, origins = target_program(lowered, self._options, self._key, trace)
        except CompileError as error:
            raise RefusedError(nodes, str(error)) from error
        program.key = ()
        program.outputs = as_in_file(program.outputs, part, part.returned)
        content.add_compiled(program, positions or origins_of(graph, nodes), origins)

    def _program(self, loader: str, content: Content, delegation: Delegation, graph: Graph) -> Program:
        between = {index for partition in content.partitions for index in (*partition.inputs, *partition.outputs)}
        between -= {*graph.given, *graph.returned}
        return Program(
            key=tuple(self._key.parts),
            target=self._key.part("target"),
            features=self._key.part("features"),
            loader=loader,
            inputs=ports(graph, graph.given),
            outputs=ports(graph, graph.returned),
            states=tuple(content.states) if loader == "partitions" else (),
            operators=self._operators(content, delegation, graph, NOTHING_ELSE if loader == "delegate" else ""),
            kernels=tuple(content.kernels),
            weights=bytes(content.data),
            partitions=tuple(content.partitions),
            between=ports(graph, tuple(sorted(between))),
        )

    @staticmethod
    def _reasons(graph: Graph, delegation: Delegation) -> dict[int, str]:
        """Per position of the file's operators that LiteRT runs, why."""
        return {
            origin: reason for position, reason in delegation.reasons.items() for origin in graph.nodes[position].origin
        }

    def _operators(self, content: Content, delegation: Delegation, graph: Graph, left: str) -> tuple[Operator, ...]:
        """Every operator of the subgraph: where it runs, in which partition, and why LiteRT has it.

        Args:
            left: why LiteRT runs those that are in no partition; "" where nobody does.
        """
        partition_of = {
            position: number for number, partition in enumerate(content.partitions) for position in partition.nodes
        }
        reasons = self._reasons(graph, delegation)
        found = []
        for index, node in enumerate(self._original.nodes):
            partition = partition_of.get(index, NO_PARTITION)
            reason = reasons.get(index, left if partition == NO_PARTITION else "")
            place = LITERT if reason else "folded" if partition == NO_PARTITION else content.partitions[partition].place
            kernel = content.kernel_of.get(index, NO_KERNEL)
            found.append(
                Operator(
                    index=index,
                    op=node.op,
                    place=place,
                    reason=reason,
                    kernel=kernel,
                    partition=partition,
                    code=code(node),
                )
            )
        return tuple(found)


class RefusedError(Exception):
    """Nodes that turned out to be none that can be delegated, and why."""

    def __init__(self, nodes: Iterable[int], reason: str) -> None:
        super().__init__(reason)
        self.nodes = tuple(nodes)
        self.reason = reason


def origins_of(graph: Graph, nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(chain.from_iterable(graph.nodes[position].origin for position in nodes))))


@dataclass(frozen=True, slots=True)
class CutNodes:
    """Operators as a model of their own.

    Attributes:
        content: the .tflite file.
        inputs, outputs: tensors that they read from others and write for others.
        variables: (tensor of the whole model, of this one) pairs of the variables that they update.
    """

    content: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    variables: tuple[tuple[int, int], ...]


def cut_nodes(content: bytes, number: int, nodes: tuple[int, ...], shapes: Mapping[int, Shape]) -> CutNodes:
    """Operators of subgraph `number` as a model of their own.

    Args:
        content: the .tflite file.
        nodes: their positions.
        shapes: of what they read.
    Raises:
        CompileError: they need more of the model than themselves.
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
    """The variable tensors of these nodes in the order in which they name them."""
    read_here = dict.fromkeys(index for node in nodes for index in node.inputs if index != ABSENT)
    return tuple(index for index in read_here if graph.tensors[index].is_variable)
