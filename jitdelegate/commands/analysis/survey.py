"""The facts of an analysis, from the verdict and the measures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.facts import (
    Analysis,
    Costs,
    NodeFact,
    Partition,
    PlaceTotals,
    Quantizing,
    SubgraphFacts,
    TensorFact,
    Totals,
)
from jitdelegate.commands.analysis.headline import headline, refusal
from jitdelegate.commands.analysis.measure import Measure
from jitdelegate.commands.analysis.suggestions import Subject, suggestions
from jitdelegate.commands.analysis.verdict import Entry, Verdict, verdict, verdict_without_litert
from jitdelegate.errors import JitDelegateError
from jitdelegate.ir.graph import ABSENT, Node, Tensor
from jitdelegate.program.program import LITERT, NO_KERNEL, NO_PARTITION, Operator
from jitdelegate.program.write import parts
from jitdelegate.targets import target_named
from jitdelegate.targets.target import Device

FOLDED = "folded"
HOW = {
    "partitions": "compiled in partitions; LiteRT runs the other partitions as models of their own",
    "delegate": "LiteRT's interpreter runs it, with compiled partitions inside",
    "none": "LiteRT runs it whole",
}
"""A program's loader in words; any other is a target's own, for models that are COMPILED_WHOLE."""
COMPILED_WHOLE = "compiled whole"


def analyze(path: str, options: DelegateOptions, device: Device | None = None) -> Analysis:
    """All facts about a model, with suggestions.

    Args:
        options: as for `load`; with `serialization_dir=False` no cache is used.
        device: a device that this machine may lack; None for this machine's.
    Raises:
        ModelError, DeviceError, DelegationError: as `load`.
    """
    return _analysis(path, verdict(path, options, device), options, _asked(options, device))


def refused(path: str, options: DelegateOptions, error: str, device: Device | None = None) -> Analysis:
    """What there is to say about a model that `analyze` refuses: where its operators would run, if it can be read.

    Args:
        error: why it is refused.
    """
    try:
        if device is None:
            return _analysis(path, verdict_without_litert(path, options), options, options.target, error)
    except (JitDelegateError, OSError, MemoryError):
        pass  # the error says more
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    return Analysis(path, refusal(error), error, size, "", "", _asked(options, device), (), (), ())


def _asked(options: DelegateOptions, device: Device | None) -> str:
    return f"{device.target.name}:{device.kind}" if device else options.target


def _analysis(path: str, decided: Verdict, options: DelegateOptions, asked: str, error: str = "") -> Analysis:
    measures = [Measure.of(decided.model, entry.number, hosted=entry.is_hosted) for entry in decided.entries]
    subgraphs = [
        _subgraph(decided, entry, measure, error) for entry, measure in zip(decided.entries, measures, strict=True)
    ]
    subjects = [Subject(facts, measure, options) for facts, measure in zip(subgraphs, measures, strict=True)]
    return Analysis(
        model=path,
        headline=refusal(error) if error else subgraphs[0].headline,
        error=error,
        bytes=len(decided.source.content()),
        fingerprint=decided.source.fingerprint(),
        description=decided.model.description,
        asked=asked,
        notes=decided.notes,
        subgraphs=tuple(subgraphs),
        suggestions=tuple(suggestion for subject in subjects for suggestion in suggestions(subject)),
    )


def _subgraph(decided: Verdict, entry: Entry, measure: Measure, error: str) -> SubgraphFacts:
    graph = measure.original
    tensors = _Tensors(entry, measure)
    nodes = tuple(_node(entry, operator, measure, tensors) for operator in entry.operators)
    partitions = tuple(_partitions(entry, nodes, measure))
    totals = _totals(nodes, partitions, _crossing_bytes(entry, nodes))
    shape_inputs = tuple(entry.program.inputs[position].name for position in entry.program.shape_inputs)
    told = headline(nodes, totals, target_named(entry.target).title, shape_inputs)
    return SubgraphFacts(
        index=entry.number,
        name=graph.name,
        headline=f"If it ran: {told[0].lower()}{told[1:]}" if error else told,
        entry=entry.kind,
        signatures=tuple(signature.key for signature in decided.model.signatures if signature.graph == entry.number),
        target=entry.target,
        features="" if entry.target == LITERT else entry.program.features,
        loader=entry.loader,
        how=HOW.get(entry.loader, COMPILED_WHOLE),
        shape_inputs=shape_inputs,
        inputs=tuple(tensors.fact(index) for index in graph.inputs),
        outputs=tuple(tensors.fact(index) for index in graph.outputs),
        totals=totals,
        costs=_costs(entry, partitions, measure),
        quantizing=tuple(_quantizing(entry, partitions, measure)),
        partitions=partitions,
        nodes=nodes,
    )


def _costs(entry: Entry, partitions: Sequence[Partition], measure: Measure) -> Costs:
    program = entry.program
    return Costs(
        compile_seconds=entry.compile_seconds,
        entry_bytes=sum(map(len, parts(program))),
        code_bytes=len(program.code),
        weights_bytes=len(program.weights),
        arena_bytes=program.arena_bytes,
        scratch_bytes=program.scratch_bytes,
        run_seconds_estimate=_run_seconds(entry, partitions, measure),
    )


def _run_seconds(entry: Entry, partitions: Sequence[Partition], measure: Measure, asked: str = "") -> float | None:
    if entry.loader == "none":
        return None
    return measure.run_seconds([(each.place, each.nodes) for each in partitions], entry.program, asked)


def _quantizing(entry: Entry, partitions: Sequence[Partition], measure: Measure) -> Iterable[Quantizing]:
    for kind, asked in (("integer", "integer"), ("dynamic", "hybrid")):
        before, after = measure.float_weights(asked)
        if before:
            yield Quantizing(kind, before, after, _run_seconds(entry, partitions, measure, asked))


class _Tensors:
    """The tensors of a subgraph, with the compiler's inferred shapes."""

    def __init__(self, entry: Entry, measure: Measure) -> None:
        ports = (*entry.program.between, *entry.program.inputs, *entry.program.outputs)
        self._shapes = {port.index: port.shape for port in ports}
        self._graph, self._folded = measure.original, measure.folded

    def fact(self, index: int) -> TensorFact:
        tensor: Tensor = self._graph.tensors[index]
        return TensorFact(
            index=index,
            name=tensor.name,
            shape=self._shapes.get(index, self._folded.tensors[index].shape),
            shape_signature=tensor.shape_signature or tensor.shape,
            type=tensor.dtype,
            quantized=tensor.is_quantized,
            constant=tensor.is_constant,
            variable=tensor.is_variable,
        )

    def facts(self, indices: Iterable[int]) -> tuple[TensorFact | None, ...]:
        return tuple(None if index == ABSENT else self.fact(index) for index in indices)


