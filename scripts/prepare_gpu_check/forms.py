"""Graphs of a few operators: their first cases, larger ones, and each as it is in a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Weights, ints, is_fed
from scripts.gpu_check.bundle import FORM
from scripts.prepare_gpu_check.source import Feed, Source
from tests.ops.litert import model_of, states_of

PRECISIONS = ("float32", "float16")
LARGEST_HALF = 6e4
UNIT = {"stride_w": 1, "stride_h": 1}
HALVED = {"stride_w": 2, "stride_h": 2}
LARGER: tuple[tuple[str, Case], ...] = (
    ("CONV_2D", Case(((1, 28, 28, 64), Weights((64, 3, 3, 64)), Weights((64,))), UNIT)),
    ("CONV_2D", Case(((1, 57, 57, 24), Weights((72, 3, 3, 24)), Weights((72,))), HALVED)),
    ("CONV_2D", Case(((1, 28, 28, 128), Weights((256, 1, 1, 128)), Weights((256,))), UNIT)),
    ("CONV_2D", Case(((1, 14, 14, 512), Weights((256, 1, 1, 512)), Weights((256,))), UNIT)),
    ("CONV_2D", Case(((1, 65, 65, 3), Weights((32, 7, 7, 3)), Weights((32,))), HALVED)),
    ("CONV_2D", Case(((1, 33, 33, 33), Weights((65, 3, 3, 33)), Weights((65,))), UNIT)),
    ("CONV_2D", Case(((3, 20, 20, 64), Weights((128, 3, 3, 16)), Weights((128,))), UNIT)),
    ("DEPTHWISE_CONV_2D", Case(((1, 28, 28, 128), Weights((1, 3, 3, 128)), Weights((128,))), UNIT)),
    ("DEPTHWISE_CONV_2D", Case(((1, 29, 29, 66), Weights((1, 5, 5, 66)), Weights((66,))), HALVED)),
    ("FULLY_CONNECTED", Case(((1, 1024), Weights((257, 1024)), Weights((257,))))),
    ("FULLY_CONNECTED", Case(((200, 333), Weights((129, 333)), Weights((129,))))),
    ("TRANSPOSE_CONV", Case((ints(1, 32, 32, 32), Weights((32, 3, 3, 64)), (1, 16, 16, 64)), HALVED)),
    ("SOFTMAX", Case(((64, 1001),), {"beta": 1.0})),
    ("MEAN", Case(((1, 17, 17, 320), ints(1, 2)))),
    ("TRANSPOSE", Case(((1, 64, 48, 32), ints(0, 3, 1, 2)))),
    ("RESIZE_BILINEAR", Case(((1, 9, 9, 21), ints(65, 65)))),
)
"""Cases whose tiles are full ones, beside the operator table's own, which are small."""
FIRST_CASES = 4
"""Of each operator; the others differ in shapes, which the simulator has seen."""
POINT = {**UNIT, "padding": "VALID", "filter_width": 1, "filter_height": 1}


def forms() -> Iterator[Source]:
    """The operators' first cases, larger ones, and each as it is in a network: between layers that store 16 bits."""
    cases = [(name, case) for name, op in OPS.items() if not op.custom for case in op.cases[:FIRST_CASES]]
    for number, (name, case) in enumerate([*cases, *LARGER]):
        graph = case.graph(OPS[name])
        feeds, expected = _first_run(name, case, graph)
        yield _form(f"{number} {name}", graph, feeds, expected)
        if _may_lie_between(graph, expected):
            yield _between(f"{number} {name} between layers", name, case)


def _first_run(name: str, case: Case, graph: Graph) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What is fed and what is expected of the graph's first run, which finds zeros in its states."""
    arrays, states, inputs = case.arrays(), states_of(graph), graph.nodes[0].inputs
    arrays = [
        array if index not in states else np.zeros_like(array) for index, array in zip(inputs, arrays, strict=True)
    ]
    fed = [index for index in graph.inputs if index not in states]
    feeds = [array for index, array in zip(inputs, arrays, strict=True) if index in fed and array is not None]
    outputs = OPS[name].reference(arrays, case.attrs)
    return feeds, outputs[: len(outputs) - len(states)]


def _form(name: str, graph: Graph, feeds: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Source:
    content, outputs = model_of(graph), list(map(Feed, expected))
    return Source(name, FORM, content, list(map(Feed, feeds)), lambda: outputs, "numpy, float64", PRECISIONS)


def _may_lie_between(graph: Graph, expected: Sequence[np.ndarray]) -> bool:
    """Whether pooling layers fit around it, and 16 bits hold what it answers."""
    ports = [graph.tensors[index] for index in (*graph.inputs, *graph.outputs)]
    images = all(len(port.shape) == 4 and port.dtype == "float32" for port in ports)
    return images and all(bool(np.all(np.abs(array) < LARGEST_HALF)) for array in expected)


def _between(name: str, op: str, case: Case) -> Source:
    """The case on inputs that 16 bits hold exactly, with 1x1 pooling, which changes no value, before and behind."""
    pairs = list(zip(case.inputs, case.arrays(), strict=True))
    feeds = [_rounded(array) for entry, array in pairs if is_fed(entry) and array is not None]
    fed = iter(feeds)
    arrays = [next(fed) if is_fed(entry) else array for entry, array in pairs]
    expected = OPS[op].reference(arrays, case.attrs)
    graph = between_pools(case.graph(OPS[op]))
    return replace(_form(name, graph, feeds, expected), precisions=("float16",))


def _rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


def between_pools(graph: Graph) -> Graph:
    """Every input and output of the graph behind a pooling layer of its own."""
    tensors, before, behind = list(graph.tensors), [], []

    def outer(index: int) -> int:
        tensors.append(replace(graph.tensors[index], name=f"{graph.tensors[index].name} outside"))
        return len(tensors) - 1

    inputs, outputs = tuple(map(outer, graph.inputs)), tuple(map(outer, graph.outputs))
    for outside, inside in zip(inputs, graph.inputs, strict=True):
        before.append(Node("MAX_POOL_2D", (outside,), (inside,), POINT))
    for inside, outside in zip(graph.outputs, outputs, strict=True):
        behind.append(Node("MAX_POOL_2D", (inside,), (outside,), POINT))
    return Graph(tuple(tensors), (*before, *graph.nodes, *behind), inputs, outputs)
