"""Concat on CUDA, over axes, odd sizes, many inputs and stored types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.forms import Concat
from jitdelegate.ir.graph import Graph
from tests.targets.cuda_execute import assert_compiles_everywhere, templates_of
from tests.targets.cuda_graphs import compare, graph_of, stored_between


def joined(axis: int, shape: tuple[int, ...], *sizes: int) -> Graph:
    """Inputs of `shape`, but for `sizes` along the axis."""
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    output = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
    return graph_of(Concat(axis=axis), shapes, output)


def joined_twice(graph: Graph) -> Graph:
    """The inputs are stored between Maps and joined twice, so that the second Concat copies all of them."""
    graph = stored_between(graph)
    concat, last = graph.nodes[-2], len(graph.tensors)
    again = replace(concat, outputs=(last,))
    tensors = (*graph.tensors, *[graph.tensors[index] for index in (*concat.outputs, *graph.outputs)])
    halved = replace(graph.nodes[-1], inputs=(last,), outputs=(last + 1,))
    return replace(graph, tensors=tensors, nodes=(*graph.nodes, again, halved), outputs=(*graph.outputs, last + 1))


CASES = {
    "channels": joined(3, (1, 5, 7, 0), 16, 8),
    "odd channels": joined(3, (1, 5, 7, 0), 3, 33, 1),
    "rows": joined(1, (2, 0, 3, 4), 1, 6, 2),
    "one row": joined(0, (0,), 1000, 25),
    "one input": joined(1, (3, 0), 5),
    "many inputs": joined(1, (3, 0), *range(1, 20)),
}


@pytest.mark.parametrize("case", CASES)
def test_inputs_lie_one_after_another(case: str) -> None:
    compare(CASES[case], tolerance=0)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", ["channels", "odd channels"])
def test_inputs_of_16_bits_lie_one_after_another(case: str, precision: str) -> None:
    graph = joined_twice(CASES[case])
    assert "concat" in {template.family for template in templates_of(graph, precision=precision)}
    compare(graph, precision)


def test_inputs_may_be_stored_in_other_types_than_the_output() -> None:
    graph = stored_between(CASES["channels"])
    feeds = [np.float32(range(n)).reshape(1, 5, 7, -1) for n in (560, 280)]
    compare(Graph(graph.tensors, graph.nodes[:-1], graph.inputs, (graph.nodes[-2].outputs[0],)), "float16", feeds)


def test_concat_compiles_everywhere_without_local_memory() -> None:
    assert_compiles_everywhere([*templates_of(CASES["many inputs"]), *templates_of(CASES["channels"])])
    assert_compiles_everywhere(templates_of(joined_twice(CASES["odd channels"]), precision="float16"))
