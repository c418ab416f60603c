"""Normalize on CUDA: rows along any axes, from a few threads per row to many blocks."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, unary
from jitdelegate.ir.forms import IndexMap, Normalize, Statistic
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.forms.normalize import NormalizeTemplate
from tests.targets.cuda_execute import assert_compiles_everywhere, templates_of
from tests.targets.cuda_graphs import compare, graph_of, stored_between
from tests.targets.normalize_graphs import WHOLE, integers, layer, shares_in_order, softmax

IN_REGISTERS = [
    layer((5, 17), (1,), (17,), (5, 17)),
    layer((2, 1030), (1,), (1030,), (2, 1)),
    layer((2, 30, 4, 8), (1, 3), (4, 8), (8,)),
    layer((2, 5, 7, 3), (1, 2), (3,), (1,)),
    softmax((3, 33, 20), (1,)),
    softmax((40, 3), (1,)),
]
LONG = [layer((1, 8292), (1,), (8292,), (1,)), softmax((1, 1100, 8), (1,))]
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


@pytest.mark.parametrize("graph", [layer((3, 64), (1,), (64,), (64,)), softmax((2, 9, 16), (1,))])
def test_rows_of_16_bit_elements_are_computed_in_float32(graph: Graph) -> None:
    compare(stored_between(graph), "float16", tolerance=4e-3)


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
    assert_compiles_everywhere([each for each in templates if each.family == "normalize"])
