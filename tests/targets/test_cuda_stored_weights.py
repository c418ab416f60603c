"""Weights of float data on CUDA that are as narrow in memory as in the file: float16, and int4 two to a byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma
from jitdelegate.targets.cuda.walks.mma_kernel import Mma
from tests.targets.cuda_execute import compiled, templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.integer_graphs import graph_of
from tests.targets.test_cuda_hybrid import COMPUTED, TOLERANCES, feeds

SMALLEST = 2.0**-24
"""Subnormal as float16, normal as float32."""


def contract(
    data: tuple[int, ...], weights: tuple[int, ...], output: tuple[int, ...], *, are_int4: bool = False, **options: Any
) -> Graph:
    """Float32 data and weights that are float16 numbers, or int4 with a scale per channel; sums are about as large."""
    random, size, source = np.random.default_rng(1), np.prod(weights) / weights[0], Tensor("x", data, "float32")
    bias = random.uniform(-1, 1, output[-1]).astype(np.float32)
    if are_int4:
        numbers = random.integers(-8, 8, weights).astype(np.int8)
        scales = (random.uniform(0.1, 0.2, output[-1]) / np.sqrt(size)).astype(np.float32)
        form = Contract(RESULT * Arg(1) + Arg(2), **options)
        return graph_of(form, source, output, weights=numbers, constants=[scales, bias])
    numbers = (random.uniform(-1, 1, weights) / np.sqrt(size)).astype(np.float16).astype(np.float32)
    numbers.flat[:3] = 0, SMALLEST, -SMALLEST
    return graph_of(Contract(**options), source, output, weights=numbers, bias=bias)


WINDOW: Mapping[str, Any] = {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 0, 1, 2)}


def cases(are_int4: bool) -> dict[str, Graph]:
    """Problems whose channels and taps fill no tile."""
    make = partial(contract, are_int4=are_int4)
    return {
        "rows": make((9, 70), (33, 70), (9, 33)),
        "parts of K": make((9, 1030), (40, 1030), (9, 40)),
        "1x1": make((1, 2, 3, 62), (70, 1, 1, 62), (1, 2, 3, 70)),
        "3 channels": make((1, 5, 3, 3), (65, 3, 3, 3), (1, 2, 4, 65), **WINDOW),
        "40 channels": make((1, 5, 3, 40), (72, 3, 3, 40), (1, 2, 4, 72), **WINDOW),
        "groups": make((1, 5, 3, 40), (72, 3, 3, 20), (1, 2, 4, 72), groups=2, **WINDOW),
        "transposed": make(
            (1, 2, 3, 16), (24, 3, 3, 16), (1, 5, 6, 24),
            kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 0), transposed=True,
        ),
        "14x14": make((1, 14, 14, 512), (2048, 3, 3, 512), (1, 14, 14, 2048), kernel=(3, 3), padding=(1, 1, 1, 1)),
        "56x56": make((1, 56, 56, 256), (256, 3, 3, 256), (1, 56, 56, 256), kernel=(3, 3), padding=(1, 1, 1, 1)),
    }  # fmt: skip


HALF, INT4 = cases(are_int4=False), cases(are_int4=True)
SMALL = [name for name in HALF if name not in ("14x14", "56x56")]


def weights_of(graph: Graph, architecture: str, precision: str) -> Element:
    (template,) = (one for one in templates_of(graph, architecture, precision) if isinstance(one, Ffma | Mma))
    return template.weights


def agrees(graph: Graph, architecture: str, precision: str) -> None:
    compare(graph, precision, feeds(graph), TOLERANCES[precision], architecture=architecture)


@pytest.mark.parametrize("architecture, precision", [("sm_90", "float32"), ("sm_75", "float32"), ("sm_90", "tf32")])
@pytest.mark.parametrize("name", SMALL)
def test_products_with_float16_agree_with_the_reference(name: str, architecture: str, precision: str) -> None:
    assert weights_of(HALF[name], architecture, precision) is Element.FLOAT16
    agrees(HALF[name], architecture, precision)


@pytest.mark.parametrize(("architecture", "precision"), COMPUTED)
@pytest.mark.parametrize("name", SMALL)
def test_products_with_int4_agree_with_the_reference(name: str, architecture: str, precision: str) -> None:
    assert weights_of(INT4[name], architecture, precision) is Element.INT4
    agrees(INT4[name], architecture, precision)


@pytest.mark.parametrize("are_int4, nbytes", [(False, 2), (True, 0.5)])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_weights_keep_their_width_in_memory(precision: str, are_int4: bool, nbytes: float) -> None:
    graph = contract((64, 512), (640, 512), (64, 640), are_int4=are_int4)
    assert len(plan(graph, GPUS["sm_90"], precision).writer.weights.content) < nbytes * 640 * 512 + 4 * 4096


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_other_floats_stay_float32(precision: str) -> None:
    graph = HALF["40 channels"]
    numbers = graph.tensors[1].data
    assert numbers is not None
    changed = numbers.copy()
    changed.flat[-1] = 1 / 3
    tensors = tuple(one.holding(changed) if one.data is numbers else one for one in graph.tensors)
    assert weights_of(replace(graph, tensors=tensors), "sm_90", precision) is Element.FLOAT32


def test_float16_that_many_pixels_meet_are_float32_where_copies_bypass_registers() -> None:
    graph = HALF["56x56"]
    assert weights_of(graph, "sm_90", "float32") is weights_of(graph, "sm_90", "tf32") is Element.FLOAT32
    assert weights_of(graph, "sm_75", "float32") is Element.FLOAT16


@pytest.mark.parametrize("name", ["14x14", "56x56", "3 channels", "40 channels"])
def test_they_compile_everywhere_without_spills(name: str) -> None:
    for architecture in back_end.ARCHITECTURES:
        for precision in ("float32", "float16", "tf32")[: 2 + GPUS[architecture].has_async_copy]:
            for graph in HALF[name], INT4[name]:
                for template in templates_of(graph, architecture, precision):
                    compiled(template, architecture)
