"""Integer weights of float data on CUDA: stored as integers, multiplied as floats."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.dequantize import dequantized
from jitdelegate.ir.expr import RESULT, Arg, Cast, Const
from jitdelegate.ir.forms import Contract, Depthwise, IndexMap, Map, Window
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma
from jitdelegate.targets.cuda.walks.gemv import Gemv
from jitdelegate.targets.cuda.walks.mma_kernel import Mma
from tests.targets.cuda_execute import compiled, templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.integer_graphs import graph_of, whole_range

TOLERANCES = {"float32": 1e-5, "float16": 0.01, "bfloat16": 0.06, "tf32": 0.01}


def problem(
    form: Window, data: tuple[int, ...], weights: tuple[int, ...], output: tuple[int, ...], dtype: str
) -> Graph:
    """A form of float32 data whose epilogue multiplies by a scale per channel; sums are of about the size of one."""
    outputs = output[-1]
    scales = np.random.default_rng(3).uniform(0.5, 1, outputs).astype(np.float32) / np.iinfo(dtype).max
    scales /= np.float32(np.sqrt(np.prod(weights) / outputs))
    bias = np.random.default_rng(4).uniform(-50, 50, outputs).astype(np.float32)

    own = Tensor("x", data, "float32")
    return graph_of(form, own, output, weights=whole_range(weights, dtype, 1), bias=bias, constants=[scales])


def contract(
    data: tuple[int, ...], weights: tuple[int, ...], output: tuple[int, ...], dtype: str = "int8", **options: Any
) -> Graph:
    return problem(Contract(RESULT * Arg(1), **options), data, weights, output, dtype)


WINDOW: dict[str, Any] = {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 0, 1, 2)}
CASES = {
    "a row": contract((1, 300), (10, 300), (1, 10)),
    "four rows": contract((4, 62), (33, 62), (4, 33)),
    "rows": contract((9, 70), (33, 70), (9, 33)),
    "rows of 16 bits": contract((9, 70), (33, 70), (9, 33), "int16"),
    "1x1": contract((2, 5, 7, 16), (24, 1, 1, 16), (2, 5, 7, 24)),
    "3 channels": contract((1, 9, 7, 3), (33, 3, 3, 3), (1, 4, 8, 33), **WINDOW),
    "40 channels": contract((1, 9, 7, 40), (72, 3, 3, 40), (1, 4, 8, 72), **WINDOW),
    "transposed": contract(
        (1, 4, 5, 16), (24, 3, 3, 16), (1, 9, 10, 24),
        kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 0), transposed=True,
    ),
}  # fmt: skip


COMPUTED = [*product(("sm_90", "sm_75"), ("float32", "float16")), ("sm_90", "bfloat16"), ("sm_90", "tf32")]
"""Architectures and precisions that graphs with narrow weights are computed in."""


def feeds(graph: Graph) -> list[np.ndarray]:
    return [np.random.default_rng(0).uniform(-1, 1, graph.tensors[0].shape).astype(np.float32)]


@pytest.mark.parametrize(("architecture", "precision"), COMPUTED)
@pytest.mark.parametrize("name", CASES)
def test_a_contraction_agrees_with_the_reference(name: str, architecture: str, precision: str) -> None:
    compare(CASES[name], precision, feeds(CASES[name]), TOLERANCES[precision], architecture=architecture)


def test_every_kernel_is_among_them() -> None:
    found = {type(one) for case in CASES.values() for precision in ("float32", "float16")
             for one in templates_of(case, "sm_90", precision)}  # fmt: skip
    assert found == {Gemv, Ffma, Mma}


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_depthwise_convolution_agrees_with_the_reference(dtype: str) -> None:
    form = Depthwise(RESULT * Arg(1), kernel=(3, 3), padding=(1, 1, 1, 1))
    graph = problem(form, (1, 6, 7, 20), (1, 3, 3, 20), (1, 6, 7, 20), dtype)
    compare(graph, feeds=feeds(graph), tolerance=1e-5)


def test_floats_that_were_integers_are_integers_again() -> None:
    """int8 by channel, and uint8 with a zero point; a scale that does not fit leaves floats."""
    sizes = {}
    for name, dtype, scales, zero in ("int8", "int8", tuple(0.01 + 0.003 * k for k in range(80)), 0), (
        "uint8", "uint8", (0.02,), 7
    ), ("other", "int8", (0.02,), 0):  # fmt: skip
        quant = Quant(scales, (zero,) * len(scales))
        stored = Tensor("w", (80, 64), dtype, whole_range((80, 64), dtype, 1), quant)
        weights = dequantized(stored)
        if name == "other":
            weights = weights.holding(weights.data * np.float32(0.7))
        graph = contract((9, 64), (80, 64), (9, 80))
        tensors = [weights if one.name == "w" else one for one in graph.tensors]
        graph = replace(graph, tensors=tuple(tensors))
        compare(graph, feeds=feeds(graph), tolerance=1e-5)
        sizes[name] = len(plan(graph, GPUS["sm_90"], "float32").writer.weights.content)
    assert sizes["int8"] < 1.2 * 80 * 64 + 2048 < sizes["uint8"] < 1.2 * 2 * 80 * 64 + 2048 < sizes["other"]


@pytest.mark.parametrize("dtype, middle", [("int8", -7), ("uint8", 131)])
def test_bytes_are_dequantized_in_the_product_that_reads_them(dtype: str, middle: int) -> None:
    stored = Tensor("q", (1, 9, 7, 12), dtype, quant=Quant((0.01,), (middle,)))
    graph = contract((1, 9, 7, 12), (33, 3, 3, 12), (1, 4, 8, 33), **WINDOW)
    real = (Cast(Cast(Arg(0), "int32") - Const(middle), "float32")) * Const(float(np.float32(0.01)))
    form = Map(real, (IndexMap.broadcast(stored.shape, stored.shape),))
    last = len(graph.tensors)
    (product,) = graph.nodes
    without_bias = replace(product, inputs=(*product.inputs[:2], ABSENT, *product.inputs[3:]))
    nodes = Node("DEQUANTIZE", (last,), (0,), form=form), without_bias
    graph = replace(graph, tensors=(*graph.tensors, stored), nodes=nodes, inputs=(last,))
    (template,) = templates_of(graph)
    assert (type(template), template.source.dtype) == (Mma, dtype)
    compare(graph, feeds=[whole_range(stored.shape, dtype, 2)], tolerance=1e-5)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_weights_keep_their_width_in_memory(precision: str) -> None:
    for data, outputs in ((1, 512), 640), ((64, 512), 640):
        graph = contract(data, (outputs, data[1]), (data[0], outputs))
        assert len(plan(graph, GPUS["sm_90"], precision).writer.weights.content) < 1.05 * outputs * data[1]


def test_they_compile_everywhere_without_spills() -> None:
    large = contract((1, 56, 56, 256), (256, 3, 3, 256), (1, 56, 56, 256), kernel=(3, 3), padding=(1, 1, 1, 1))
    few = contract((4, 1280), (1001, 1280), (4, 1001))
    for architecture in back_end.ARCHITECTURES:
        for precision in ("float32", "float16"):
            for graph in large, few, CASES["3 channels"], CASES["40 channels"]:
                for template in templates_of(graph, architecture, precision):
                    compiled(template, architecture)
