"""Pooling on CUDA: windows of every size, clipped to the image, of every element type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Expr, maximum
from jitdelegate.ir.forms import IndexMap, Pool
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.forms.pool import PoolUnrolled, PoolWalk
from jitdelegate.targets.planning.epilogue import Reach
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import TOLERANCES, Shape, compare, graph_of, stored_between
from tests.targets.integer_graphs import size_of


def pooled(
    data: Shape,
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    kind: str = "max",
    epilogue: Expr = RESULT,
    operands: tuple[Shape, ...] = (),
) -> Graph:
    """A node whose data and further operands are the graph's inputs."""
    form = Pool(epilogue, (), kernel, stride, dilation, padding, kind=kind)
    output = (data[0], *size_of(form, data[1:3]), data[3])
    accesses = tuple(IndexMap.broadcast(shape, output) for shape in operands)
    return graph_of(replace(form, operands=accesses), [data, *operands], output)


WINDOWS: dict[str, Any] = {
    "one pixel": ((1, 1, 1, 4), (1, 1), (1, 1)),
    "2x2": ((1, 6, 8, 8),),
    "2x2 of 3 channels": ((2, 5, 5, 3),),
    "2x2 of 33 channels": ((1, 4, 6, 33),),
    "3x3, padded": ((1, 7, 6, 4), (3, 3), (2, 2), (1, 1, 0, 1)),
    "3x3 in a small image": ((1, 2, 1, 5), (3, 3), (1, 1), (1, 1, 1, 1)),
    "1x9": ((1, 2, 12, 4), (1, 9), (1, 1), (0, 0, 4, 4)),
    "2x2, dilated": ((1, 6, 6, 4), (2, 2), (1, 1), (1, 1, 1, 1), (2, 3)),
    "5x5, padded": ((1, 7, 8, 6), (5, 5), (1, 1), (2, 2, 2, 2)),
    "4x5, dilated": ((1, 9, 11, 4), (4, 5), (2, 1), (1, 2, 2, 0), (2, 2)),
    "whole image": ((2, 7, 7, 16), (7, 7), (1, 1)),
    "whole image of 3 channels": ((1, 8, 9, 3), (8, 9), (1, 1)),
    "whole large image": ((1, 24, 24, 12), (24, 24), (1, 1)),
    "one row of pixels": ((1, 1, 40, 5), (1, 33), (1, 1)),
}


def window(case: str, kind: str) -> Graph:
    return pooled(*WINDOWS[case], kind=kind)


@pytest.mark.parametrize("kind", ["mean", "max"])
@pytest.mark.parametrize("case", WINDOWS)
def test_pooling_agrees_with_the_reference(case: str, kind: str) -> None:
    compare(window(case, kind), schedule="random", seed=1)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["mean", "max"])
@pytest.mark.parametrize(
    "case", ["2x2", "2x2 of 33 channels", "5x5, padded", "whole image", "whole image of 3 channels"]
)
def test_pooling_of_16_bit_elements_agrees_with_the_reference(case: str, kind: str, precision: str) -> None:
    compare(stored_between(window(case, kind)), precision, tolerance=2 * TOLERANCES[precision])


@pytest.mark.parametrize("kind", ["mean", "max"])
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("kernel", [(3, 3), (6, 6)], ids=str)
def test_an_epilogue_reads_its_operands_at_the_result(kernel: tuple[int, int], precision: str, kind: str) -> None:
    shapes = (2, 7 - kernel[0], 7 - kernel[0], 8), (8,)
    graph = pooled(
        (2, 6, 6, 8), kernel, (1, 1), kind=kind, epilogue=maximum(RESULT + Arg(1), 0.0) * Arg(2), operands=shapes
    )
    compare(stored_between(graph), precision, tolerance=8 * TOLERANCES[precision])


@pytest.mark.parametrize(
    ("side", "slices"), [(4, 1), (5, 1), (6, 8), (11, 8), (12, 32), (22, 32), (23, 128), (56, 128)]
)
def test_the_larger_a_window_the_more_threads_share_it(side: int, slices: int) -> None:
    (template,) = templates_of(pooled((1, side, side, 4), (side, side), (1, 1), kind="mean"))
    assert isinstance(template, PoolWalk)
    assert template.slices == slices


def test_windows_over_many_pixels_are_not_shared() -> None:
    (template,) = templates_of(pooled((1, 200, 200, 64), (7, 7), (1, 1)))
    assert isinstance(template, PoolWalk)
    assert template.slices == 1


def test_small_windows_are_compiled_in() -> None:
    (template,) = templates_of(window("3x3, padded", "max"))
    assert isinstance(template, PoolUnrolled)


@pytest.mark.parametrize("case", ["3x3, padded", "5x5, padded", "whole image"])
def test_negative_numbers_win_over_the_padding(case: str) -> None:
    graph = window(case, "max")
    feed = np.random.default_rng(1).uniform(-9, -8, WINDOWS[case][0]).astype(np.float32)
    compare(graph, feeds=[feed])


@pytest.mark.parametrize("case", ["2x2", "whole image"])
def test_the_maximum_passes_over_nan_and_finds_infinity(case: str) -> None:
    graph = window(case, "max")
    feed = np.full(WINDOWS[case][0], np.nan, np.float32)
    feed[:, 1::2] = -np.inf
    feed[:, 1::4, 1::2] = 3
    feed[:, 3, 3] = np.inf
    compare(graph, feeds=[feed])


@pytest.mark.parametrize("case", ["2x2", "whole image"])
def test_the_mean_keeps_nan(case: str) -> None:
    feed = np.full(WINDOWS[case][0], np.nan, np.float32)
    (found,) = run(window(case, "mean"), [feed])
    assert np.isnan(found).all()


EXTRA = Epilogue(RESULT + Arg(1) * Arg(2), ((Reach.ELEMENT, Element.FLOAT32), (Reach.CHANNEL, Element.FLOAT32)))
FLOATS = Element.FLOAT32, Element.FLOAT32, 0, None
HALVES = Element.FLOAT16, Element.FLOAT16, 0, None


def test_templates_compile_everywhere_without_spills() -> None:
    assert_compiles_everywhere(
        [
            PoolUnrolled("max", 4, *FLOATS, EXTRA, (3, 3)),
            PoolUnrolled("mean", 8, *HALVES, EXTRA, (3, 3)),
            PoolWalk("max", 8, *HALVES, EXTRA, 1),
            PoolWalk("mean", 4, *FLOATS, EXTRA, 8),
            PoolWalk("mean", 8, *HALVES, EXTRA, 128),
            PoolWalk("max", 1, Element.FLOAT16, Element.FLOAT32, 0, None, EXTRA, 32),
        ]
    )
