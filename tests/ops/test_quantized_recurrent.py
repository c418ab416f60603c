"""Recurrent operators of quantized data give what LiteRT gives, bit for bit, run after run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import load
from jitdelegate.base.targets import AARCH64, X86_64
from jitdelegate.errors import DelegateWarning
from jitdelegate.ops import OPS
from jitdelegate.passes.functional_state import functional_state
from jitdelegate.runtime.cache.key import this_cpu
from jitdelegate.tflite.read import read
from scripts import litert_answers
from tests.ops.quantized_models import BasicLstmModel, LiteRT, LstmModel, SvdfModel, numbers

MANY = LstmModel(outputs=21, units=40, batch=3, hidden=(0.009, 5))
MODELS = {
    "plain": LstmModel(),
    "batch major": LstmModel(time_major=False, batch=3),
    "one sequence, whole vectors": LstmModel(batch=1, units=32, depth=64, time_major=False),
    "zero point": LstmModel(zero=7),
    "another hidden value than the output": LstmModel(hidden=(0.005, 9)),
    "clipped": LstmModel(cell_clip=3.0),
    "clipped by the type": LstmModel(cell_clip=20.0, power=-11),
    "largest states": LstmModel(power=-9, bias=300000, steps=50, units=5),
    "smallest states": LstmModel(power=-15),
    "coupled": LstmModel(coupled=True),
    "peepholes": LstmModel(peepholes=True),
    "peepholes, coupled": LstmModel(peepholes=True, coupled=True),
    "small numbers for peepholes": LstmModel(peepholes=True, units=40, batch=3, steps=9, peephole=(2.0**-3, 9)),
    "projection": LstmModel(outputs=12, hidden=(0.009, 5)),
    "projection of values beyond a byte": LstmModel(outputs=12, hidden=(0.005, -60)),
    "projection of many": MANY,
    "projection of many, batch major": replace(MANY, time_major=False),
    "peepholes, projection of many": replace(MANY, peepholes=True, peephole=(2.0**-8, 127)),
    "clipped projection": LstmModel(outputs=12, proj_clip=0.3, coupled=True),
    "layer norm": LstmModel(norm=True),
    "layer norm of gates of other scales": LstmModel(norm=True, gates=(0.0009, 0.0001, 0.0023, 0.0004)),
    "layer norm, peepholes, coupled": LstmModel(norm=True, peepholes=True, coupled=True),
    "layer norm, projection, one step": LstmModel(op="LSTM", norm=True, outputs=12, hidden=(0.009, 5)),
    "layer norm of gates that hardly vary": LstmModel(norm=True, gates=(0.4, 0.7, 0.9, 2.0)),
    "layer norm of gates at their limits": LstmModel(norm=True, gates=(1e-6,) * 4),
    "another activation, which LiteRT ignores": LstmModel(activation="RELU"),
    "no activation": LstmModel(activation="NONE", op="LSTM"),
    "peepholes, projection": LstmModel(outputs=12, peepholes=True, batch=3),
    "peepholes, projection, batch major": LstmModel(outputs=12, peepholes=True, batch=3, time_major=False),
    "peepholes, projection, one step": LstmModel(op="LSTM", outputs=5, peepholes=True, coupled=True, norm=True),
    "one step": LstmModel(op="LSTM"),
    "svdf": SvdfModel(),
    "svdf of one filter, no bias": SvdfModel(units=16, rank=1, bias=False),
    "svdf of no memory": SvdfModel(length=1, rank=1),
}


ON_AARCH64 = {
    "projection of many": "3caef960",
    "projection of many, batch major": "dc3ea89b",
    "peepholes, projection of many": "b58b7346",
}
"""Digests of what LiteRT answers there, as `scripts.litert_answers` computes them."""
COMPILED = (
    *("plain", "projection", "projection of values beyond a byte", "peepholes, coupled"),
    *("layer norm of gates of other scales", "svdf"),
)
CASES = [
    *((name, "reference", "litert") for name in MODELS),
    *((name, "cpu", rounding) for name in COMPILED for rounding in ("litert", "reference")),
]


@pytest.mark.parametrize("name, target, rounding", CASES)
def test_runs_one_after_another_are_what_litert_computes(name: str, target: str, rounding: str) -> None:
    model = MODELS[name]
    if isinstance(model, LstmModel) and model.norm and this_cpu() == AARCH64:
        pytest.skip("layer normalization is left to LiteRT here")
    content, random = model.content(), np.random.default_rng(3)
    shape = (model.batch, model.depth) if isinstance(model, SvdfModel) else model.data_shape
    theirs, ours = LiteRT(content, rounding), load(content, target=target, quantized_rounding=rounding)
    assert ours.report().target == target, str(ours.report())
    for number in range(3):
        data = numbers(random, shape, "int8")
        expected = theirs.run(data)
        assert len(np.unique(expected)) > 8
        np.testing.assert_array_equal(ours(data), expected, err_msg=f"run {number}")
    ours.reset_all_variables()
    data = numbers(random, shape, "int8")
    np.testing.assert_array_equal(ours(data), LiteRT(content, rounding).run(data), err_msg="after a reset")


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("zero, scale", [(131, 2.0**-15), (128, 2.0**-15), (100, 7e-6)])
def test_a_basic_lstm_writes_what_litert_writes_run_after_run(zero: int, scale: float, target: str) -> None:
    model, random = BasicLstmModel(zero=zero, bias_scale=scale), np.random.default_rng(3)
    theirs, ours = LiteRT(model.content()), load(model.content(), target=target)
    assert ours.report().target == target, str(ours.report())
    for number in range(3):
        data = numbers(random, model.data_shape, "uint8")
        expected = theirs.outputs(data)
        assert all(len(np.unique(each)) > 8 for each in expected)
        for found, wanted in zip(ours(data), expected, strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"run {number}")


@pytest.mark.parametrize("name, answers", ON_AARCH64.items())
def test_projected_values_are_those_of_litert_on_aarch64_and_others_on_x86_64(name: str, answers: str) -> None:
    content = MODELS[name].content()
    assert litert_answers.ours(content, AARCH64) == answers
    assert litert_answers.ours(content, X86_64) not in ("", answers)


def test_a_layer_norm_is_left_to_litert_on_aarch64() -> None:
    graph = functional_state(read(LstmModel(norm=True).content()))
    (node,) = graph.nodes
    assert OPS[node.op].check(graph, node) is None
    there = replace(graph, quantized=replace(graph.quantized, cpu=AARCH64))
    assert "LiteRT computes otherwise on aarch64" in str(OPS[node.op].check(there, node))


REFUSED = {
    "the scale of the cell state is": LstmModel(power=-16),
    "from 2**-15 to 2**-9": LstmModel(power=-8),
    "more outputs than units": LstmModel(outputs=19, peepholes=True),
    "the zero point of 'hidden' is 128": LstmModel(outputs=12, hidden=(0.005, -128)),
    "LiteRT runs 2**-11 only": BasicLstmModel(state=2.0**-12),
    "400 steps of quantized data take 1200 kernels, over 1024": LstmModel(steps=400, units=2, depth=2),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_litert_computes_otherwise_stays_there(reason: str) -> None:
    with pytest.warns(DelegateWarning, match=reason.replace("*", r"\*")):
        assert load(REFUSED[reason].content(), target="cpu").report().target == "litert"
