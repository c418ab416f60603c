"""A client in numpy for any model of elementwise operators, which is what the tests let the delegate claim."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient, DelegateKernel, Facts
from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate
from jitdelegate.ir.graph import Graph
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ADD": np.add,
    "MUL": np.multiply,
    "SUB": np.subtract,
    "LESS": np.less,
    "ABS": np.abs,
}


class NumpyClient(DelegateClient):
    """Claims operators by name.

    Attributes:
        opened: (subgraph, nodes) of each call of `kernel`.
        living: kernels that are open.
        warnings: what the delegate wanted to tell.
        failing: what a callback raises: "facts", "partitions", "kernel", "run" or "close" to the exception.
    """

    def __init__(self, content: bytes, claimed: Collection[str] = ("ADD", "MUL")) -> None:
        self.graphs = read(content).graphs
        self.num_subgraphs = len(self.graphs)
        self.claimed = claimed
        self.opened: list[tuple[int, tuple[int, ...]]] = []
        self.living: set[DelegateKernel] = set()
        self.warnings: list[str] = []
        self.failing: dict[str, BaseException] = {}

    def stumble(self, where: str) -> None:
        """Raise what was put there, once."""
        error = self.failing.pop(where, None)
        if error is not None:
            raise error

    def facts(self, subgraph: int) -> Facts:
        self.stumble("facts")
        graph = self.graphs[subgraph]
        tensors = [(index, tensor.name, tensor.dtype) for index, tensor in enumerate(graph.tensors)]
        nodes = [(index, node.inputs, node.outputs) for index, node in enumerate(graph.nodes)]
        return Facts(len(graph.tensors), len(graph.nodes), tensors, nodes)

    def partitions(self, subgraph: int) -> Sequence[tuple[int, ...]]:
        self.stumble("partitions")
        nodes = self.graphs[subgraph].nodes
        return [(index,) for index, node in enumerate(nodes) if node.op in self.claimed]

    def kernel(
        self, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
    ) -> DelegateKernel:
        self.stumble("kernel")
        self.opened.append((subgraph, nodes))
        kernel = NumpyKernel(self, self.graphs[subgraph], nodes, shapes)
        self.living.add(kernel)
        return kernel

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


class NumpyKernel(DelegateKernel):
    """Its operators one by one."""

    def __init__(
        self, client: NumpyClient, graph: Graph, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]]
    ) -> None:
        self.client = client
        self.graph = graph
        self.steps = [graph.nodes[node] for node in nodes]
        made = {output for step in self.steps for output in step.outputs}
        others = [node for index, node in enumerate(graph.nodes) if index not in nodes]
        wanted = {*graph.outputs, *(index for node in others for index in node.inputs)}
        self.inputs = tuple(sorted({index for step in self.steps for index in step.inputs} - made))
        self.outputs = tuple(sorted(made & wanted))
        self.shapes = dict(shapes)
        for step in self.steps:
            self.shapes[step.outputs[0]] = np.broadcast_shapes(*(self.shapes[index] for index in step.inputs))
        self.output_shapes = tuple(self.shapes[index] for index in self.outputs)

    def run(self, addresses: list[int]) -> None:
        self.client.stumble("run")
        given = dict(zip((*self.inputs, *self.outputs), addresses, strict=True))
        values = {index: self.view(index, given[index]) for index in self.inputs}
        for step in self.steps:
            values[step.outputs[0]] = FUNCTIONS[step.op](*(values[index] for index in step.inputs))
        for index in self.outputs:
            self.view(index, given[index])[...] = values[index]

    def view(self, index: int, address: int) -> np.ndarray:
        dtype, shape = np.dtype(self.graph.tensors[index].dtype), self.shapes[index]
        nbytes = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype).reshape(shape)

    def close(self) -> None:
        self.client.living.remove(self)
        self.client.stumble("close")


def chain(partitions: int, shape: Sequence[int] = (2, 3)) -> bytes:
    """As many partitions of ADD and MUL, with ABS between them."""
    model = ModelBuilder()
    first = value = model.input(shape, name="x", shape_signature=[-1] * len(shape))
    scale = model.constant(np.float32(0.5))
    for number in range(partitions):
        if number:
            value = model.op("ABS", [value], shape)
        value = model.op("ADD", [value, first], shape)
        value = model.op("MUL", [value, scale], shape)
    model.output(value)
    return model.finish()


def delegated(content: bytes, client: DelegateClient, **options: Any) -> tuple[Interpreter, NativeDelegate]:
    """LiteRT's interpreter with the client in it."""
    delegate = NativeDelegate(client)
    return Interpreter(model_content=content, experimental_delegates=[delegate], **options), delegate


def run(interpreter: Interpreter, *inputs: np.ndarray, resize: bool = False) -> list[np.ndarray]:
    """The outputs."""
    details = interpreter.get_input_details()
    if resize:
        for detail, value in zip(details, inputs, strict=True):
            interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(details, inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def expected(content: bytes, *inputs: np.ndarray, resize: bool = False) -> list[np.ndarray]:
    """The outputs of LiteRT alone."""
    return run(Interpreter(model_content=content), *inputs, resize=resize)


def same(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    """They are equal, to the last bit."""
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def numbers(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Some float32."""
    return np.random.default_rng(seed).uniform(-4, 4, shape).astype(np.float32)
