"""Integer sections between float ones and LiteRT's operators: every way to run a model gives LiteRT's bits."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api.partial_models import LOADERS, ROADS
from tests.api.test_interpreter import same

SHAPE = (1, 5, 5, 6)
SECTIONS = {
    "all": None,
    "convolution": ("CONV_2D", "ADD"),
    "around it": ("LOGISTIC", "QUANTIZE", "DEQUANTIZE", "TANH"),
    "every other": ("CONV_2D", "LOGISTIC", "TANH", "RESHAPE"),
}
"""The operators that are compiled."""


def mixed(dtype: str, *, open_batch: bool = True) -> bytes:
    """[?,5,5,4] of `dtype` -> CONV_2D, ADD, LOGISTIC, DEQUANTIZE, TANH, QUANTIZE, RESHAPE; three of them are outputs."""
    dice, model = np.random.default_rng(0), ModelBuilder()
    middle = 128 if dtype == "uint8" else 0

    def op(name: str, inputs: list[int | None], scale: float, zero: int, **options: object) -> int:
        quant = Quant((scale,), (zero + middle,)) if scale else None
        shape = (1, 150) if name == "RESHAPE" else SHAPE
        return model.op(name, inputs, shape, dtype=dtype if scale else "float32", quant=quant, options=options)

    signature = (-1, 5, 5, 4) if open_batch else None
    x = model.input((1, 5, 5, 4), dtype, quant=Quant((0.05,), (3 + middle,)), shape_signature=signature, name="x")
    by_channel = Quant(tuple(dice.uniform(0.001, 0.01, 6)), (0,) * 6)
    filters = dice.integers(-127, 128, (6, 3, 3, 4))
    if dtype == "uint8":
        by_channel, filters = Quant((0.004,), (120,)), filters + 127
    weights = model.constant(filters.astype(dtype), quant=by_channel)
    bias = model.constant(
        dice.integers(-999, 999, 6).astype(np.int32),
        quant=Quant(tuple(0.05 * each for each in by_channel.scales), (0,) * len(by_channel.scales)),
    )
    strides = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    found = op("CONV_2D", [x, weights, bias], 0.1, -5, **strides, fused_activation_function="RELU")
    total = op("ADD", [found, found], 0.2, 7)
    soft = op("TANH", [op("DEQUANTIZE", [op("LOGISTIC", [total], 1 / 256, -128)], 0.0, 0)], 0.0, 0)
    stored = op("QUANTIZE", [soft], 1 / 128, 0)
    rows = op("RESHAPE", [stored, model.constant(np.array([-1, 150], np.int32))], 1 / 128, 0, new_shape=[-1, 150])
    model.output(rows, total, soft)
    return model.finish()


def rounds_of(dtype: str, batches: tuple[int, ...]) -> list[list[np.ndarray]]:
    dice, limits = np.random.default_rng(1), np.iinfo(dtype)
    return [[dice.integers(limits.min, limits.max + 1, (size, 5, 5, 4)).astype(dtype)] for size in batches]


@pytest.mark.parametrize("api", list(ROADS))
@pytest.mark.parametrize("only", list(SECTIONS))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sections_of_integers_pass_stored_numbers_on(dtype: str, only: str, api: str) -> None:
    content = mixed(dtype)
    rounds = rounds_of(dtype, (1, 1, 3))
    wanted = partial.invoked(LiteRT(model_content=content), rounds)
    partial.assert_same(ROADS[api](content, rounds, only_ops=SECTIONS[only]), wanted)


@pytest.mark.parametrize("loader", LOADERS)
def test_sections_beside_and_inside_litert(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, loader)
    content, rounds = mixed("int8", open_batch=False), rounds_of("int8", (1, 1))
    options = partial.options(only_ops=SECTIONS["every other"])
    with jitdelegate.load(content, options=options) as model:
        assert model._opened.program.loader == loader
        assert {each.place for each in model.report().operators} == {"cpu", "litert"}
        wanted = partial.invoked(LiteRT(model_content=content), rounds)
        partial.assert_same(partial.called(model, rounds), wanted)


@pytest.mark.parametrize("only", list(SECTIONS))
def test_details_of_quantized_tensors_are_litert_s(only: str) -> None:
    content = mixed("int8")
    ours, theirs = partial.interpreter(content, only_ops=SECTIONS[only]), LiteRT(model_content=content)
    for interpreter in (ours, theirs):
        interpreter.allocate_tensors()
    assert same(ours.get_input_details(), theirs.get_input_details())
    assert same(ours.get_output_details(), theirs.get_output_details())
    assert same(ours.get_tensor_details()[1:3], theirs.get_tensor_details()[1:3])  # scales by channel
