"""Forms of places on the CPU, on every instruction set, against their numpy references."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.index_forms import ArgReduce, TopK
from tests.ops.form_reference import run_graph
from tests.targets.execute import execute
from tests.targets.index_graphs import EXAMPLES, Example, graph_of
from tests.targets.test_cpu_ops import RUNNABLE


def check(example: Example, features: str, threads: int = 1) -> np.ndarray:
    form, feeds, shape, dtype = example
    graph = graph_of(form, feeds, shape, dtype)
    (found,) = execute(graph, feeds, features, threads=threads)
    (expected,) = run_graph(graph, feeds)
    assert (found.dtype, found.shape) == (np.dtype(dtype), shape)
    np.testing.assert_array_equal(found, expected)
    return found


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_form_of_places_is_as_the_reference_has_it(name: str, features: str) -> None:
    check(EXAMPLES[name], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_is_the_extreme_only_where_it_comes_first(kind: str, features: str) -> None:
    for axis in (0, 1):
        data = np.random.default_rng(0).uniform(-1, 1, (40, 40)).astype(np.float32)
        data[::3, 1::2] = data[0, 0] = np.nan
        check((ArgReduce(kind=kind, axis=axis), [data], (40,), "int32"), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_infinities_and_zeros_of_both_signs_are_ranked(features: str) -> None:
    data = np.array([[0.0, -np.inf, -0.0, np.inf, 0.0, -np.inf, -1.0]], np.float32)
    found = check((TopK(), [data], (1, 7), "int32"), features)
    assert found.tolist() == [[3, 0, 2, 4, 6, 1, 5]]


def test_many_rows_are_shared_among_threads() -> None:
    for name in ("rows", "sums of rows", "largest of rows", "top of rows"):
        form, (data, *others), shape, dtype = EXAMPLES[name]
        repeated = np.tile(data, (1, 1)) if name == "rows" else np.tile(data, (1000, 1))
        rows = shape if name == "rows" else (len(repeated), *shape[1:])
        check((form, [repeated, *others], rows, dtype), RUNNABLE[-1], threads=3)
