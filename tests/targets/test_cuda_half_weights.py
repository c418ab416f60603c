"""Weights of float32 that are float16 numbers, on CUDA: kept as float16 in memory beside data of float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.targets.cuda import back_end
from jitdelegate.targets.cuda.element import Element
from jitdelegate.targets.cuda.ffma_kernel import Ffma
from jitdelegate.targets.cuda.gpu import GPUS
from jitdelegate.targets.cuda.mma_kernel import Mma
from jitdelegate.targets.cuda.plan import plan
from tests.targets.cuda_execute import ptx_of, templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.integer_graphs import graph_of

TOLERANCES = {"float32": 1e-5, "tf32": 0.01}
SMALLEST = 2.0**-24
"""Subnormal as float16, normal as float32."""


def contract(data: tuple[int, ...], weights: tuple[int, ...], output: tuple[int, ...], **options: Any) -> Graph:
    """Float32 data and weights that are float16 numbers; sums are of about the size of one."""
    random, size = np.random.default_rng(1), np.prod(weights) / weights[0]
    numbers = (random.uniform(-1, 1, weights) / np.sqrt(size)).astype(np.float16).astype(np.float32)
    numbers.flat[:3] = 0, SMALLEST, -SMALLEST
    bias = random.uniform(-1, 1, output[-1]).astype(np.float32)
    return graph_of(Contract(**options), Tensor("x", data, "float32"), output, weights=numbers, bias=bias)


WINDOW: Mapping[str, Any] = {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 0, 1, 2)}
CASES = {
    "rows": contract((9, 70), (33, 70), (9, 33)),
    "parts of K": contract((9, 1030), (40, 1030), (9, 40)),
    "1x1": contract((1, 2, 3, 62), (70, 1, 1, 62), (1, 2, 3, 70)),
    "3 channels": contract((1, 5, 3, 3), (65, 3, 3, 3), (1, 2, 4, 65), **WINDOW),
    "40 channels": contract((1, 5, 3, 40), (72, 3, 3, 40), (1, 2, 4, 72), **WINDOW),
    "groups": contract((1, 5, 3, 40), (72, 3, 3, 20), (1, 2, 4, 72), groups=2, **WINDOW),
    "transposed": contract(
        (1, 2, 3, 16), (24, 3, 3, 16), (1, 5, 6, 24),
        kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 0), transposed=True,
    ),
}  # fmt: skip
MANY_PIXELS = contract((1, 56, 56, 256), (256, 3, 3, 256), (1, 56, 56, 256), kernel=(3, 3), padding=(1, 1, 1, 1))


def weights_of(graph: Graph, architecture: str, precision: str) -> Element:
    (template,) = (one for one in templates_of(graph, architecture, precision) if isinstance(one, Ffma | Mma))
    return template.weights


@pytest.mark.parametrize("architecture, precision", [("sm_90", "float32"), ("sm_75", "float32"), ("sm_90", "tf32")])
@pytest.mark.parametrize("name", CASES)
def test_a_contraction_agrees_with_the_reference(name: str, architecture: str, precision: str) -> None:
    graph = CASES[name]
    assert weights_of(graph, architecture, precision) is Element.FLOAT16
    data = np.random.default_rng(0).uniform(-1, 1, graph.tensors[0].shape).astype(np.float32)
    compare(graph, precision, [data], TOLERANCES[precision], architecture=architecture)


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_weights_keep_their_width_in_memory(precision: str) -> None:
    graph = contract((64, 512), (640, 512), (64, 640))
    assert len(plan(graph, GPUS["sm_90"], precision).weights) < 1.05 * 2 * 640 * 512


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_other_floats_stay_float32(precision: str) -> None:
    graph = CASES["40 channels"]
    numbers = graph.tensors[1].data
    assert numbers is not None
    changed = numbers.copy()
    changed.flat[-1] = 1 / 3
    tensors = tuple(one.holding(changed) if one.data is numbers else one for one in graph.tensors)
    assert weights_of(replace(graph, tensors=tensors), "sm_90", precision) is Element.FLOAT32


def test_weights_that_many_pixels_meet_are_copied_unchanged_where_copies_bypass_registers() -> None:
    assert weights_of(MANY_PIXELS, "sm_90", "float32") is weights_of(MANY_PIXELS, "sm_90", "tf32") is Element.FLOAT32
    assert weights_of(MANY_PIXELS, "sm_75", "float32") is Element.FLOAT16


def test_they_compile_everywhere_without_spills() -> None:
    large = contract((1, 14, 14, 512), (2048, 3, 3, 512), (1, 14, 14, 2048), kernel=(3, 3), padding=(1, 1, 1, 1))
    for architecture in back_end.ARCHITECTURES:
        for precision in ("float32", "tf32")[: 1 + GPUS[architecture].has_async_copy]:
            for graph in large, MANY_PIXELS, CASES["3 channels"], CASES["40 channels"]:
                for template in templates_of(graph, architecture, precision):
                    cubin = back_end.cubin(ptx_of(template, architecture).encode(), architecture)
                    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0), (architecture, template)
