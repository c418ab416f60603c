"""Integer sections between float ones and LiteRT's operators: every way to run a model gives LiteRT's bits."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from tests.api import partial_models as partial
from tests.api import small_models
from tests.api.partial_models import LOADERS, ROADS
from tests.api.test_interpreter import same

SECTIONS = {
    "all": None,
    "convolution": ("CONV_2D", "ADD"),
    "around it": ("LOGISTIC", "QUANTIZE", "DEQUANTIZE", "TANH"),
    "every other": ("CONV_2D", "LOGISTIC", "TANH", "RESHAPE"),
}
"""The operators that are compiled."""


def rounds_of(dtype: str, batches: tuple[int, ...]) -> list[list[np.ndarray]]:
    dice, limits = np.random.default_rng(1), np.iinfo(dtype)
    return [[dice.integers(limits.min, limits.max + 1, (size, 5, 5, 4)).astype(dtype)] for size in batches]


@pytest.mark.parametrize("api", list(ROADS))
@pytest.mark.parametrize(("dtype", "only"), [*(("int8", each) for each in SECTIONS), ("uint8", "every other")])
def test_sections_of_integers_pass_stored_numbers_on(dtype: str, only: str, api: str) -> None:
    content = small_models.integers_and_floats(dtype)
    rounds = rounds_of(dtype, (1, 1, 3))
    wanted = partial.invoked(LiteRT(model_content=content), rounds)
    partial.assert_same(ROADS[api](content, rounds, only_ops=SECTIONS[only]), wanted)


@pytest.mark.parametrize("loader", LOADERS)
def test_sections_beside_and_inside_litert(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, loader)
    content, rounds = small_models.integers_and_floats("int8", open_batch=False), rounds_of("int8", (1, 1))
    options = partial.options(only_ops=SECTIONS["every other"])
    with jitdelegate.load(content, options=options) as model:
        assert model._opened.program.loader == loader
        found = [(each.op, each.place, each.execution) for each in model.report().operators]
        assert found[:3] == [("CONV_2D", "cpu", "integer"), ("ADD", "litert", ""), ("LOGISTIC", "cpu", "integer")]
        assert ("TANH", "cpu", "") in found
        wanted = partial.invoked(LiteRT(model_content=content), rounds)
        partial.assert_same(partial.called(model, rounds), wanted)


@pytest.mark.parametrize("api", list(ROADS))
def test_variables_of_integers_keep_their_values(api: str) -> None:
    content = small_models.narrow_state("int16")
    rounds = [[np.array([[step, -7 * step, 3 * step, 7]], np.int8)] for step in range(5)]
    wanted = partial.invoked(LiteRT(model_content=content), rounds)
    assert wanted[1][0].tolist() != wanted[4][0].tolist()
    partial.assert_same(ROADS[api](content, rounds, only_ops=None), wanted)


def test_the_float_view_answers_nearly_the_same_and_says_so() -> None:
    content, rounds = small_models.integers_and_floats("int8"), rounds_of("int8", (1, 1))
    wanted = partial.invoked(LiteRT(model_content=content), rounds)
    with jitdelegate.load(content, target="cpu", serialization_dir=False, quantized_execution="float_view") as model:
        ways = {each.op: each.execution for each in model.report().operators}
        assert ways == dict.fromkeys(ways, "float_view") | {"TANH": "", "DEQUANTIZE": ""}  # which has nothing to do
        for ours, theirs in zip(partial.called(model, rounds), wanted, strict=True):
            assert all(np.abs(a - b.astype(np.float32)).max() <= 2 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("only", list(SECTIONS))
def test_details_of_quantized_tensors_are_litert_s(only: str) -> None:
    content = small_models.integers_and_floats("int8")
    ours, theirs = partial.interpreter(content, only_ops=SECTIONS[only]), LiteRT(model_content=content)
    for interpreter in (ours, theirs):
        interpreter.allocate_tensors()
    assert same(ours.get_input_details(), theirs.get_input_details())
    assert same(ours.get_output_details(), theirs.get_output_details())
    assert same(ours.get_tensor_details()[1:3], theirs.get_tensor_details()[1:3])  # scales by channel
