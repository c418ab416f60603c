"""Cost model: estimated seconds that delegating a partition saves. Nothing can be measured while compiling."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
LEAST_ELEMENTS = 1024
"""Of a weight that converters quantize where activations stay floats."""
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
    return CALL + _kernel(graph, node)[0]


def _kernel(graph: Graph, node: Node, asked: str = "") -> tuple[float, OperatorRate]:
    """Estimated seconds of the node's kernel on LiteRT, and its rates; those of any operator for an unknown one."""
    call = Call(graph, node)
    own = call.quantization
    way = own or _quantization(call, asked)
    multiplies, moved = INTEGER_MULTIPLIES if way else MULTIPLIES, node_bytes(graph, node)
    moved -= 0 if way == own else _saved_bytes(call, way)
    rate = operator_rate(find(node), way)
    return max(node_work(graph, node) / multiplies, moved / BYTES) * rate.slowdown, rate


def _quantization(call: Call, asked: str) -> str:
    """How a node that is not quantized would be if the model were quantized as `asked`, where it has float32 data."""
    op = find(call.node)
    if not asked or op is None or FLOAT not in [each.dtype for each in call.outputs]:
        return ""
    return asked if (op.quantized if asked == "integer" else quantized_constants(call, asked)) else ""


def quantized_constants(call: Call, asked: str) -> list[int]:
    """Positions of the constant operands that a converter quantizes.

    Args:
        asked: "integer", matrices of operators that take quantized data; or "hybrid", weights.
    """
    op = find(call.node)
    constants = [k for k in range(call.count) if call.given(k) and call.tensor(k).is_constant] if op else []
    if op and asked == "hybrid":
        return [k for k in constants if k in op.weights and call.tensor(k).size >= LEAST_ELEMENTS]
    return [k for k in constants if op and op.quantized and len(call.shape(k)) >= 2]


def _saved_bytes(call: Call, way: str) -> int:
    """Bytes that a node with float32 data reads and writes less if it is quantized to 8 bits in this way."""
    constants = map(call.tensor, quantized_constants(call, way))
    tensors = constants if way == "hybrid" else (*call.operands, *call.outputs)
    return sum(tensor_bytes(each) * 3 // 4 for each in tensors if each.dtype == FLOAT)


def compiled_seconds(graph: Graph, nodes: Collection[int], rates: Rates, asked: str = "") -> float:
    """Estimated seconds of one run of these nodes as one compiled partition, on one thread.

    Args:
        asked: "integer" or "hybrid" is the estimate for the model that is quantized so; nodes that cannot be stay.
    """
    kernels = sum((1 - share) * seconds for seconds, share in _kernels(graph, nodes, rates, asked))
    return kernels + _border_seconds(graph, nodes, rates)


def saved_seconds(graph: Graph, nodes: Collection[int], rates: Rates) -> float:
    """Seconds that one run saves if these nodes are one delegated partition; negative if the run takes longer."""
    gained = sum(CALL + share * seconds for seconds, share in _kernels(graph, nodes, rates))
    return gained - _border_seconds(graph, nodes, rates)


def _kernels(graph: Graph, nodes: Collection[int], rates: Rates, asked: str = "") -> Iterator[tuple[float, float]]:
    """For each node of a partition, its kernel's seconds on LiteRT, and the share of them that it saves."""
    chosen = [graph.nodes[position] for position in nodes]
    written, read = {i for node in chosen for i in node.outputs}, {i for node in chosen for i in node.inputs}
    for node in chosen:
        seconds, rate = _kernel(graph, node, asked)
        yield seconds, _share(node, rate, written, read, rates)


def _border_seconds(graph: Graph, nodes: Collection[int], rates: Rates) -> float:
    """Seconds that a run spends on entering and leaving a partition."""
    return rates.crossing + _moved_bytes(graph, nodes, rates) / rates.copied


def _share(node: Node, rate: OperatorRate, written: Collection[int], read: Collection[int], rates: Rates) -> float:
    """The share of its kernel's time that a node saves in a partition that writes and reads these tensors."""
    if rates.saved is not None:
        return rates.saved
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
    moves = rates.saved is not None or operator_rate(find(node), Call(graph, node).quantization).changes_layout
    return (*node.inputs, *node.outputs) if moves else ()
