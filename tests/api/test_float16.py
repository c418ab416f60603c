"""A network in float16 from its inputs to its outputs, with a cache, through every interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.compiled_model import CompiledModel
from jitdelegate.tflite.write import ModelBuilder
from tests.api.partial_models import choose_loader

HALF = "float16"
CACHE = (1, 2, 8, 16)
ERROR = 2.0**-8
"""XNNPACK sums float16 in float16."""


def network() -> bytes:
    """Convolution, mean, rows, an update of the cache, attention over it."""
    dice, model = np.random.default_rng(0), ModelBuilder()

    def weights(*shape: int) -> int:
        return model.constant((0.2 * dice.normal(size=shape)).astype(HALF))

    def op(name: str, inputs: list[int], shape: tuple[int, ...], title: str = "", **options: Any) -> int:
        return model.op(name, inputs, shape, dtype=HALF, name=title, options=options)

    x, cache, place = model.input((1, 4, 4, 8), HALF), model.input(CACHE, HALF), model.input((4,), "int32")
    window = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "RELU"}
    image = op("CONV_2D", [x, weights(16, 3, 3, 8), weights(16)], (1, 4, 4, 16), **window)
    mean = op("MEAN", [image, model.constant(np.array([1, 2], np.int32))], (1, 16))
    rows = op("FULLY_CONNECTED", [mean, weights(32, 16), weights(32)], (1, 32))
    query = op("RESHAPE", [rows, model.constant(np.array([1, 2, 1, 16], np.int32))], (1, 2, 1, 16))
    kept = op("DYNAMIC_UPDATE_SLICE", [cache, query, place], CACHE)
    scores = op("SOFTMAX", [op("BATCH_MATMUL", [query, kept], (1, 2, 1, 8), adj_y=True)], (1, 2, 1, 8), beta=0.25)
    seen = op("BATCH_MATMUL", [scores, kept], (1, 2, 1, 16))
    model.output(kept, seen)
    model.signature("serve", {"x": x, "cache": cache, "place": place}, {"cache": kept, "seen": seen})
    return model.finish()


def feeds() -> dict[str, np.ndarray]:
    dice = np.random.default_rng(1)
    x, cache = (dice.normal(size=shape).astype(HALF) for shape in ((1, 4, 4, 8), CACHE))
    return {"x": x, "cache": cache, "place": np.array([0, 0, 3, 0], np.int32)}


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    outputs: dict[str, np.ndarray] = LiteRT(model_content=network()).get_signature_runner("serve")(**feeds())
    return outputs


def assert_near(found: Any, wanted: np.ndarray) -> None:
    assert (np.asarray(found).dtype, np.asarray(found).shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(np.float32(found), np.float32(wanted), rtol=ERROR, atol=ERROR)


@pytest.mark.parametrize("target", ["cpu", "reference", "litert"])
def test_a_model_and_its_session_take_and_give_arrays(target: str, expected: dict[str, np.ndarray]) -> None:
    model = jitdelegate.load(network(), target=target, serialization_dir=False)
    assert model.report().target == target
    cache = feeds()["cache"]
    results = model.run({**feeds(), "cache": cache}, "serve", out={"cache": cache})
    assert results["cache"] is cache
    for name, wanted in expected.items():
        assert_near(model.run(feeds(), "serve")[name], wanted)
        assert_near(results[name], wanted)
    session = model.session(state=["cache"])
    session.state["cache"][...] = feeds()["cache"]
    assert_near(session.run("serve", x=feeds()["x"], place=feeds()["place"])["seen"], expected["seen"])
    assert_near(session.state["cache"], expected["cache"])


def test_all_operators_are_compiled() -> None:
    report = jitdelegate.load(network(), target="cpu", serialization_dir=False).report()
    assert report.operators and not [operator for operator in report.operators if operator.reason]


@pytest.mark.parametrize("loader", ["partitions", "delegate"])
def test_float16_crosses_to_litert_and_back(
    loader: str, expected: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_loader(monkeypatch, loader)
    options = {"partitioning": "all", "only_ops": ("CONV_2D", "FULLY_CONNECTED", "DYNAMIC_UPDATE_SLICE")}
    model = jitdelegate.load(network(), target="cpu", serialization_dir=False, options=options)
    for name, wanted in expected.items():
        assert_near(model.run(feeds(), "serve")[name], wanted)


def test_an_interpreter_has_litert_s_views(expected: dict[str, np.ndarray]) -> None:
    interpreter = jitdelegate.Interpreter(model_content=network())
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), feeds().values(), strict=True):
        assert detail["dtype"] == value.dtype.type
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    for detail, wanted in zip(interpreter.get_output_details(), expected.values(), strict=True):
        assert_near(interpreter.get_tensor(detail["index"]), wanted)
        assert_near(interpreter.tensor(detail["index"])(), wanted)


def test_a_compiled_model_has_buffers_of_float16(expected: dict[str, np.ndarray]) -> None:
    model = CompiledModel.from_buffer(network())
    inputs = {name: model.create_input_buffer_by_name("serve", name) for name in feeds()}
    outputs = {name: model.create_output_buffer_by_name("serve", name) for name in expected}
    for name, value in feeds().items():
        inputs[name].write(value)
    model.run_by_name("serve", inputs, outputs)
    for name, wanted in expected.items():
        assert_near(outputs[name].read(wanted.size, np.float16).reshape(wanted.shape), wanted)
