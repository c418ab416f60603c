"""Depthwise of integers on CUDA against the reference, element for element."""

from __future__ import annotations

from typing import Any

import pytest

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Depthwise
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.targets.cuda.products import depthwise
from jitdelegate.targets.cuda.walks.depthwise_kernel import DepthwiseTile
from tests.targets.cuda_execute import assert_compiles_everywhere, templates_of
from tests.targets.integer_graphs import graph_of, size_of, to_int8, whole_range
from tests.targets.test_cuda_integers import check

ZERO = {"int8": -7, "uint8": 131, "int16": 5}
"""Zero points, which pixels outside the image have, too."""


def problem(
    data: tuple[int, int, int, int],
    kernel: tuple[int, int] = (3, 3),
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    dtype: str = "int8",
    weights: str = "int8",
    **options: Any,
) -> Graph:
    """A Depthwise with a bias; sums are rounded to int8, except those of int64."""
    own: dict[str, Any] = {"halo_value": ZERO[dtype], "input_zero": ZERO[dtype], "accumulator": "int32"} | options
    plain = Depthwise(kernel=kernel, padding=padding, **own)
    outputs = data[3] * plain.multiplier
    is_long = plain.accumulator == "int64"
    epilogue, factors = (RESULT, None) if is_long else to_int8(outputs)
    return graph_of(
        Depthwise(kernel=kernel, padding=padding, epilogue=epilogue, **own),
        Tensor("x", data, dtype),
        (data[0], *size_of(plain, data[1:3]), outputs),
        weights=whole_range((1, *kernel, outputs), weights, 1),
        bias=whole_range((outputs,), plain.accumulator, 2) // 50_000,
        constants=[] if factors is None else [factors],
        dtype="" if is_long else "int8",
    )


CASES = {
    "3x3": problem((1, 9, 10, 16)),
    "3x3 of uint8": problem((2, 6, 7, 24), dtype="uint8"),
    "weights of 16 bits": problem((1, 6, 7, 20), dtype="uint8", weights="int16"),
    "strides and dilations": problem((1, 9, 11, 8), stride=(2, 1), dilation=(1, 2), padding=(0, 1, 2, 2)),
    "odd channels": problem((1, 5, 6, 7)),
    "each channel thrice": problem((1, 5, 6, 4), multiplier=3),
    "one channel to eight": problem((1, 5, 6, 1), multiplier=8),
    "another halo than the zero point": problem((1, 5, 6, 8), halo_value=99),
    "a zero point without halo": problem((1, 5, 6, 8), halo_value=None),
    "5x5": problem((1, 8, 9, 8), (5, 5), (2, 2, 2, 2)),
    "11x11": problem((1, 12, 13, 8), (11, 11), (5, 5, 5, 5), halo_value=99),
    "the whole image": problem((1, 12, 12, 4), (12, 12), (0, 0, 0, 0)),
    "sums of 64 bits": problem((1, 6, 7, 12), dtype="int16", accumulator="int64"),
    "the whole image in 64 bits": problem((1, 13, 12, 4), (12, 12), dtype="int16", accumulator="int64"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_depthwise_convolution_is_as_the_reference_has_it(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("name, is_walked", [("3x3", False), ("5x5", True), ("sums of 64 bits", False)])
def test_threads_of_large_layers_take_several_pixels(
    name: str, is_walked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depthwise, "fills", lambda gpu, threads: True)
    (template,) = templates_of(CASES[name])
    assert isinstance(template, DepthwiseTile)
    assert (template.tile, template.rows is None) == ((1, 4), is_walked)
    check(CASES[name])


def test_they_compile_everywhere_without_spills() -> None:
    large = [
        problem((1, 112, 112, 64), dtype="uint8", weights="int16"),
        problem((1, 112, 112, 64), (5, 5), (2, 2, 2, 2), stride=(2, 2)),
        problem((1, 56, 56, 64), dtype="int16", accumulator="int64"),
        problem((1, 56, 56, 64), (11, 11), (5, 5, 5, 5)),
    ]
    assert_compiles_everywhere([template for graph in large for template in templates_of(graph)])
