"""Models that are another for each value of an input: compiled for the values that come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRt

import jitdelegate
from jitdelegate.engine.specializations import MOST_VALUES
from jitdelegate.tflite.write import ModelBuilder
from tests import imports
from tests.child import answer_of

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def reshaped() -> bytes:
    """f32[2,3,4], i32[2] -> RESHAPE -> RELU of what the second input asks for."""
    model = ModelBuilder()
    value, shape = model.input((2, 3, 4), name="value"), model.input((2,), "int32", name="shape")
    rows = model.op("RESHAPE", [value, shape], (1, 1))
    model.output(model.op("RELU", [rows], (1, 1), name="result"))
    return model.finish()


def sliced() -> bytes:
    """f32[2,3,4], i32[3] -> twice the row from where the second input, plus one, says; to the end."""
    model = ModelBuilder()
    value, begin = model.input((2, 3, 4), name="value"), model.input((3,), "int32", name="begin")
    one = model.constant(np.array([1, 1, 1], np.int32))
    later = model.op("ADD", [begin, one], (3,), dtype="int32")
    size = model.constant(np.array([-1, -1, -1], np.int32))
    part, result = (model.tensor((1, 1, 1), shape_signature=(-1, -1, -1)) for _ in range(2))
    model.node("SLICE", [value, later, size], [part])
    model.node("ADD", [part, part], [result])
    model.output(result)
    return model.finish()


def computed() -> bytes:
    """The shape is what a float input rounds to: more than an integer input decides."""
    model = ModelBuilder()
    value, shape = model.input((2, 3, 4), name="value"), model.input((2,), name="shape")
    whole = model.op(
        "CAST", [shape], (2,), dtype="int32", options={"in_data_type": "FLOAT32", "out_data_type": "INT32"}
    )
    model.output(model.op("RESHAPE", [value, whole], (1, 1)))
    return model.finish()


def litert(content: bytes, *inputs: np.ndarray) -> np.ndarray:
    return run(LiteRt(model_content=content), *inputs)


def run(interpreter: object, *inputs: np.ndarray) -> np.ndarray:
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    found = interpreter.get_tensor(output["index"])
    assert tuple(output["shape"]) == found.shape
    return found


@pytest.mark.parametrize(
    ("model", "choices"),
    [(reshaped, ([4, 6], [-1, 8], [24, 1])), (sliced, ([0, 0, 0], [-1, 1, 2]))],
    ids=["RESHAPE", "SLICE"],
)
def test_each_value_has_a_program_of_its_own(model: object, choices: object, tmp_path: Path) -> None:
    content = model()
    loaded = jitdelegate.load(content, serialization_dir=tmp_path)
    for choice in choices:
        decided = np.array(choice, np.int32)
        expected = litert(content, X, decided)
        found = loaded(X, decided)
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
        assert loaded.report().fully_delegated
    assert len([*tmp_path.glob("*.jitd")]) == 1 + len(choices)


def test_the_interpreter_runs_them_too(tmp_path: Path) -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=tmp_path)
    interpreter = jitdelegate.Interpreter(model_content=reshaped(), experimental_delegates=[delegate])
    assert not interpreter.report().fully_delegated
    for choice in ([4, 6], [2, 12], [4, 6]):
        found = run(interpreter, X - 5, np.array(choice, np.int32))
        np.testing.assert_array_equal(found, np.maximum(X - 5, 0).reshape(choice))
        assert interpreter.report().fully_delegated
        np.testing.assert_array_equal(interpreter.tensor(interpreter.get_output_details()[0]["index"])(), found)
    interpreter.allocate_tensors()
    assert not interpreter.report().fully_delegated


def test_what_lies_between_is_not_answered_from_litert_s_memory(tmp_path: Path) -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=tmp_path)
    interpreter = jitdelegate.Interpreter(model_content=reshaped(), experimental_delegates=[delegate])
    run(interpreter, X, np.array([4, 6], np.int32))
    kept = {each["index"] for each in (*interpreter.get_input_details(), *interpreter.get_output_details())}
    (between,) = {each["index"] for each in interpreter.get_tensor_details()} - kept
    np.testing.assert_array_equal(interpreter.get_tensor(0), X)
    with pytest.raises(jitdelegate.TensorError, match="keeps no other"):
        interpreter.get_tensor(between)


def test_values_without_end_end_on_litert(tmp_path: Path) -> None:
    loaded = jitdelegate.load(sliced(), serialization_dir=tmp_path)
    choices = [(a, b, c) for a in (-1, 0) for b in (-1, 0, 1) for c in (-1, 0, 1)][: MOST_VALUES + 2]
    places = []
    for choice in choices:
        decided = np.array(choice, np.int32)
        np.testing.assert_array_equal(loaded(X, decided), litert(sliced(), X, decided))
        places.append(loaded.report().target)
    assert places == ["cpu"] * MOST_VALUES + ["litert"] * 2
    loaded(X, np.array(choices[0], np.int32))
    assert loaded.report().target == "cpu"


def test_what_litert_refuses_is_refused(tmp_path: Path) -> None:
    loaded = jitdelegate.load(reshaped(), serialization_dir=tmp_path)
    with pytest.raises(jitdelegate.DeviceError, match=r"num_input_elements|RESHAPE"):
        loaded(X, np.array([5, 7], np.int32))
    with pytest.raises(jitdelegate.TensorError, match="'shape'"):
        loaded(X, np.array([4.0, 6.0], np.float32))
    np.testing.assert_array_equal(loaded(X, np.array([4, 6], np.int32)), X.reshape(4, 6))


def test_more_than_integer_inputs_is_left_to_litert() -> None:
    loaded = jitdelegate.load(computed(), serialization_dir=False)
    np.testing.assert_array_equal(loaded(X, np.array([4, 6], np.float32)), X.reshape(4, 6))
    assert loaded.report().target == "litert"


def test_a_later_process_finds_the_programs_and_imports_no_compiler(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(reshaped())
    answers = [answer_of(imports.a_model_of_changing_shapes, path, tmp_path) for _ in range(2)]
    assert answers == ["miss [True, True]", "hit [False, False]"]
