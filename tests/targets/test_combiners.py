"""Kinds of reductions: what every row promises, and that a further row is all that a kind takes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest

from jitdelegate.ir.combiners import COMBINERS, A, B, Combiner
from jitdelegate.ir.expr import Arg, binary, evaluate, unary
from jitdelegate.ir.forms import Form, Normalize, Reduce, Shape, Statistic
from jitdelegate.ir.index_forms import Scatter
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.index_graphs import graph_of
from tests.targets.levels import RUNNABLE

VALUES = {
    "float32": np.array([-inf, -2.5, -0.0, 1e-30, 3.0, inf], np.float32),
    **{dtype: np.array([0, 1, 5, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype) for dtype in ("int32", "int64")},
    **{dtype: np.array([0, 1, 5, np.iinfo(dtype).max], dtype) for dtype in ("int8", "uint8", "int16")},
    "bool": np.array([False, True]),
}
FURTHER = {
    "log_sum": Combiner(-inf, unary("log", unary("exp", A) + unary("exp", B))),
    "parity": Combiner(0, binary("xor", A, B)),
}
FLOATS = np.random.default_rng(0).uniform(-2, 2, (19, 41)).astype(np.float32)
WHOLE = np.random.default_rng(1).integers(-(2**31), 2**31, (19, 41)).astype(np.int32)


@pytest.mark.parametrize("kind", COMBINERS)
@pytest.mark.parametrize("dtype", VALUES)
def test_the_identity_and_the_order_change_nothing(kind: str, dtype: str) -> None:
    """So a reduction of one element may be a View, and threads and lanes may combine elements in any order."""
    combiner, values = COMBINERS[kind], VALUES[dtype]
    if dtype == "bool" and kind not in ("max", "min"):
        pytest.skip("truth values are not added")
    identity = np.full_like(values, combiner.identity_of(dtype))
    for step in (combiner.step, combiner.step_of(dtype)):
        np.testing.assert_array_equal(evaluate(step, [identity, values]), values)
        np.testing.assert_array_equal(evaluate(step, [values, identity]), values)
        other = values[::-1]
        with np.errstate(invalid="ignore", over="ignore"):
            np.testing.assert_array_equal(evaluate(step, [values, other]), evaluate(step, [other, values]))


def every_target(form: Form, feeds: Sequence[np.ndarray], shape: Shape) -> None:
    """Compares all targets with the reference target, which gets its results from the same row."""
    graph = graph_of(form, feeds, shape, str(feeds[0].dtype))
    (expected,) = run_graph(graph, list(feeds))
    for level in RUNNABLE:
        np.testing.assert_allclose(execute(graph, list(feeds), level)[0], expected, rtol=1e-5)
    from tests.targets import cuda_execute  # skips where there is no compiler for GPUs

    np.testing.assert_allclose(cuda_execute.run(graph, feeds)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("kind, data", [("log_sum", FLOATS), ("parity", WHOLE)])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_row_is_a_reduction_on_every_target(
    kind: str, data: np.ndarray, axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMBINERS, kind, FURTHER[kind])
    every_target(Reduce(kind=kind, axes=axes), [data], tuple(np.delete(data.shape, axes).tolist()))


def test_the_reference_of_a_further_kind_is_what_its_row_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, data, function in (("log_sum", FLOATS, np.logaddexp), ("parity", WHOLE, np.bitwise_xor)):
        monkeypatch.setitem(COMBINERS, kind, FURTHER[kind])
        graph = graph_of(Reduce(kind=kind, axes=(1,)), [data], (19,), str(data.dtype))
        np.testing.assert_allclose(run_graph(graph, [data])[0], function.reduce(data, axis=1), rtol=1e-5)


def test_a_row_combines_updates_and_statistics_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMBINERS, "log_sum", FURTHER["log_sum"])
    places = np.random.default_rng(2).integers(0, 5, (19, 1)).astype(np.int32)
    every_target(Scatter(kind="log_sum", initial=-1.0), [FLOATS, places], (5, 41))
    shares = Normalize(axes=(1,), statistics=(Statistic("log_sum", Arg(0)),), result=unary("exp", Arg(0) - Arg(1)))
    every_target(shares, [FLOATS], FLOATS.shape)
