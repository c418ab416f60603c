"""One-op graphs through LiteRT's builtin kernels."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.ops import find
from jitdelegate.tflite.write import ModelBuilder


def states_of(graph: Graph) -> list[int]:
    """Inputs that are variables to LiteRT, which their nodes update; the last outputs are their new values.

    A basic LSTM takes inputs that are no variables as well, and then has no further outputs.
    """
    pairs = [(node, find(node)) for node in graph.nodes if node.attrs.get("kernel_type") != "BASIC"]
    return [node.inputs[operand] for node, op in pairs if op for operand in op.updates(node)]


def model_of(graph: Graph) -> bytes:
    """The graph as a .tflite file."""
    builder, states = ModelBuilder(), states_of(graph)
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is not None:
            builder.constant(tensor.data, name=tensor.name)
        elif index in states:
            builder.variable(tensor.shape, tensor.dtype, name=tensor.name)
        elif index in graph.inputs:
            builder.input(tensor.shape, tensor.dtype, name=tensor.name)
        else:
            builder.tensor(tensor.shape, tensor.dtype, name=tensor.name)
    for node in graph.nodes:
        operands = [None if index == ABSENT else index for index in node.inputs]
        outputs = node.outputs[: len(node.outputs) - len(states)]
        builder.node(node.op, operands, outputs, options=node.attrs, version=node.version)
    builder.output(*graph.outputs[: len(graph.outputs) - len(states)])
    return builder.finish()


def run_litert(content: bytes, feeds: list[np.ndarray]) -> np.ndarray:
    """The first output of LiteRT's interpreter without XNNPACK."""
    return all_outputs(content, feeds)[0]


def answers(graph: Graph, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """All outputs of a graph of one node, the new values of its states too."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=model_of(graph), experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for index, feed in zip(graph.inputs, feeds, strict=True):
        interpreter.set_tensor(index, feed)
    interpreter.invoke()
    outputs = graph.outputs[: len(graph.outputs) - len(states_of(graph))]
    return [interpreter.get_tensor(index) for index in (*outputs, *states_of(graph))]


def all_outputs(content: bytes, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """All outputs of LiteRT's interpreter without XNNPACK."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