def _node(entry: Entry, operator: Operator, measure: Measure, tensors: _Tensors) -> NodeFact:
    node: Node = measure.original.nodes[operator.index]
    kernels = entry.program.kernels
    return NodeFact(
        index=operator.index,
        op=operator.op,
        code=operator.code,
        version=node.version,
        custom=node.custom,
        delegated=operator.place != LITERT,
        place=operator.place,
        reason=operator.reason,
        partition=_partition_number(entry, operator),
        kernel=None if operator.kernel == NO_KERNEL else kernels[operator.kernel].form,
        execution=operator.execution,
        multiply_adds=measure.work(operator.index),
        bytes=measure.bytes(operator.index),
        inputs=tensors.facts(node.inputs),
        outputs=tuple(tensors.fact(index) for index in node.outputs),
    )


def _partition_number(entry: Entry, operator: Operator) -> int | None:
    """Number of an operator's partition; a program that is compiled whole is one partition."""
    if operator.partition != NO_PARTITION:
        return operator.partition
    whole = entry.loader != "none" and not entry.program.partitions
    return 0 if whole and operator.place != FOLDED else None


def _partitions(entry: Entry, nodes: Sequence[NodeFact], measure: Measure) -> Iterable[Partition]:
    if entry.loader == "none":
        return
    sizes = _sizes(entry)
    for number, (place, inputs, outputs) in enumerate(_borders(entry)):
        own = [node for node in nodes if node.partition == number]
        positions = [node.index for node in own]
        yield Partition(
            index=number,
            place=place,
            nodes=tuple(positions),
            inputs=inputs,
            outputs=outputs,
            multiply_adds=_work(own),
            bytes=sum(node.bytes for node in own),
            crossing_bytes=sum(sizes.get(index, 0) for index in {*inputs, *outputs}),
            saved_seconds_estimate=measure.saved_seconds(positions, place, entry.loader, entry.program.features),
        )


