"""load() and Model: values in, tensor objects out, clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.errors import DeviceError, ModelError, OptionError, TensorError
from jitdelegate.program.program import Port
from tests.api import small_models

IMAGE = np.random.default_rng(1).uniform(-1, 1, (1, 8, 8, 3)).astype(np.float32)


def litert(content: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """What LiteRT answers."""
    interpreter = LiteRT(model_content=content)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.fixture
def convolution(tmp_path: Path) -> jitdelegate.Model:
    return jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path / "cache")


def test_a_compiled_model_answers_as_litert_does(convolution: jitdelegate.Model) -> None:
    assert convolution.report().target == "cpu"
    expected = litert(small_models.convolution(), IMAGE)[0]
    np.testing.assert_allclose(convolution(IMAGE), expected, atol=1e-5)


def test_bytes_an_array_and_a_view_give_the_same_answer(convolution: jitdelegate.Model) -> None:
    expected = bytes(convolution(IMAGE))
    assert bytes(convolution(IMAGE.tobytes())) == expected
    assert bytes(convolution(memoryview(IMAGE))) == expected
    assert bytes(convolution(np.asfortranarray(IMAGE))) == expected


def test_an_output_is_memory_with_shape_and_type(convolution: jitdelegate.Model) -> None:
    output = convolution(IMAGE)
    assert output.shape == (1, 4, 4, 4)
    assert output.dtype == "float32"
    assert np.shares_memory(np.asarray(output), np.asarray(memoryview(output)))


def test_several_outputs_come_as_a_tuple_and_by_name() -> None:
    model = jitdelegate.load(small_models.two_outputs(), serialization_dir=False)
    left, right = np.full((2, 3), 2, np.float32), np.full((2, 3), 5, np.float32)
    total, product = model(left, right)
    assert total.tolist() == [[7.0] * 3] * 2
    assert product.tolist() == [[10.0] * 3] * 2
    named = model.run({"right": right, "left": left})
    assert list(named) == ["sum", "product"]
    assert bytes(named["product"]) == bytes(product)


def test_a_model_that_is_not_compiled_runs_on_litert_and_says_why() -> None:
    model = jitdelegate.load(small_models.uncompiled(), serialization_dir=False)
    assert model.report().target == "litert"
    assert all(operator.reason for operator in model.report().operators)
    output = model(np.array([-1, 2.4, 3, 300], np.float32))
    assert (output.dtype, output.shape, output.tolist()) == ("float32", (4,), [0, 2, 3, 255])


@pytest.mark.parametrize("target", ["cpu", "litert"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "bool", "int8", "uint8", "int16"])
def test_tensors_of_every_type_go_in_and_out(dtype: str, target: str) -> None:
    model = jitdelegate.load(small_models.moved(dtype), target=target, serialization_dir=False)
    value = np.array([[1, 0, 3], [0, 5, 120]]).astype(dtype)
    for given in (value, value.tobytes(), value.tolist(), np.asfortranarray(value)):
        output = model(given)
        assert (output.dtype, output.shape, output.tolist()) == (dtype, (3, 2), value.T.tolist())
    assert model.report().target == target
    assert np.asarray(output).dtype == dtype


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "int8", "uint8", "int16"])
def test_the_interpreter_takes_every_type_as_litert_does(dtype: str) -> None:
    value = np.array([[1, 0, 3], [0, 5, 120]]).astype(dtype)
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False)
    interpreter = jitdelegate.Interpreter(model_content=small_models.moved(dtype), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    interpreter.invoke()
    (expected,) = litert(small_models.moved(dtype), value)
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_the_target_litert_runs_whatever_could_be_compiled() -> None:
    model = jitdelegate.load(small_models.convolution(), target="litert", serialization_dir=False)
    assert model.report().target == "litert"
    np.testing.assert_allclose(model(IMAGE), litert(small_models.convolution(), IMAGE)[0], atol=1e-5)


def test_inputs_and_outputs_are_described() -> None:
    model = jitdelegate.load(small_models.quantized(), serialization_dir=False)
    (given,), (answered,) = model.inputs, model.outputs
    assert (given.name, given.shape, given.dtype, given.quantization) == ("value", (1, 4), "float32", None)
    assert (answered.name, answered.dtype) == ("stored", "int8")
    assert answered.quantization is not None
    assert (answered.quantization.scales, answered.quantization.zero_points) == ((0.5,), (3,))


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_wrong_inputs_are_refused_with_what_was_found_and_expected(target: str) -> None:
    model = jitdelegate.load(small_models.convolution(), target=target, serialization_dir=False)
    for wrong, words in (
        ((), "0 inputs"),
        ((IMAGE, IMAGE), "2 inputs"),
        ((IMAGE[..., :2],), r"'image'.*\[1, 8, 8, 2\].*\[1, 8, 8, 3\]"),
        ((IMAGE.astype(np.float64),), r"'image'.*float64.*float32"),
        ((b"short",), r"'image'.*768"),
        ((object(),), "'image'"),
    ):
        with pytest.raises(TensorError, match=words):
            model(*wrong)


def test_wrong_names_are_refused_by_name() -> None:
    model = jitdelegate.load(small_models.convolution(), serialization_dir=False)
    with pytest.raises(TensorError, match=r"'picture'.*'image'"):
        model.run({"picture": IMAGE})
    for wrong in (None, [IMAGE]):
        with pytest.raises(TensorError, match="expected a mapping"):
            model.run(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_an_open_size_may_have_any_value(target: str) -> None:
    content = small_models.convolution(open_batch=True)
    model = jitdelegate.load(content, target=target, serialization_dir=False)
    batch = np.concatenate([IMAGE, -IMAGE, 2 * IMAGE])
    answered = np.asarray(model(batch))
    assert answered.shape == (3, 4, 4, 4)
    np.testing.assert_allclose(answered[:1], model(IMAGE.tobytes()), atol=1e-5)
    assert model.report().target == target


def test_a_closed_model_says_so(convolution: jitdelegate.Model) -> None:
    with convolution:
        convolution(IMAGE)
    with pytest.raises(DeviceError, match="closed"):
        convolution(IMAGE)
    assert convolution.report().target == "cpu"
    convolution.close()


def test_a_model_that_is_closed_during_a_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = jitdelegate.load(small_models.convolution(open_batch=True), serialization_dir=False)

    def close(value: object, port: Port) -> tuple[int, ...]:
        model.close()
        return port.shape

    monkeypatch.setattr("jitdelegate.api.model.accepted_shape", close)
    with pytest.raises(DeviceError, match="closed"):
        model(IMAGE)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Could not open .*nowhere\.tflite.*No such file"):
        jitdelegate.load(tmp_path / "nowhere.tflite", serialization_dir=False)


def test_a_path_that_no_system_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Could not open"):
        jitdelegate.load("model\0.tflite", serialization_dir=False)
    with pytest.raises(ModelError, match="Could not open"):
        jitdelegate.load(tmp_path, serialization_dir=False)


def test_where_code_cannot_be_loaded_auto_takes_litert_and_cpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise DeviceError("no executable memory")

    monkeypatch.setattr("jitdelegate.runtime.cpu.session.Session", refuse)
    model = jitdelegate.load(small_models.convolution(), serialization_dir=False)
    assert model(IMAGE).shape == (1, 4, 4, 4)
    assert model.report().target == "litert"
    assert "no executable memory" in model.report().operators[0].reason
    with pytest.raises(DeviceError, match="no executable memory"):
        jitdelegate.load(small_models.convolution(), serialization_dir=False, target="cpu")


@pytest.mark.parametrize("content", [b"", b"nonsense" * 9, small_models.convolution()[:500]])
def test_what_is_no_model_ends_in_one_clear_error(content: bytes) -> None:
    with pytest.raises(ModelError):
        jitdelegate.load(content, serialization_dir=False)


def test_what_litert_cannot_run_carries_its_message() -> None:
    with pytest.raises(DeviceError, match=r"LiteRT cannot run this model: .*Nonesuch"):
        jitdelegate.load(small_models.custom(), serialization_dir=False)


@pytest.mark.parametrize("target", ["cpu", "litert"])
@pytest.mark.parametrize("time", ["int8", "int16"])
def test_states_that_litert_would_overrun_are_widened(time: str, target: str, tmp_path: Path) -> None:
    """Where LiteRT's kernel is safe with the model, it answers the same."""
    content, wide = small_models.narrow_state(time=time), small_models.narrow_state("int16")
    interpreters = jitdelegate.Interpreter(model_content=content), LiteRT(model_content=wide)
    for _ in range(2):
        model = jitdelegate.load(content, target=target, serialization_dir=tmp_path)
        for interpreter in interpreters:
            interpreter.allocate_tensors()
            interpreter.reset_all_variables()
        for step in range(5):
            value = np.array([[step, -step, 3 * step, 7]], np.int8)
            answers = [np.asarray(model(value))]
            for interpreter in interpreters:
                interpreter.set_tensor(0, value)
                interpreter.invoke()
                answers.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
            assert answers[0].tolist() == answers[1].tolist() == answers[2].tolist()
    (operator,) = model.report().operators
    assert model.report().cache.hit
    assert operator.place == target
    assert "takes states of int8 for int16" in model.report().notes[0]


