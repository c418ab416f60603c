"""A model's nodes in partitions that LiteRT runs one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from jitdelegate import passes
from jitdelegate.ir.graph import ABSENT, Graph, Node, State
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.read import read

KERNELS = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
ROUNDS = 2
"""Variables are zeros in the first only."""


class Chain:
    """The nodes of a model's main subgraph, cut into consecutive partitions that run one after another.

    Args:
        borders: positions of nodes, where partitions meet.
        fold: False leaves the operators on constants to LiteRT.
    """

    def __init__(self, content: bytes, borders: Sequence[int], fold: bool = True) -> None:
        self.file = read(content).graphs[0]
        self.graph = folded(content) if fold else self.file
        self.partitions = list(self._partitions(Cutter(content), sorted({0, len(self.graph.nodes), *borders})))
        self._states = {state.before: self._first(state) for state in self.graph.states}

    def _partitions(self, cutter: Cutter, borders: Sequence[int]) -> Iterator[tuple[bytes, list[int], list[int]]]:
        for start, end in pairwise(borders):
            inputs, outputs = self._ports(start, end)
            yield cutter.partition(self.graph, 0, self.graph.nodes[start:end], inputs, outputs), inputs, outputs

    def _first(self, state: State) -> np.ndarray:
        tensor = self.graph.tensors[state.before]
        return np.zeros(tensor.shape, tensor.dtype) if state.initial is None else state.initial

    def _ports(self, start: int, end: int) -> tuple[list[int], list[int]]:
        """What the nodes read and do not write, and what they write for later ones or the caller."""
        nodes, later = self.graph.nodes[start:end], self.graph.nodes[end:]
        read, needed, written = _read(nodes), {*_read(later), *self.graph.outputs}, _written(nodes)
        inputs = [index for index in dict.fromkeys(read) if index not in written and self._is_given(index)]
        # LiteRT updates variable tensors in place: what they hold next is no output of a partition.
        kept = {state.after for state in self.graph.states if not self._is_given(state.before)}
        return inputs, [index for index in dict.fromkeys(written) if index in needed - kept]

    def _is_given(self, index: int) -> bool:
        """Whether the value comes from outside, not from the file or, as a variable's does, from the run before."""
        kept = index < len(self.file.tensors) and self.file.tensors[index].is_variable and index not in self.file.inputs
        return index != ABSENT and not self.graph.tensors[index].is_constant and not kept

    def run(self, rounds: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """The outputs of every round."""
        interpreters = [opened(content) for content, _, _ in self.partitions]
        return [self._round(interpreters, values) for values in rounds]

    def _round(self, interpreters: Sequence[Interpreter], given: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = self._states | dict(zip(self.graph.given, given, strict=True))
        for interpreter, (_, inputs, outputs) in zip(interpreters, self.partitions, strict=True):
            found = invoked(interpreter, [values[index] for index in inputs])
            values |= dict(zip(outputs, found, strict=True))
        self._states = {state.before: values[state.after] for state in self.graph.states if state.after in values}
        return [self._value(index, values) for index in self.graph.returned]

    def _value(self, index: int, values: dict[int, np.ndarray]) -> np.ndarray:
        data = self.graph.tensors[index].data
        return values[index] if data is None else data


def folded(content: bytes) -> Graph:
    return passes.run(specialize_subgraph(read(content)).graphs[0], passes=passes.FOLD)


def _read(nodes: Sequence[Node]) -> list[int]:
    return [index for node in nodes for index in node.inputs]


def _written(nodes: Sequence[Node]) -> list[int]:
    return [index for node in nodes for index in node.outputs]


def opened(content: bytes) -> Interpreter:
    return Interpreter(model_content=content, experimental_op_resolver_type=KERNELS)


def invoked(interpreter: Interpreter, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs for inputs of any shape."""
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        if tuple(details["shape"]) != value.shape:
            interpreter.resize_tensor_input(details["index"], value.shape)
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]


def whole(content: bytes, rounds: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    interpreter = opened(content)
    return [invoked(interpreter, values) for values in rounds]


def values_for(content: bytes, seed: int = 0) -> list[list[np.ndarray]]:
    """Inputs for some rounds."""
    random = np.random.default_rng(seed)
    details = opened(content).get_input_details()
    return [[_random(each, random) for each in details] for _ in range(ROUNDS)]


def _random(details: dict[str, Any], random: np.random.Generator) -> np.ndarray:
    shape, dtype = tuple(details["shape"]), np.dtype(details["dtype"])
    if dtype.kind == "f":
        return random.normal(size=shape).astype(dtype)
    if dtype.kind in "iub":
        low, high = (0, 2) if dtype.itemsize > 1 or dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return random.integers(low, high, shape).astype(dtype)
    return np.full(shape, b"text", object)


def difference(content: bytes, chain: Chain) -> str:
    """What the chain answers otherwise than the whole model; empty if nothing."""
    rounds = values_for(content)
    for number, (found, expected) in enumerate(zip(chain.run(rounds), whole(content, rounds), strict=True)):
        for place, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
                return f"round {number}, output {place}: {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
            if ours.tolist() != theirs.tolist() if theirs.dtype == object else ours.tobytes() != theirs.tobytes():
                return f"round {number}, output {place}: differs at {np.count_nonzero(ours != theirs)} of {ours.size}"
    return ""
