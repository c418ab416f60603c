"""Choices between kernels: tuned candidates, the cost model's, and what a plan asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.choices import Choices, Question, candidate, nothing, problem
from jitdelegate.targets.cuda.code.cost import cycles
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.multiply.mma_tile import TILES
from jitdelegate.targets.cuda.plan.plan import plan
from tests.targets.cuda_graphs import compare
from tests.targets.tuned_graphs import convolution, depthwise, fully_connected, product, separable

GPU = GPUS["sm_90"]


def test_problems_and_candidates_are_lines() -> None:
    elements = Element.FLOAT16, Element.INT8
    assert problem("contract_mma", elements, M=196, D=True, K="3x3") == "contract_mma float16,int8 M196 D1 K3x3"
    assert candidate(TILES[3], 2) == "64-32-2-1-2-128-4/2"
    assert candidate((4, 1, True)) == "4-1-True"


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (1, 1750),  # a block waits 10 turns of 120, 500 and 50
        (300, 1750),  # three of each multiprocessor wait together
        (401, 3500),  # a fifth one begins after four
        (2000, 20 * 450),  # many keep it busy, with 10 turns of 40 and 50 each
    ],
)
def test_blocks_take_as_long_as_they_wait_or_keep_a_multiprocessor_busy(blocks: int, expected: int) -> None:
    gpu = replace(GPU, multiprocessors=100)
    assert cycles(gpu, blocks, resident=4, turns=10, turn=40, alone=120, latency=500, ends=50) == expected


def test_the_tuned_candidate_is_taken_where_it_is_offered() -> None:
    choices = Choices({"a": "second", "b": "gone"})
    answers = [choices.answer(name, Question(nothing, ("first", "second"), 0)) for name in "aabc"]
    assert answers == ["second", "second", "first", "first"]
    assert {name: question.uses for name, question in choices.asked.items()} == {"a": 2, "b": 1, "c": 1}
    assert choices.used() == {"a": "second"}


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("make", [convolution, fully_connected, depthwise, product, separable])
def test_every_candidate_of_a_family_is_another_kernel_or_grid(make: Callable[[], Graph], precision: str) -> None:
    graph, asked = make(), Choices()
    usual = plan(graph, GPU, precision, asked).launches
    ((name, question),) = asked.asked.items()
    assert len(question.ranked) > 1
    found = {}
    for other in question.ranked:
        launches = plan(graph, GPU, precision, Choices({name: other})).launches
        found[other] = [(launch.template.text, launch.grid) for launch in launches]
    assert found[question.ranked[0]] == [(launch.template.text, launch.grid) for launch in usual]
    assert len(set(map(str, found.values()))) == len(question.ranked)
    assert usual[question.launch].template.family.startswith(name.split()[0])


@pytest.mark.parametrize("make", [fully_connected, partial(depthwise, 7, 24)], ids=["fully_connected", "depthwise"])
def test_every_candidate_computes_the_same(make: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    graph, asked = make(), Choices()
    plan(graph, GPU, "float16", asked)
    ((name, question),) = asked.asked.items()
    for other in question.ranked:
        monkeypatch.setattr("jitdelegate.targets.cuda.plan.plan.shipped", lambda gpu, taken=other: {name: taken})
        compare(graph, "float16", tolerance=1e-2)