@pytest.mark.parametrize(
    "content",
    [
        small_models.narrow_state("int32"),
        small_models.narrow_state(time="float32"),
        small_models.narrow_state("int8", "int8", "float32"),
    ],
    ids=["state", "weights", "hybrid"],
)
def test_states_that_litert_would_take_for_others_are_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"SVDF.*expected (int16|float32); LiteRT would access memory beyond its end"):
        jitdelegate.load(content, serialization_dir=False)


def test_litert_s_own_interpreter_cannot_be_given_a_wider_copy() -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=False)
    with pytest.raises(ModelError, match=r"takes its state for int16.*own interpreter cannot"):
        LiteRT(model_content=small_models.narrow_state(), experimental_delegates=[delegate])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "tpu"}, "target is 'tpu'"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"num_threads": True}, "num_threads is True"),
        ({"options": ["speed"]}, "expected a mapping"),
        ({"serialization_dir": True}, "serialization_dir is True"),
        ({"serialization_dir": 3}, "serialization_dir is 3"),
        ({"model_token": 3}, "model_token is 3"),
        ({"options": {"speed": "much"}}, "unknown option speed"),
        ({"options": {"cpu_features": "sse9"}}, "cpu_features is 'sse9'"),
        ({"options": {"device": -1}}, "device is -1, expected a whole number from 0 to 1023"),
        ({"options": {"device": True}}, "device is True"),
        ({"options": {"device": "1024"}}, "device is '1024'"),
        (
            {"options": {"precision": "float8"}},
            "precision is 'float8', expected one of float32, tf32, float16, bfloat16",
        ),
        ({"options": {"precision": True}}, "precision is True"),
        ({"options": {"is_precision_loss_allowed": 2}}, "is_precision_loss_allowed is 2, expected True, False, 1 or 0"),
        ({"options": {"is_precision_loss_allowed": 1.0}}, "is_precision_loss_allowed is 1.0"),
    ],
)
def test_wrong_options_are_refused_by_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        jitdelegate.load(small_models.convolution(), **arguments)


