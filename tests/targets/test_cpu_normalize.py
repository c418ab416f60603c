"""Normalize on the CPU: rows along any axes, in registers and in loops, row-major and in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Contract, IndexMap, Shape
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.targets.planning.choose_layout import choose_layout
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.fenced import run_fenced
from tests.targets.levels import RUNNABLE
from tests.targets.normalize_graphs import WHOLE, integers, layer, softmax

GRAPHS = [
    layer((3, 80), (1,), (80,), (3, 1)),
    layer((5, 17), (1,), (17,), (5, 17)),
    layer((2, 3, 1030), (2,), (1030,), (1,)),
    layer((2, 30, 4, 8), (1, 3), (4, 8), (8,)),
    layer((2, 5, 7, 3), (1, 2), (2, 1, 1, 3), (3,)),
    softmax((4, 7), (1,)),
    softmax((2, 600), (1,)),
    softmax((1, 7, 7, 8), (2,)),
    softmax((3, 33, 21), (1,)),
]


def compare(graph: Graph, level: str) -> None:
    random = np.random.default_rng(0)
    feeds = [random.uniform(-2, 2, graph.tensors[index].shape).astype(np.float32) for index in graph.inputs]
    (found,), (expected,) = execute(graph, feeds, level), run_graph(graph, feeds)
    np.testing.assert_allclose(found, expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: str(graph.tensors[0].shape))
def test_rows_along_all_axes_are_as_the_reference_has_them(graph: Graph, level: str) -> None:
    compare(graph, level)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("graph", WHOLE, ids=lambda graph: str(graph.tensors[0].shape))
def test_rows_of_integers_are_exactly_as_the_reference_has_them(graph: Graph, level: str) -> None:
    feeds = integers(graph)
    np.testing.assert_array_equal(run_fenced(graph, feeds, level, at_end=True)[0], run_graph(graph, feeds)[0])


def between_convolutions(image: Shape) -> Graph:
    """Convolutions of 3x3 and 1x1 pixels before and after an instance normalisation, whose result is shown as rows."""
    (own,), channels = layer(image, (1, 2), (channels := image[3],), image[3:]).nodes, image[3]
    random = np.random.default_rng(1)
    weights = random.uniform(-1, 1, (channels, 3, 3, channels)).astype(np.float32)
    shapes: list[Shape] = [image, weights.shape, image, (channels,), (channels,), image, (channels, 1, 1, channels)]
    tensors = [Tensor(f"tensor{number}", shape, "float32") for number, shape in enumerate([*shapes, image])]
    for index in (1, 3, 4, 6):
        tensors[index] = tensors[index].holding(random.uniform(-1, 1, tensors[index].shape).astype(np.float32))
    first = Contract(kernel=(3, 3), padding=(1, 1, 1, 1))
    nodes = (
        Node("CONV_2D", (0, 1, ABSENT), (2,), form=first),
        Node("MUL", (2, 3, 4), (5,), form=own.form),
        Node("CONV_2D", (5, 6, ABSENT, 2), (7,), form=Contract(RESULT, (IndexMap.broadcast(image, image),))),
    )
    return Graph(tuple(tensors), nodes, (0,), (7,))


@pytest.mark.parametrize("channels", [32, 24])
def test_images_in_blocks_stay_in_blocks(channels: int) -> None:
    graph = between_convolutions((2, 5, 6, channels))
    layouts = choose_layout(graph, 16)
    assert layouts[2].blocked
    assert layouts[5].blocked
    for level in RUNNABLE:
        compare(graph, level)
