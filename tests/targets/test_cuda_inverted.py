"""An inverted residual (1x1, depthwise and 1x1 convolution) in one CUDA kernel."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Expr
from jitdelegate.ir.forms import Contract, IndexMap, Map
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.targets.cuda.products import inverted
from jitdelegate.targets.cuda.walks.inverted_kernel import InvertedMma
from tests.targets.cuda_execute import templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.test_cuda_separable import HARD_SWISH, RELU6, Pair

TOLERANCES = {"float16": 1e-2, "bfloat16": 8e-2}


def residual(pair: Pair, channels: int, inner: Expr = RELU6) -> Graph:
    """The pair behind a 1x1 convolution of the doubled input, which has so many channels."""
    graph, random = pair.graph, np.random.default_rng(6)
    shape, first = (*pair.data[:3], channels), len(graph.tensors)
    scale = 1 / channels**0.5
    weights = random.uniform(-scale, scale, (pair.data[3], 1, 1, channels)).astype(np.float32)
    bias = random.uniform(-1, 1, pair.data[3]).astype(np.float32)
    tensors = (
        *graph.tensors,
        Tensor("input", shape, "float32"),
        Tensor("doubled", shape, "float32"),
        Tensor("weights", weights.shape, "float32", weights),
        Tensor("bias", bias.shape, "float32", bias),
    )
    before = (
        Node("MUL", (first,), (first + 1,), form=Map(RESULT * 2.0, (IndexMap.broadcast(shape, shape),)), origin=(2,)),
        Node("PW", (first + 1, first + 2, first + 3), (0,), form=Contract(epilogue=inner), origin=(3,)),
    )
    return Graph(tensors, (*before, *graph.nodes), (first, *graph.inputs[1:]), graph.outputs)


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every residual that can be computed by one kernel is."""
    monkeypatch.setattr(inverted, "launch_cycles", lambda gpu: 10**9)


RESIDUALS = {
    "odd sizes, several images": residual(Pair((2, 5, 7, 72), 24, second=HARD_SWISH), 16, RESULT + 1.0),
    "stride 2": residual(Pair((1, 9, 10, 40), 20, stride=(2, 2), padding=(0, 1, 0, 1)), 24),
    "dilation": residual(
        Pair((1, 11, 13, 64), 32, dilation=(2, 4), padding=(2, 2, 4, 4), residual=True, second=RESULT + Arg(1)), 32
    ),
    "many channels": residual(Pair((1, 5, 6, 200), 36, first=HARD_SWISH), 96),
    "columns that no threads divide": residual(Pair((1, 6, 7, 24), 66), 16),
    "more columns than threads": residual(Pair((1, 6, 7, 24), 133), 16),
    "5x5, a gate": residual(
        Pair((1, 6, 5, 24), 8, kernel=(5, 5), padding=(2, 2, 2, 2), gate=True, first=RESULT * Arg(1), bias=False), 8
    ),
}


def template_of(graph: Graph, precision: str = "float16") -> InvertedMma:
    _, template = templates_of(graph, precision=precision)
    assert isinstance(template, InvertedMma)
    return template


@pytest.mark.parametrize("name", RESIDUALS)
def test_a_residual_agrees_with_the_reference(name: str) -> None:
    template_of(RESIDUALS[name])
    compare(RESIDUALS[name], "float16", tolerance=TOLERANCES["float16"])


def test_other_precisions_take_several_launches() -> None:
    assert {template.family for template in templates_of(RESIDUALS["stride 2"])}.isdisjoint({"inverted_mma"})


def test_a_small_image_of_few_channels_takes_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    few, many = (residual(Pair((1, size, size, 6 * n), n), n) for size, n in ((33, 32), (7, 160)))
    assert any(isinstance(one, InvertedMma) for one in templates_of(few, precision="float16"))
    assert not any(isinstance(one, InvertedMma) for one in templates_of(many, precision="float16"))
