"""Normalize and Softmax on CUDA: rows along any axes, from a few threads per row to many blocks."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, unary
from jitdelegate.ir.forms import IndexMap, Normalize, Softmax, Statistic
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.forms.normalize import NormalizeTemplate
from tests.targets.cuda_execute import assert_compiles_everywhere, templates_of
from tests.targets.cuda_graphs import Shape, compare, graph_of, stored_between
from tests.targets.normalize_graphs import WHOLE, integers, layer, shares_in_order, softmax


def softmax_of_rows(*shape: int, beta: float = 1.0) -> Graph:
    return graph_of(Softmax(beta=beta), [shape], shape)


IN_REGISTERS = [
    layer((5, 17), (1,), (17,), (5, 17)),
    layer((2, 1030), (1,), (1030,), (2, 1)),
    layer((2, 30, 4, 8), (1, 3), (4, 8), (8,)),
    layer((2, 5, 7, 3), (1, 2), (3,), (1,)),
    softmax((3, 33, 20), (1,)),
    softmax((40, 3), (1,)),
]
LONG = [layer((1, 8292), (1,), (8292,), (1,)), softmax((1, 1100, 8), (1,))]
LENGTHS = [(1,), (5, 1), (300, 2), (3, 7, 10), (7, 31), (9, 32), (2, 33), (2, 100), (3, 129), (1, 1001), (2, 1024),
           (140, 401), (1, 8193), (2, 4100), (1, 33_000)]  # fmt: skip
SHARED = layer((1, 6000, 8), (1,), (8,), (1, 6000, 1))


@pytest.mark.parametrize("graph", [*IN_REGISTERS, *LONG], ids=lambda graph: str(graph.tensors[0].shape))
def test_rows_along_all_axes_are_as_the_reference_has_them(graph: Graph) -> None:
    compare(graph, schedule="random", seed=1, tolerance=3e-6)


@pytest.mark.parametrize("graph", WHOLE, ids=lambda graph: str(graph.tensors[0].shape))
def test_rows_of_integers_are_exactly_as_the_reference_has_them(graph: Graph) -> None:
    compare(graph, feeds=integers(graph), schedule="random", seed=1, tolerance=0)


def test_blocks_that_share_a_row_pass_each_other_parts_of_statistics() -> None:
    templates = templates_of(SHARED)
    assert [template.stage for template in templates if isinstance(template, NormalizeTemplate)] == [0, 1, 2]
    compare(SHARED, tolerance=5e-6)


HALVES = [layer((3, 64), (1,), (64,), (64,)), softmax((2, 9, 16), (1,)), *map(softmax_of_rows, (2, 1), (1001, 9000))]


@pytest.mark.parametrize("precision, tolerance", [("float16", 4e-3), ("bfloat16", 3e-2)])
@pytest.mark.parametrize("graph", HALVES, ids=lambda graph: str(graph.tensors[0].shape))
def test_rows_of_16_bit_elements_are_computed_in_float32(graph: Graph, precision: str, tolerance: float) -> None:
    compare(stored_between(graph), precision, tolerance=tolerance)


def test_a_variance_beyond_float16_is_no_infinity() -> None:
    graph = stored_between(layer((2, 64), (1,), (1,), (1,)))
    rows = np.random.default_rng(0).uniform(-900, 900, (2, 64)).astype(np.float32)
    one = np.ones(1, np.float32)
    compare(graph, "float16", feeds=[rows, one, one], tolerance=4e-3)


def test_an_operand_that_no_kernel_follows_is_repeated_beforehand() -> None:
    shape = (2, 3, 4, 8)
    form = Normalize(
        operands=(IndexMap.broadcast((3, 1, 1), shape),),
        axes=(3,),
        statistics=(Statistic("sum", Arg(0) * Arg(0)),),
        result=Arg(0) * (unary("rsqrt", Arg(1)) * Arg(2)),
    )
    graph = graph_of(form, [shape, (3, 1, 1)], shape)
    assert [template.family for template in templates_of(graph)] == ["map", "normalize"]
    compare(graph)


def test_normalize_compiles_everywhere_without_local_memory() -> None:
    templates = templates_of(stored_between(layer((400, 1024), (1,), (1024,), (1024,))), precision="float16")
    templates += templates_of(shares_in_order((400, 1000)))
    for shape in ((300, 2), (2, 100), (1, 1001), (1, 1024), (1, 8192), (1, 33_001)):
        templates += templates_of(softmax_of_rows(*shape))
    templates += templates_of(stored_between(softmax_of_rows(2, 4096)), precision="float16")
    assert_compiles_everywhere([each for each in templates if each.family == "normalize"])


@pytest.mark.parametrize("shape", LENGTHS, ids=str)
def test_rows_of_every_length_are_as_the_reference_has_them(shape: Shape) -> None:
    graph = softmax_of_rows(*shape, beta=0.7)
    feed = np.random.default_rng(0).uniform(-8, 8, shape).astype(np.float32)
    compare(graph, feeds=[feed], tolerance=1e-6)


@pytest.mark.parametrize("length", [10, 200, 3000, 9001])
def test_extreme_elements_are_as_numpy_has_them(length: int) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (7, length)).astype(np.float32)
    for row, value in enumerate([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e4]):
        rows[row, length // 2] = value
    rows[6] = -np.inf
    compare(softmax_of_rows(7, length), feeds=[rows])


@pytest.mark.parametrize("length", [3, 33, 1001, 9001])
def test_threads_without_elements_have_no_part_in_the_maximum(length: int) -> None:
    compare(
        softmax_of_rows(2, length), feeds=[np.random.default_rng(0).uniform(-502, -498, (2, length)).astype(np.float32)]
    )


def test_no_element_of_another_row_is_read() -> None:
    rows = np.full((40, 3), np.nan, np.float32)
    rows[17] = 1, 2, 3
    compare(softmax_of_rows(40, 3), feeds=[rows], schedule="random", seed=1)


@pytest.mark.parametrize("length", [8, 257, 8193])
def test_an_epilogue_reads_channels_and_rows(length: int) -> None:
    output = (2, length)
    operands = [(length,), (2, 1), (1,), output]
    expr = (RESULT + Arg(1)) * Arg(2) + Arg(3) * Arg(4)
    form = Softmax(expr, tuple(IndexMap.broadcast(operand, output) for operand in operands))
    compare(graph_of(form, [output, *operands], output))
