"""The precisions of 16 bits on AArch64: products and short sums of float16, and products of pairs of bfloat16, against
numpy's products of float32."""

from __future__ import annotations

import re

import numpy as np
import pytest

from jitdelegate.base.targets import BFLOAT16, FLOAT16, LEVELS
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.host import levels
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.precision_graphs import EVERY, EXACT_MATRICES, MATRICES, contract_graph, feeds_of, matrices_graph

HALVES = [name for name, level in LEVELS.items() if level.has_half_sums]
LARGEST_ERROR = 2.0**-8
"""Root mean square of a result's errors over that of its values: each of the 64 sums of a segment is rounded to eleven
bits."""


def check(found: np.ndarray, expected: np.ndarray) -> None:
    """A whole sum of float16 would have several times the error."""
    error = np.sqrt(np.mean((found.astype(np.float64) - expected) ** 2) / np.mean(expected.astype(np.float64) ** 2))
    assert error < LARGEST_ERROR


@pytest.mark.parametrize("features", HALVES)
@pytest.mark.parametrize("name", EVERY)
def test_sums_of_halves_are_those_of_float32_but_for_rounding(name: str, features: str) -> None:
    if features not in levels():
        pytest.skip(f"the CPU has no {features}")
    graph = contract_graph(name)
    feeds = feeds_of(graph)
    check(execute(graph, feeds, features, precision=FLOAT16)[0], run_graph(graph, feeds)[0])


@pytest.mark.parametrize("features", HALVES)
@pytest.mark.parametrize("name", MATRICES)
def test_two_matrices_are_multiplied_in_float16(name: str, features: str) -> None:
    if features not in levels():
        pytest.skip(f"the CPU has no {features}")
    graph = matrices_graph(name)
    feeds = feeds_of(graph)
    check(execute(graph, feeds, features, precision=FLOAT16)[0], run_graph(graph, feeds)[0])


@pytest.mark.parametrize("features", HALVES)
@pytest.mark.parametrize("scale", [0.01, 0.003])
def test_products_below_the_normal_numbers_of_float16_are_summed_up(scale: float, features: str) -> None:
    if features not in levels():
        pytest.skip(f"the CPU has no {features}")
    graph = matrices_graph("rows")
    feeds = [np.float32(scale) * each for each in feeds_of(graph)]
    check(execute(graph, feeds, features, precision=FLOAT16)[0], run_graph(graph, feeds)[0])


@pytest.mark.parametrize(("name", "is_paired"), [("rows", True), ("window", False), ("few pixels", False)])
def test_pairs_of_bfloat16_are_not_read_from_blocks_of_four_channels(name: str, is_paired: bool) -> None:
    graph, texts = contract_graph(name), dict[str, str]()
    generate(graph, "aarch64-i8mm", lambda stage, make: texts.update({stage: make()}), precision=BFLOAT16)
    assert ("bfdot" in texts["assembly"]) is is_paired
    if "aarch64-i8mm" in levels():
        feeds = feeds_of(graph)
        check(execute(graph, feeds, "aarch64-i8mm", precision=BFLOAT16)[0], run_graph(graph, feeds)[0])


@pytest.mark.parametrize("features", HALVES)
@pytest.mark.parametrize("name", ["rows", "long rows", "window"])
def test_eight_halves_are_multiplied_by_one_instruction(name: str, features: str) -> None:
    texts: dict[str, str] = {}
    generate(contract_graph(name), features, lambda stage, make: texts.update({stage: make()}), precision=FLOAT16)
    assert re.search(r"fmla\tv\d+.8h, v\d+.8h, v\d+.h\[3]", texts["assembly"])


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_of_which_each_panel_meets_many_rows_are_halves(name: str) -> None:
    texts: dict[str, str] = {}
    generate(matrices_graph(name), HALVES[0], lambda stage, make: texts.update({stage: make()}), precision=FLOAT16)
    assert (re.search(r"fmla\tv\d+.8h", texts["assembly"]) is None) == (name in EXACT_MATRICES)


def test_weights_that_float16_cannot_hold_stay_float32() -> None:
    weights = np.random.default_rng(8).normal(0, 1, (70, 64)).astype(np.float32)
    weights[3, 5] = 7e4
    made = {
        precision: generate(contract_graph("rows", weights), HALVES[0], precision=precision)
        for precision in ("float32", FLOAT16)
    }
    assert made["float32"].weights == made[FLOAT16].weights
