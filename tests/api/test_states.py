"""Models whose values live from run to run, as callers see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert_module
import numpy as np
import pytest

import jitdelegate
from jitdelegate import GpuDelegate, Interpreter
from jitdelegate.errors import DeviceError
from jitdelegate.runtime.memory import States
from tests.api.resource_models import ring, streaming
from tests.conftest import models_dir
from tests.ops.recurrent_models import LstmModel, float16_lstm

LSTM = LstmModel(op="LSTM").content()
X = np.full((2, 3), 0.5, np.float32)
MODELS = (
    "generated/lstm_basic.float32.tflite",
    "generated/lstm_seq.float32.tflite",
    "real/trained_lstm.tflite",
    "fixtures/lstm.bin.tflite",
    "fixtures/custom_lstm.bin.tflite",
    "fixtures/unidirectional_sequence_lstm.bin.tflite",
    "fixtures/call_once_mul.bin.tflite",
    "fixtures/sub.bin.tflite",
)


def litert(content: bytes) -> Any:
    from ai_edge_litert import interpreter

    resolver = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return interpreter.Interpreter(model_content=content, experimental_op_resolver_type=resolver)


def compiled(content: bytes) -> Interpreter:
    found = Interpreter(model_content=content, experimental_delegates=[GpuDelegate(False, target="cpu")])
    assert found.report().target == "cpu", str(found.report())
    return found


def hosted(content: bytes) -> Any:
    """LiteRT's interpreter with our delegate."""
    delegate = GpuDelegate(False, target="cpu")
    return litert_module.Interpreter(model_content=content, experimental_delegates=[delegate])


def run(interpreter: Any, feeds: list[np.ndarray]) -> list[np.ndarray]:
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def assert_alike(content: bytes) -> None:
    """Ours and LiteRT's interpreter give the same through runs, a reset, and allocating again."""
    pair, random = (litert(content), compiled(content)), np.random.default_rng(0)
    for step in ("allocate", "", "", "allocate", "reset", "", "allocate", ""):
        for each in pair:
            if step == "allocate":
                each.allocate_tensors()
            if step == "reset":
                each.reset_all_variables()
        feeds = [random.uniform(-1, 1, one["shape"]).astype(one["dtype"]) for one in pair[0].get_input_details()]
        for expected, found in zip(run(pair[0], feeds), run(pair[1], feeds), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_models_with_states_are_what_litert_makes_of_them(name: str) -> None:
    assert_alike((models_dir() / name).read_bytes())


def test_a_streaming_model_with_resource_variables_is_what_litert_makes_of_it() -> None:
    assert_alike(streaming())


def test_states_that_a_dequantize_starts_live_from_run_to_run() -> None:
    assert_alike(float16_lstm())
    content, x = float16_lstm(), np.full((1, 5, 3), 0.5, np.float32)
    pair = litert_module.Interpreter(model_content=content), hosted(content)
    for each in pair:
        each.allocate_tensors()
    for _ in range(3):
        (expected,), (found,) = (run(each, [x]) for each in pair)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_other_first_states_are_left_to_litert() -> None:
    content, x = float16_lstm(0.5), np.full((1, 5, 3), 0.5, np.float32)
    reference = litert(content)
    reference.allocate_tensors()
    with pytest.warns(jitdelegate.DelegateWarning, match="is a variable"):
        model = jitdelegate.load(content, serialization_dir=False)
    for _ in range(2):
        np.testing.assert_allclose(model(x), run(reference, [x])[0], rtol=1e-5, atol=1e-6)


def test_two_models_from_one_cache_entry_have_states_of_their_own(tmp_path: Path) -> None:
    one, other = (jitdelegate.load(LSTM, target="cpu", serialization_dir=tmp_path) for _ in range(2))
    first, second = np.asarray(one(X)), np.asarray(one(X))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.asarray(other(X)), first)
    np.testing.assert_array_equal(np.asarray(other(X)), second)


@pytest.mark.parametrize("target", ["cpu", "litert"])
@pytest.mark.parametrize("content", [LSTM, streaming()], ids=["variables", "resources"])
def test_a_model_that_is_reset_begins_anew(content: bytes, target: str) -> None:
    model = jitdelegate.load(content, target=target, serialization_dir=False)
    assert model.report().target == target
    x = np.ones(model.inputs[0].shape, np.float32)
    first, second = np.asarray(model(x)), np.asarray(model(x))
    model.reset_all_variables()
    np.testing.assert_array_equal(np.asarray(model(x)), first)
    np.testing.assert_array_equal(np.asarray(model(x)), second)
    assert not np.array_equal(first, second)


def test_a_closed_model_cannot_be_reset() -> None:
    model = jitdelegate.load(LSTM, target="cpu", serialization_dir=False)
    model.close()
    with pytest.raises(DeviceError, match="closed"):
        model.reset_all_variables()


def test_a_variable_can_be_read_and_set_as_in_litert() -> None:
    pair = litert(LSTM), compiled(LSTM)
    index = next(one["index"] for one in pair[0].get_tensor_details() if one["shape"].tolist() == [2, 7])
    for value in (None, np.full((2, 7), 0.5, np.float32)):
        for each in pair:
            each.allocate_tensors()
            if value is not None:
                each.set_tensor(index, value)
        (expected,), (found,) = (run(each, [X]) for each in pair)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        states = [each.get_tensor(index) for each in pair]
        assert states[0].any() and states[0].shape == states[1].shape
        np.testing.assert_allclose(states[1], states[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="Dimension mismatch"):
        pair[1].set_tensor(index, X)


def test_a_state_that_is_updated_row_by_row_has_one_buffer() -> None:
    model = jitdelegate.load(ring(), target="cpu", serialization_dir=False)
    rows = np.full((6, 4), 0.5, np.float32)
    for run in range(5):
        if run == 3:
            model.reset_all_variables()
            rows[...] = 0.5
        row, place = np.random.default_rng(run).uniform(-1, 1, (1, 1, 4)).astype(np.float32), 2 * run - 1
        rows[np.clip(place, 0, 5)] = row
        found = model.run({"row": row, "place": np.array([0, place, 0], np.int32)})["sums"]
        np.testing.assert_allclose(np.asarray(found)[0], rows.sum(0), rtol=1e-5, atol=1e-6)
    states = States(model._opened.program)
    assert states.before == states.after
    states.close()
