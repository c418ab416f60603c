"""Cost model: estimated seconds that delegating a partition saves. Nothing can be measured while compiling."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import inf, prod

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import Call
from jitdelegate.passes.operator_rates import OperatorRate, operator_rate
from jitdelegate.passes.partition import borders
from jitdelegate.tflite.constants import bits


@dataclass(frozen=True, slots=True)
class Rates:
    """What compiled code saves and costs, compared with LiteRT on one CPU thread.

    Attributes:
        saved: share of LiteRT's time that compiled code saves; None for a CPU, where each operator has its own rate.
        crossing: seconds that one additional partition costs, whatever it computes.
        copied: bytes per second between a partition's own memory and memory outside it.
        slowdown: on a CPU, time of compiled code over that of which `operator_rates` has the saved shares.
    """

    saved: float | None
    crossing: float
    copied: float
    slowdown: float = 1.0

    def slowed(self, slowdown: float) -> Rates:
        """The rates of CPU code for an instruction set with this `slowdown`."""
        return replace(self, slowdown=slowdown)


INSIDE = Rates(saved=None, crossing=5e-7, copied=3e10)
"""CPU code that LiteRT's interpreter calls."""
BESIDE = Rates(saved=None, crossing=8e-6, copied=3e10)
"""CPU code between LiteRT models. Each additional compiled partition also adds a LiteRT model."""
WHOLE = Rates(saved=None, crossing=0.0, copied=inf)
"""CPU code for a whole graph: there are no crossings."""
ON_GPU = Rates(saved=0.9, crossing=3e-5, copied=1e10)
"""Estimated, not measured."""
MULTIPLIES = 6e10
"""Multiply-adds per second of LiteRT's kernels on one thread of a CPU with AVX-512. The medians of sixteen networks lie
within a fifth of the estimates from this number and the next two."""
INTEGER_MULTIPLIES = 1.8e11
"""The same of 8-bit integers, on a CPU with VNNI; also of hybrid operators, whose kernels multiply such integers. Seven
integer networks take 0.8 to 1.4 times their estimates."""
BYTES = 2e10
"""Bytes per second that LiteRT's kernels read and write."""
CALL = 4e-7
"""Seconds that LiteRT takes for one operator that computes nothing."""
FLOAT = "float32"
FUSED = 0.8
"""Share of its time that an operator saves when it is fused with the operator before it."""


def node_bytes(graph: Graph, node: Node) -> int:
    """Bytes that a node reads and writes."""
    indices = (*(index for index in node.inputs if index != ABSENT), *node.outputs)
    return sum(tensor_bytes(graph.tensors[index]) for index in indices)


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of the dense tensor; one per element for types without a fixed size."""
    return (prod(tensor.shape) * (bits(tensor.dtype) or 8) + 7) // 8


def node_work(graph: Graph, node: Node) -> int:
    """Multiply-adds of a node, or steps of similar cost; 0 if unknown."""
    op, call = find(node), Call(graph, node)
    return op.work(call) if op is not None and op.knows_shapes(call) else 0


def litert_seconds(graph: Graph, node: Node) -> float:
    """Estimated seconds of the node on LiteRT."""
    return CALL + _kernel_seconds(graph, node)


def _kernel_seconds(graph: Graph, node: Node, asked: str = "") -> float:
    way = _quantization(graph, node, asked)
    multiplies, moved = INTEGER_MULTIPLIES if way else MULTIPLIES, node_bytes(graph, node)
    if way != Call(graph, node).quantization:
        moved -= saved_bytes(graph, node, way)
    return max(node_work(graph, node) / multiplies, moved / BYTES) * _rate(graph, node, asked).slowdown


def _rate(graph: Graph, node: Node, asked: str = "") -> OperatorRate:
    """The node's rates; those of any operator for an unknown one."""
    return operator_rate(find(node), _quantization(graph, node, asked))


def _quantization(graph: Graph, node: Node, asked: str) -> str:
    """How the node is quantized, or would be if the model were quantized as `asked`, where it has float32 data."""
    op, call = find(node), Call(graph, node)
    if not asked or op is None or call.quantization or FLOAT not in [each.dtype for each in call.outputs]:
        return call.quantization
    if asked == "integer":
        return asked if op.quantized else ""
    return asked if any(call.given(k) and call.tensor(k).is_constant for k in op.weights) else ""


def saved_bytes(graph: Graph, node: Node, way: str) -> int:
    """Bytes that a node with float32 data reads and writes less if it is quantized to 8 bits in this way."""
    op, call = find(node), Call(graph, node)
    if way == "hybrid":
        tensors = [call.tensor(k) for k in op.weights if call.given(k) and call.tensor(k).is_constant] if op else []
    else:
        tensors = [*call.operands, *call.outputs]
    return sum(tensor_bytes(each) * 3 // 4 for each in tensors if each.dtype == FLOAT)


def compiled_seconds(graph: Graph, nodes: Collection[int], rates: Rates, asked: str = "") -> float:
    """Estimated seconds of one run of these nodes as one compiled partition, on one thread.

    Args:
        asked: "integer" or "hybrid" is the estimate for the model that is quantized so; nodes that cannot be stay.
    """
    chosen = [graph.nodes[position] for position in nodes]
    written, read = {i for node in chosen for i in node.outputs}, {i for node in chosen for i in node.inputs}
    kernels = sum(
        (1 - _share(graph, node, written, read, rates, asked)) * _kernel_seconds(graph, node, asked) for node in chosen
    )
    return kernels + rates.crossing + _moved_bytes(graph, nodes, rates) / rates.copied


def saved_seconds(graph: Graph, nodes: Collection[int], rates: Rates) -> float:
    """Seconds that one run saves if these nodes are one delegated partition; negative if the run takes longer."""
    chosen = [graph.nodes[position] for position in nodes]
    written, read = {i for node in chosen for i in node.outputs}, {i for node in chosen for i in node.inputs}
    gained = sum(CALL + _share(graph, node, written, read, rates) * _kernel_seconds(graph, node) for node in chosen)
    return gained - rates.crossing - _moved_bytes(graph, nodes, rates) / rates.copied


def _share(
    graph: Graph, node: Node, written: Collection[int], read: Collection[int], rates: Rates, asked: str = ""
) -> float:
    """The share of its kernel's time that a node saves in a partition that writes and reads these tensors."""
    if rates.saved is not None:
        return rates.saved
    rate = _rate(graph, node, asked)
    follows = any(index in written for index in node.inputs)
    if follows and rate.fuses:
        return _slowed(FUSED, rates)
    together = follows or any(index in read for index in node.outputs)
    return _slowed(rate.saved if together or rate.saved_alone is None else rate.saved_alone, rates)


def _slowed(saved: float, rates: Rates) -> float:
    return 1 - rates.slowdown * (1 - saved)


def _moved_bytes(graph: Graph, nodes: Collection[int], rates: Rates) -> int:
    """Bytes copied between a partition's own memory and memory outside; on a CPU, only tensors that change layout."""
    touched = {index for position in nodes for index in _laid_out(graph, graph.nodes[position], rates)}
    crossing = {index for side in borders(graph, tuple(nodes)) for index in side}
    return sum(tensor_bytes(graph.tensors[index]) for index in crossing & touched)


def _laid_out(graph: Graph, node: Node, rates: Rates) -> tuple[int, ...]:
    moves = rates.saved is not None or _rate(graph, node).changes_layout
    return (*node.inputs, *node.outputs) if moves else ()
