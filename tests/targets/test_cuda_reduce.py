"""Reduce on CUDA: every kind over every sort of axes, from a single element to long sums in two launches."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, maximum
from jitdelegate.ir.forms import IndexMap, Reduce
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.host import level
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import Shape, compare, graph_of, stored_between
from tests.targets.execute import execute

KINDS = ("mean", "sum", "max", "min", "prod")
EMPTY = {"max": -np.inf, "min": np.inf}


def reduced(shape: Shape, *axes: int, kind: str = "mean", keep: bool = False) -> Graph:
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
    return graph_of(Reduce(kind=kind, axes=axes), [shape], kept)


CASES = {
    "one element": reduced((1, 1), 0, 1),
    "nothing": reduced((3, 4)),
    "image": reduced((2, 7, 7, 32), 1, 2),
    "image of odd channels": reduced((1, 5, 6, 33), 1, 2, keep=True),
    "few channels": reduced((1, 40, 41, 3), 1, 2),
    "channels": reduced((1, 9, 31, 2), 3, keep=True),
    "rows": reduced((5, 33), 1),
    "rows of vectors": reduced((70, 64), 1),
    "everything": reduced((3, 1025), 0, 1),
    "columns": reduced((300, 8), 0),
    "every other axis": reduced((3, 4, 5, 6), 0, 2),
    "every other axis from the second": reduced((3, 4, 5, 6), 1, 3),
    "rank 6": reduced((2, 3, 2, 2, 3, 4), 0, 3, 5),
    "long row": reduced((1, 70_000), 1),
    "long columns": reduced((9_000, 4), 0, keep=True),
    "long odd columns": reduced((9_000, 3), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mean_is_as_the_reference_has_it(case: str) -> None:
    compare(CASES[case], schedule="random", seed=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [(1,), (0,)])
def test_every_kind_is_as_the_reference_has_it(kind: str, axes: tuple[int, ...]) -> None:
    compare(reduced((21, 20), *axes, kind=kind), tolerance=1e-5)


def data_with_nan() -> np.ndarray:
    data = np.random.default_rng(0).uniform(1, 2, (40, 40)).astype(np.float32)
    data[np.arange(0, 40, 2), np.arange(1, 40, 2)] = data[5] = np.nan
    data[3, 4] = np.inf
    return data


@pytest.mark.parametrize("kind", ["mean", "sum", "prod"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_nan_stays_wherever_it_stands(kind: str, axis: int) -> None:
    compare(reduced((40, 40), axis, kind=kind), feeds=[data_with_nan()], tolerance=1e-5)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_pass_over_nan_as_on_the_cpu(kind: str, axis: int) -> None:
    graph, data = reduced((40, 40), axis, kind=kind), data_with_nan()
    for found in (run(graph, [data]), execute(graph, [data], level())):
        np.testing.assert_array_equal(*found, getattr(np, f"f{kind}").reduce(data, axis, initial=EMPTY[kind]))


def test_a_long_sum_keeps_its_precision() -> None:
    data = np.random.default_rng(0).uniform(0, 1, (1, 400_000)).astype(np.float32)
    compare(reduced((1, 400_000), 1, kind="sum"), feeds=[data], tolerance=1e-6)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", ["image", "image of odd channels", "rows of vectors", "long columns"])
def test_a_mean_of_16_bit_elements_is_computed_in_float32(case: str, precision: str) -> None:
    compare(stored_between(CASES[case]), precision)


@pytest.mark.parametrize("shape", [(1, 6, 6, 8), (2, 6, 6, 9)])
def test_an_epilogue_reads_channels_scalars_and_elements(shape: Shape) -> None:
    output = (shape[0], 1, 1, shape[3])
    operands = [(shape[3],), (1,), output]
    expr = maximum(RESULT * Arg(1) + Arg(2), 0.0) + Arg(3)
    form = Reduce(expr, tuple(IndexMap.broadcast(operand, output) for operand in operands), "mean", (1, 2))
    compare(graph_of(form, [shape, *operands], output))


def test_an_epilogue_runs_once_after_a_sum_in_two_launches() -> None:
    form = Reduce(RESULT * 2 + Arg(1), (IndexMap.broadcast((3,), (3,)),), "sum", (0,))
    graph = graph_of(form, [(9_000, 3), (3,)], (3,))
    assert len(templates_of(graph)) == 2
    compare(graph, tolerance=1e-5)


def test_reductions_compile_everywhere_without_local_memory() -> None:
    cases = ("image", "channels", "long row", "long odd columns", "rank 6", "every other axis")
    assert_compiles_everywhere([template for case in cases for template in templates_of(CASES[case])])
    half = [stored_between(CASES[case]) for case in ("image", "rows of vectors")]
    assert_compiles_everywhere([template for graph in half for template in templates_of(graph, precision="float16")])