def test_generic_code_answers_the_same(convolution: jitdelegate.Model) -> None:
    generic = jitdelegate.load(small_models.convolution(), serialization_dir=False, options={"cpu_features": "generic"})
    assert generic.report().features == "generic"
    np.testing.assert_allclose(generic(IMAGE), convolution(IMAGE), atol=1e-5)


def test_a_forked_child_answers_the_same(convolution: jitdelegate.Model) -> None:
    expected = bytes(convolution(IMAGE))
    child = os.fork()
    if not child:
        os._exit(0 if bytes(convolution(IMAGE)) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_may_share_a_model() -> None:
    for content in (small_models.convolution(), small_models.quantized()):
        model = jitdelegate.load(content, serialization_dir=False, num_threads=2)
        (info,) = model.inputs
        values = [np.full(info.shape, value, np.float32) for value in range(8)]
        expected = [bytes(model(value)) for value in values]
        with ThreadPoolExecutor(4) as pool:
            assert [bytes(output) for output in pool.map(model, values)] == expected


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    content = small_models.convolution()
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    assert jitdelegate.fingerprint(path) == jitdelegate.fingerprint(content)
    assert jitdelegate.fingerprint(content) != jitdelegate.fingerprint(small_models.convolution(seed=1))


def test_the_same_model_gives_the_same_program_in_every_process(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(mobilenet_v1(size=32, width=0.25))
    programs = []
    for seed in ("1", "2"):
        cache = tmp_path / f"cache{seed}"
        command = [sys.executable, "-m", "jitdelegate.warm", str(model), "--serialization-dir", str(cache)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True)
        (entry,) = cache.glob("*.jitd")
        programs.append((entry.name, entry.read_bytes()))
    assert programs[0] == programs[1]


def _change(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(small_models.convolution(seed=9, open_batch=True))
    other.replace(path)


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="this system has no names for open pipes")
def test_a_pipe_is_no_model_and_is_refused_by_its_name() -> None:
    reading, writing = os.pipe()
    os.write(writing, small_models.two_outputs())
    os.close(writing)
    try:
        with pytest.raises(ModelError, match=f"'/dev/fd/{reading}' gives its content once; expected a regular file"):
            jitdelegate.load(f"/dev/fd/{reading}", serialization_dir=False)
    finally:
        os.close(reading)


@pytest.mark.parametrize("spoil", [_change, Path.unlink], ids=["replaced", "removed"])
def test_a_file_that_changed_since_it_was_opened_gives_no_answers(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution(open_batch=True))
    model = jitdelegate.load(path, serialization_dir=False)
    expected = bytes(model(IMAGE))
    spoil(path)
    with pytest.raises(ModelError, match=r"model\.tflite.*(changed since it was opened|No such file)"):
        model(np.repeat(IMAGE, 2, axis=0))
    assert bytes(model(IMAGE)) == expected


def test_content_may_be_overwritten_once_it_is_loaded() -> None:
    content = bytearray(small_models.convolution(open_batch=True))
    model = jitdelegate.load(content, serialization_dir=False)
    content[:] = bytes(len(content))
    assert model(np.repeat(IMAGE, 2, axis=0)).shape == (2, 4, 4, 4)


def test_a_relative_path_means_the_file_that_it_meant_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.tflite").write_bytes(small_models.convolution(open_batch=True))
    monkeypatch.chdir(tmp_path)
    model = jitdelegate.load("model.tflite", serialization_dir=False)
    monkeypatch.chdir("/")
    assert model(np.repeat(IMAGE, 2, axis=0)).shape == (2, 4, 4, 4)


@pytest.mark.parametrize("what", [None, 5, [1]])
def test_what_is_neither_a_path_nor_content_is_refused(what: Any) -> None:
    with pytest.raises(ModelError, match="expected a path or the content of a file"):
        jitdelegate.load(what, serialization_dir=False)
