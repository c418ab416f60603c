"""STABLEHLO_RNG_BIT_GENERATOR gives LiteRT's bits and LiteRT's next state, on every target."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import load
from jitdelegate.passes import FOLD, REWRITE, run
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import node_reason
from jitdelegate.targets.host import level
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.quantized_models import LiteRT
from tests.targets import cuda_execute
from tests.targets.execute import execute

SIZES = {"THREEFRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2,)}
MOST = (1 << 64) - 1
STATES = ((0, 0, 0), (0x123456789ABCDEF1, 7, 5), (MOST, (1 << 32) - 3, MOST), (MOST - 1, MOST, 1 << 63))
"""Key, counter, and what else there may be: the lower half of a counter runs over, and all of it."""


def generator(algorithm: str, size: int, dtype: str, shape: tuple[int, ...]) -> bytes:
    model = ModelBuilder()
    state = model.input((size,), "uint64")
    outputs = [model.tensor((size,), "uint64"), model.tensor(shape, dtype)]
    model.node("STABLEHLO_RNG_BIT_GENERATOR", [state], outputs, options={"algorithm": algorithm})
    model.output(*outputs)
    return model.finish()


@pytest.mark.parametrize(
    "dtype, shape", [("uint32", (3, 7)), ("int32", (2, 1030)), ("uint64", (5,)), ("int64", (3, 5))]
)
@pytest.mark.parametrize("algorithm, size", [(name, size) for name, sizes in SIZES.items() for size in sizes])
def test_bits_and_the_next_state_are_those_of_litert(
    algorithm: str, size: int, dtype: str, shape: tuple[int, ...]
) -> None:
    content = generator(algorithm, size, dtype, shape)
    graph = run(run(specialize_subgraph(read(content)).graphs[0], passes=FOLD), passes=REWRITE)
    for state in STATES:
        feeds = [np.array(state[:size], np.uint64)]
        expected = LiteRT(content).outputs(*feeds)
        ran = [run_graph(graph, feeds), execute(graph, feeds, level())]
        if state is STATES[1] and size == max(SIZES[algorithm]):
            ran.append(cuda_execute.run(graph, feeds))
        for outputs in ran:
            for found, wanted in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


def test_a_model_draws_from_a_state_that_its_caller_keeps() -> None:
    content, state = generator("PHILOX", 2, "uint32", (4, 6)), np.array([17, 0], np.uint64)
    ours, theirs = load(content, target="cpu"), LiteRT(content)
    assert ours.report().target == "cpu", str(ours.report())
    for _ in range(3):
        expected = theirs.outputs(state)
        found = [np.array(output) for output in ours(state)]
        for own, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(own, wanted)
        state = expected[0]


def test_a_state_of_another_size_is_refused() -> None:
    graph = specialize_subgraph(read(generator("THREEFRY", 3, "uint32", (4,)))).graphs[0]
    assert "THREEFRY with a state of shape [3]" in str(node_reason(graph, graph.nodes[0]))
