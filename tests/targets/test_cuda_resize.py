"""Resizing on CUDA: both kinds of sampling with all options, of every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Expr, maximum
from jitdelegate.ir.forms import IndexMap, Resize
from jitdelegate.ir.graph import Graph
from jitdelegate.ops.resize import nearest_places
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.forms import resize
from jitdelegate.targets.cuda.forms.resize import ResizeTemplate
from jitdelegate.targets.planning.epilogue import Reach
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import TOLERANCES, Shape, compare, graph_of, stored_between

KINDS = ["bilinear", "nearest"]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "align_corners": {"align_corners": True},
    "half_pixel_centers": {"half_pixel_centers": True},
}
SIZES = {
    "twice": ((1, 4, 5, 8), (8, 10)),
    "to three quarters": ((2, 8, 4, 3), (6, 3)),
    "by odd factors": ((1, 5, 7, 33), (9, 3)),
    "from one pixel": ((1, 1, 1, 5), (3, 4)),
    "to one pixel": ((2, 6, 7, 4), (1, 1)),
    "to the same size": ((1, 3, 3, 2), (3, 3)),
    "more than a block": ((1, 3, 3, 20), (11, 13)),
}


def resized(
    data: Shape,
    size: tuple[int, int],
    kind: str = "bilinear",
    options: str = "plain",
    epilogue: Expr = RESULT,
    operands: tuple[Shape, ...] = (),
) -> Graph:
    """A node whose data and further operands are the graph's inputs."""
    output = (data[0], *size, data[3])
    accesses = tuple(IndexMap.broadcast(shape, output) for shape in operands)
    return graph_of(Resize(epilogue, accesses, kind, **OPTIONS[options]), [data, *operands], output)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", SIZES)
def test_resizing_agrees_with_the_reference(case: str, kind: str, options: str) -> None:
    compare(resized(*SIZES[case], kind, options), schedule="random", seed=5)


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_computes_several_pixels_of_large_images(
    kind: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resize, "fills", lambda gpu, threads: True)
    graph = resized((2, 3, 5, channels), (9, 13), kind)
    (template,) = templates_of(graph)
    assert isinstance(template, ResizeTemplate) and template.height == 4
    compare(graph)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["twice", "by odd factors"])
def test_resizing_16_bit_elements_agrees_with_the_reference(case: str, kind: str, precision: str) -> None:
    compare(stored_between(resized(*SIZES[case], kind)), precision, tolerance=2 * TOLERANCES[precision])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("size", "count"), [(7, 29), (29, 7), (31, 93), (13, 26), (100, 33)])
def test_the_nearest_pixel_is_that_of_litert_to_the_last_rounding(size: int, count: int, options: str) -> None:
    feed = np.arange(size, dtype=np.float32).reshape(1, 1, size, 1)
    (found,) = run(resized(feed.shape, (1, count), "nearest", options), [feed])
    chosen = OPTIONS[options]
    places = nearest_places(size, count, chosen.get("align_corners", False), chosen.get("half_pixel_centers", False))
    np.testing.assert_array_equal(found.ravel(), places)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_epilogue_reads_its_operands_at_the_result(precision: str, kind: str) -> None:
    shapes = (2, 6, 7, 8), (2, 6, 7, 1)
    graph = resized((2, 3, 4, 8), (6, 7), kind, epilogue=maximum(RESULT + Arg(1), 0.0) * Arg(2), operands=shapes)
    compare(stored_between(graph), precision, tolerance=8 * TOLERANCES[precision])


def test_images_of_many_sizes_share_one_template() -> None:
    first, second = (templates_of(resized((1, 4, 4, 8), size)) for size in ((8, 8), (16, 5)))
    assert first == second


EXTRA = Epilogue(RESULT + Arg(1) * Arg(2), ((Reach.ELEMENT, Element.FLOAT32), (Reach.CHANNEL, Element.FLOAT32)))


def test_templates_compile_everywhere_without_spills() -> None:
    assert_compiles_everywhere(
        [
            ResizeTemplate("bilinear", "float32", 4, Element.FLOAT32, Element.FLOAT32, EXTRA),
            ResizeTemplate("bilinear", "float32", 8, Element.FLOAT16, Element.FLOAT16, EXTRA, 2),
            ResizeTemplate("nearest", "float32", 1, Element.FLOAT16, Element.FLOAT32, EXTRA),
        ]
    )