def _borders(entry: Entry) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """(place, inputs, outputs) of each partition."""
    program = entry.program
    if program.partitions:
        return [(partition.place, partition.inputs, partition.outputs) for partition in program.partitions]
    inputs, outputs = (tuple(port.index for port in side) for side in (program.inputs, program.outputs))
    return [(program.target, inputs, outputs)]


def _sizes(entry: Entry) -> Mapping[int, int]:
    """Bytes of the tensors at the borders of partitions."""
    program = entry.program
    return {port.index: port.nbytes for port in (*program.between, *program.inputs, *program.outputs)}


def _crossing_bytes(entry: Entry, nodes: Sequence[NodeFact]) -> int:
    """Bytes that partitions read from each other, and, inside LiteRT's interpreter, that LiteRT's operators read."""
    if not entry.program.partitions or entry.loader == "none":
        return 0
    sizes, given = _sizes(entry), {port.index for port in entry.program.inputs}
    total = sum(
        sizes.get(index, 0)
        for partition in entry.program.partitions
        for index in partition.inputs
        if index not in given
    )
    if entry.loader == "delegate":
        left = [node for node in nodes if node.place == LITERT]
        read = {tensor.index for node in left for tensor in node.inputs if tensor is not None}
        written = {index for partition in entry.program.partitions for index in partition.outputs}
        total += sum(sizes.get(index, 0) for index in read & written)
    return total


def _totals(nodes: Sequence[NodeFact], partitions: Sequence[Partition], crossing: int) -> Totals:
    places = {place: _place_totals(place, nodes, partitions) for place in dict.fromkeys(node.place for node in nodes)}
    running = sum(each.multiply_adds for place, each in places.items() if place != FOLDED)
    compiled = sum(each.multiply_adds for place, each in places.items() if place not in (FOLDED, LITERT))
    integers = _work(node for node in nodes if node.execution in ("integer", "dynamic"))
    saved = [
        partition.saved_seconds_estimate for partition in partitions if partition.saved_seconds_estimate is not None
    ]
    return Totals(
        operators=len(nodes),
        delegated=sum(node.delegated for node in nodes),
        folded=places[FOLDED].operators if FOLDED in places else 0,
        litert=places[LITERT].operators if LITERT in places else 0,
        places=places,
        multiply_adds=running,
        unknown_work=sum(node.multiply_adds is None for node in nodes if node.place != FOLDED),
        share_of_work_delegated=compiled / running if running else None,
        share_of_work_in_integers=integers / running if running else None,
        crossing_bytes=crossing,
        saved_seconds_estimate=sum(saved) if saved else None,
    )


def _place_totals(place: str, nodes: Sequence[NodeFact], partitions: Sequence[Partition]) -> PlaceTotals:
    own = [node for node in nodes if node.place == place]
    return PlaceTotals(
        operators=len(own),
        partitions=sum(partition.place == place for partition in partitions),
        multiply_adds=_work(own),
        bytes=sum(node.bytes for node in own),
    )


def _work(nodes: Iterable[NodeFact]) -> int:
    return sum(node.multiply_adds or 0 for node in nodes)
