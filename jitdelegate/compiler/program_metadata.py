"""Program metadata: ports, states, signatures, and for every operator where it runs and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitdelegate.ir.forms import Window
from jitdelegate.ir.graph import Graph, Model, Node, Tensor
from jitdelegate.ops.call import Call
from jitdelegate.passes.running_subgraphs import running_subgraphs
from jitdelegate.passes.support import WHOLE_MODEL
from jitdelegate.program.program import (
    CUSTOM,
    NO_KERNEL,
    NO_TENSOR,
    ZEROS,
    IdleSubgraph,
    Operator,
    Port,
    Signature,
    State,
)
from jitdelegate.program.shared_pages import whole_bytes
from jitdelegate.tflite.options import BUILTIN_CODES

if TYPE_CHECKING:
    from jitdelegate.program.program import SharedPages

STATE_ALIGNMENT = 16
"""Alignment in bytes of a state's first value in the weights."""


def code(node: Node) -> int:
    """TFLite's number of a node's operator."""
    return CUSTOM if node.custom else BUILTIN_CODES[node.op]


def litert_operators(graph: Graph, reasons: Iterable[tuple[int, str]]) -> tuple[Operator, ...]:
    """Every operator, on LiteRT, with its own reason or else the model's.

    Args:
        reasons: (position of the operator or WHOLE_MODEL, sentence) pairs; the first for a position counts.
    """
    first: dict[int, str] = {}
    for position, reason in reasons:
        first.setdefault(position, reason)
    general = first.get(WHOLE_MODEL, "")
    return tuple(
        Operator(index=index, op=node.op, place="litert", reason=first.get(index, general), code=code(node))
        for index, node in enumerate(graph.nodes)
    )


def executions(folded: Graph, lowered: Graph) -> dict[int, str]:
    """By position in the file, how code for quantized operators computes; as `Operator.execution`."""
    summing = {position for node in lowered.nodes if _sums_integers(node) for position in node.origin}
    by_position = {}
    for node in folded.nodes:
        kind = Call(folded, node).quantization
        in_floats = kind == "hybrid" or folded.quantized.execution == "float_view"
        for position in node.origin if kind else ():
            in_integers = "dynamic" if kind == "hybrid" else "integer"
            by_position[position] = in_integers if position in summing or not in_floats else "float_view"
    return by_position


def _sums_integers(node: Node) -> bool:
    return isinstance(node.form, Window) and node.form.accumulator in ("int32", "int64")


def compiled_operators(
    graph: Graph, lowered: Graph, origins: Sequence[tuple[int, ...]], place: str, ways: Mapping[int, str]
) -> tuple[Operator, ...]:
    """Every operator of a compiled graph: in a kernel, or "folded" if nothing is computed at run time.

    Args:
        graph: as it was read.
        lowered: the compiled graph; an operator that is only a View has no kernel.
        origins: per kernel, the positions of the operators that it computes.
        place: name of the target.
        ways: as `executions` finds them.
    """
    kernels = {position: kernel for kernel, origin in enumerate(origins) for position in origin}
    present = {position for node in lowered.nodes for position in node.origin}
    return tuple(
        Operator(
            index=index,
            op=node.op,
            place=place if index in present else "folded",
            kernel=kernels.get(index, NO_KERNEL),
            code=code(node),
            execution=ways.get(index, "") if index in present else "",
        )
        for index, node in enumerate(graph.nodes)
    )


def ports(graph: Graph, indices: tuple[int, ...]) -> tuple[Port, ...]:
    """Inputs or outputs as a program describes them."""
    return tuple(_port(graph.tensors[index], index) for index in indices)


def as_in_file(compiled: Sequence[Port], graph: Graph, indices: Sequence[int]) -> tuple[Port, ...]:
    """The ports with the file's tensor indices and names, by which signatures and callers know them.

    Args:
        compiled: inputs or outputs of a compiled graph, in which an output may be a new tensor.
        graph: as it was read.
        indices: its inputs or outputs, one per port.
    """
    pairs = zip(compiled, indices, strict=True)
    return tuple(port.altered(index=index, name=graph.tensors[index].name) for port, index in pairs)


def _port(tensor: Tensor, index: int) -> Port:
    quant = tensor.quant
    return Port(
        name=tensor.name,
        index=index,
        shape=tensor.shape,
        shape_signature=tensor.shape_signature or tensor.shape,
        dtype=tensor.dtype,
        nbytes=_bytes(tensor),
        scales=tuple(quant.scales) if quant else (),
        zero_points=tuple(quant.zero_points) if quant else (),
        axis=quant.axis if quant else 0,
    )


def _bytes(tensor: Tensor) -> int:
    """Bytes of the dense tensor; 0 for types that numpy lacks, whose memory only LiteRT knows."""
    try:
        return tensor.size * np.dtype(tensor.dtype).itemsize
    except TypeError:
        return 0


def states(graph: Graph, weights: bytearray, shared: SharedPages = ()) -> tuple[State, ...]:
    """The states as a program describes them; appends their first values to its weights, which lack `shared` pages."""
    found = []
    for state in graph.states:
        initial = ZEROS
        if state.initial is not None and any(state.initial.tobytes()):
            weights.extend(bytes(-len(weights) % STATE_ALIGNMENT))
            initial = whole_bytes(weights, shared)
            weights.extend(np.ascontiguousarray(state.initial).tobytes())
        tensor = graph.tensors[state.before]
        found.append(
            State(
                name=tensor.name,
                nbytes=_bytes(tensor),
                initial=initial,
                is_resource=int(state.is_resource),
                index=NO_TENSOR if state.is_resource else state.before,
                shape=tensor.shape,
                dtype=tensor.dtype,
            )
        )
    return tuple(found)


def signatures(model: Model) -> tuple[Signature, ...]:
    """The model's signatures, with arguments in the order of the subgraph's inputs and outputs."""
    return tuple(
        Signature(
            key=signature.key,
            graph=signature.graph,
            inputs=_in_order(signature.inputs, model.graphs[signature.graph].inputs),
            outputs=_in_order(signature.outputs, model.graphs[signature.graph].outputs),
        )
        for signature in model.signatures
    )


def _in_order(arguments: Mapping[str, int], tensors: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Names with their tensors, in the order of `tensors`; those of others follow, in alphabetical order."""
    positions = {index: position for position, index in reversed([*enumerate(tensors)])}
    return tuple(sorted(arguments.items(), key=lambda pair: (positions.get(pair[1], len(positions)), pair[0])))


def idle_subgraphs(model: Model) -> tuple[IdleSubgraph, ...]:
    """The subgraphs that never run, though LiteRT's interpreter offers them to a delegate."""
    running = running_subgraphs(model)
    return tuple(
        IdleSubgraph(
            number=number,
            num_tensors=len(graph.tensors),
            num_nodes=len(graph.nodes),
            ports=ports(graph, (*graph.inputs, *graph.outputs)),
            codes=tuple(map(code, graph.nodes)),
        )
        for number, graph in enumerate(model.graphs)
        if number not in running
    )
