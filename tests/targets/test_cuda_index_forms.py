"""Index forms on CUDA, in the simulator, against their numpy references."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.index_forms import ArgReduce, TopK
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import stored_between
from tests.targets.index_graphs import EXAMPLES, Example, graph_of


def check(example: Example, **options: str) -> np.ndarray:
    form, feeds, shape, dtype = example
    graph = graph_of(form, feeds, shape, dtype)
    (found,) = run(graph, feeds, **options)
    (expected,) = run_graph(graph, feeds)
    np.testing.assert_array_equal(found, expected, strict=True)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_form_of_places_is_as_the_reference_has_it(name: str) -> None:
    check(EXAMPLES[name], schedule="random")


@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_is_the_extreme_only_where_it_comes_first(kind: str) -> None:
    for axis in (0, 1):
        data = np.random.default_rng(0).uniform(-1, 1, (40, 40)).astype(np.float32)
        data[::3, 1::2] = data[0, 0] = np.nan
        check((ArgReduce(kind=kind, axis=axis), [data], (40,), "int32"))


def test_infinities_and_zeros_of_both_signs_are_ranked() -> None:
    data = np.array([[0.0, -np.inf, -0.0, np.inf, 0.0, -np.inf, -1.0]], np.float32)
    assert check((TopK(), [data], (1, 7), "int32")).tolist() == [[3, 0, 2, 4, 6, 1, 5]]


def test_more_elements_than_threads_are_shared_among_them() -> None:
    data = np.random.default_rng(0).integers(0, 300, (2, 700)).astype(np.float32)
    check((TopK(), [data], (2, 9), "int32"))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["middle axis", "sums of columns", "largest of long rows", "top of rows", "boxes"])
def test_16_bit_elements_are_read_and_written(name: str, precision: str) -> None:
    """They come from a kernel that doubles each element, and what is made of them is halved."""
    form, feeds, shape, dtype = EXAMPLES[name]
    feeds = [np.trunc(feed * 8) / 8 if feed.dtype == np.float32 else feed // 2 for feed in feeds]
    graph = stored_between(graph_of(form, feeds, shape, dtype))
    np.testing.assert_array_equal(run(graph, feeds, precision=precision), run_graph(graph, feeds))


def test_forms_of_places_compile_everywhere_without_local_memory() -> None:
    names = ("two axes", "rows by int64", "int8 data", "int64 sums", "largest of rows", "largest of very long rows")
    graphs = [
        graph_of(*EXAMPLES[name])
        for name in (*names, "smallest of middles", "top int32", "boxes", "scattered over two axes")
    ]
    assert_compiles_everywhere(list(dict.fromkeys(t for graph in graphs for t in templates_of(graph))))
