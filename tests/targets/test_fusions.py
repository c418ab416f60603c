"""Fusions: patterns that are found in graphs, and nodes that one kernel computes together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Cast
from jitdelegate.ir.forms import Contract, Depthwise, MatMul, Softmax
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.forms.map import copy
from jitdelegate.targets.cuda.plan import accepts as cuda
from jitdelegate.targets.cuda.plan import plan as planning
from jitdelegate.targets.planning.fusions import Fusion, Pattern, attentions, separables
from jitdelegate.targets.planning.steps import Accepts
from tests.targets.matmul_graphs import attention

SHAPE = (2, 8)


def three_softmaxes() -> Graph:
    tensors = tuple(Tensor(f"t{number}", SHAPE, "float32") for number in range(4))
    nodes = tuple(Node("SOFTMAX", (at,), (at + 1,), form=Softmax(), origin=(at,)) for at in range(3))
    return Graph(tensors, nodes, (0,), (3,))


def pattern(*matches: tuple[int, ...]) -> Pattern:
    return lambda graph: iter(matches)


def fuse_all(writer: Writer, matches: Iterable[tuple[int, ...]]) -> Iterator[Fusion]:
    def write(writer: Writer, nodes: Sequence[Node]) -> None:
        copy(writer, nodes[0].inputs[0], nodes[-1].outputs[0])

    return (Fusion(positions, write) for positions in matches)


def accepting(monkeypatch: pytest.MonkeyPatch, *patterns: Pattern) -> Accepts[Writer]:
    """What CUDA kernels can do, and to fuse all matches of these patterns."""
    load: Callable[..., Any] = Accepts.load
    monkeypatch.setattr(Accepts, "load", lambda self, name: fuse_all if name == "fuse_all" else load(self, name))
    return replace(cuda.ACCEPTS, fusions=dict.fromkeys(patterns, "fuse_all"))


def test_a_node_belongs_to_the_first_fusion_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = three_softmaxes()
    accepts = accepting(monkeypatch, pattern((0, 1)), pattern((1, 2), (2,)))
    found = accepts.find_fusions(graph, Writer(graph, GPUS["sm_90"], "float32"))
    assert {last: fusion.positions for last, fusion in found.items()} == {1: (0, 1), 2: (2,)}


def test_the_nodes_of_a_fusion_are_written_once_where_the_last_one_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ACCEPTS", accepting(monkeypatch, pattern((0, 2))))
    middle, last = planning.plan(three_softmaxes(), GPUS["sm_90"], "float32").launches
    assert (middle.form, middle.origin) == ("Softmax", (1,))
    assert (last.form, last.origin) == ("Softmax + Softmax", (0, 2))
    assert set(last.tensors()) == {0, 3}


def separable(
    *, between: str = "float32", first: str = "float32", sums: str = "float32", weights: bool = True, data: int = 2
) -> Graph:
    """A Depthwise, and a 1x1 Contract of tensor `data`: 2 is the Depthwise's result. `first` and `sums` are the
    types of the sums of both."""
    constants = [np.ones(shape, np.float32) for shape in ((1, 3, 3, 4), (8, 1, 1, 4))]
    tensors = [
        Tensor("image", (1, 5, 5, 4), "float32"),
        Tensor("taps", constants[0].shape, "float32", constants[0]),
        Tensor("between", (1, 5, 5, 4), between),
        Tensor("weights", constants[1].shape, "float32", constants[1] if weights else None),
        Tensor("result", (1, 5, 5, 8), "float32"),
    ]
    window = Depthwise(kernel=(3, 3), padding=(1, 1, 1, 1), accumulator=first)
    nodes = (
        Node("DEPTHWISE_CONV_2D", (0, 1, ABSENT), (2,), form=window),
        Node("CONV_2D", (data, 3, ABSENT), (4,), form=Contract(accumulator=sums)),
    )
    return Graph(tuple(tensors), nodes, (0,) if weights else (0, 3), (4,))


def test_a_depthwise_convolution_is_found_with_the_1x1_convolution_that_alone_reads_it() -> None:
    assert list(separables(separable())) == [(0, 1)]
    assert list(separables(separable(between="uint8", first="int32", sums="int32"))) == [(0, 1)]
    assert not list(separables(replace(separable(), outputs=(2, 4))))
    assert not list(separables(separable(data=0)))


@pytest.mark.parametrize("other", [{"between": "int8"}, {"sums": "int32"}, {"weights": False}])
def test_convolutions_of_unlike_types_or_by_computed_weights_are_found_alone(other: dict[str, Any]) -> None:
    assert not list(separables(separable(**other)))


def test_an_attention_is_found_unless_its_scores_are_sums_of_integers() -> None:
    graph = attention((5, 8, 6, 7), adj_y=True)
    assert [found.positions for found in attentions(graph)] == [(0, 1, 2)]
    scores, *others = graph.nodes
    sides = [replace(tensor, dtype="int8") for tensor in graph.tensors[:2]]
    product = replace(scores, form=MatMul(Cast(RESULT, "float32"), adj_y=True, accumulator="int32"))
    assert not list(attentions(replace(graph, tensors=(*sides, *graph.tensors[2:]), nodes=(product, *others))))
