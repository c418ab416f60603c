"""Work of kernels: the multiply-adds and the bytes that each needs at least, from the operators that it computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitdelegate.base.targets import BFLOAT16, EXACT, FLOAT16
from jitdelegate.commands.measurement.machine_speed import BYTES, WORDS
from jitdelegate.commands.measurement.profile import Node
from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.ir.graph import Node as Operator
from jitdelegate.ops import find
from jitdelegate.ops.call import Call
from jitdelegate.ops.pooling import Pooling
from jitdelegate.ops.registry import Op
from jitdelegate.ops.window_reduction import WindowReduction
from jitdelegate.passes.cost import node_work, tensor_bytes

READS_ROWS = frozenset({"GATHER", "EMBEDDING_LOOKUP", "GATHER_ND"})
"""Operators that read a few rows of a constant."""


@dataclass(frozen=True)
class KernelWork:
    """A kernel of a run.

    Attributes:
        kind: as `Node.kind`.
        number: in the order of the run, as benchmark's profile has it.
        seconds: in one run, with kernels before it that name no operator: copies, and steps towards its operators.
        work: multiply-adds by what is multiplied, one of `machine_speed.KINDS`.
        nbytes: of what it reads and writes, each tensor once; operands between its operators are not counted.
    """

    kind: str
    number: int
    seconds: float
    work: dict[str, int]
    nbytes: int


def kernel_work(nodes: Sequence[Node], graph: Graph, precision: str | None) -> list[KernelWork]:
    """The work of each kernel of a profiled run.

    Args:
        precision: the option, by which floats are multiplied.
    """
    floats = precision if precision in (BFLOAT16, FLOAT16) else EXACT
    found, before = list[KernelWork](), 0.0
    for number, node in enumerate(nodes):
        if node.operators:
            work = _work(node, graph, floats)
            found.append(KernelWork(node.kind, number, before + node.seconds, work, _bytes(node, graph)))
        before = 0.0 if node.operators else before + node.seconds
    return [*found, KernelWork(nodes[-1].kind, len(nodes) - 1, before, {}, 0)] if before else found


def _work(node: Node, graph: Graph, floats: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for operator in (graph.nodes[index] for index in node.operators):
        if _multiplies(operator):
            call = Call(graph, operator)
            integers = WORDS if call.tensor(0).dtype == WORDS else BYTES
            kind = integers if call.quantization else floats
            found[kind] = found.get(kind, 0) + node_work(graph, operator)
    return found


def _multiplies(operator: Operator) -> bool:
    """Whether an operator's work is products: operators that count it themselves, but for those that only add up."""
    op = find(operator)
    return op is not None and type(op).work is not Op.work and not isinstance(op, Pooling | WindowReduction)


def _bytes(node: Node, graph: Graph) -> int:
    own = {*node.operators}
    inside = [graph.nodes[index] for index in node.operators]
    written = {index for operator in inside for index in operator.outputs}
    read = {index for operator in inside for index in _read(operator, graph)} - written
    outside = {*graph.outputs}
    for position, operator in enumerate(graph.nodes):
        if position not in own:
            outside |= {*operator.inputs}
    return sum(tensor_bytes(graph.tensors[index]) for index in (*read, *written & outside))


def _read(operator: Operator, graph: Graph) -> Iterator[int]:
    for index in operator.inputs:
        if index != ABSENT and not (operator.op in READS_ROWS and graph.tensors[index].is_constant):
            yield index
