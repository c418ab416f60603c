"""Generates the program of a lowered graph: the graph itself is the code, its constants are the weights."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.faults import Faults
from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import ABSENT, Graph, Tensor
from jitdelegate.program.program import Kernel
from jitdelegate.targets.reference.evaluate import run_node
from jitdelegate.targets.reference.serialize import serialize
from jitdelegate.targets.target import Generated


def generate(graph: Graph, loader: str) -> Generated:
    """The program of a graph whose nodes all carry a form; equal graphs give equal bytes.

    Raises:
        CompileError: nodes cannot be evaluated; has the reasons of all.
    """
    _try_out(graph)
    code, weights = serialize(graph)
    nodes = [node for node in graph.nodes if not isinstance(node.form, View)]
    kernels = [
        Kernel(name=f"{node.op.lower()}_{number}", form=type(node.form).__name__, chunks=1)
        for number, node in enumerate(nodes)
    ]
    return Generated(
        loader=loader,
        code=code,
        weights=weights,
        entries=(),
        kernels=tuple(kernels),
        origins=tuple(node.origin for node in nodes),
        arena_bytes=0,
    )


def _try_out(graph: Graph) -> None:
    """Evaluate every node once, of zeros: what fails later fails runs."""
    faults = Faults()
    for node in graph.nodes:
        (output,) = node.outputs
        with faults.of(node.origin):
            operands = [None if index == ABSENT else _value(graph.tensors[index]) for index in node.inputs]
            run_node(node, operands, graph.tensors[output].shape)
    faults.settle()


def _value(tensor: Tensor) -> np.ndarray:
    return np.zeros(tensor.shape, tensor.dtype) if tensor.data is None else tensor.data
