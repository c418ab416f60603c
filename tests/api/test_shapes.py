"""Inputs of other shapes than the file says: compiled as LiteRT would run them, cached, and a few of them kept."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.engine.specializations import MOST_FAILURES, MOST_SHAPES
from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.runtime.cache.key import KeyParts, model_key, variant_parts
from jitdelegate.runtime.cache.store import counts
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models
from tests.api.test_interpreter import assert_same_details

CONVOLUTION = small_models.convolution(signature=True, open_batch=True)


CPU = KeyParts("cpu", "", "none", "", toolchain="")


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(np.float32)


def pair(content: bytes, cache: Path) -> tuple[jitdelegate.Interpreter, Any]:
    """Ours and LiteRT's, not allocated."""
    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    ours = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
    return ours, LiteRT(model_content=content)


def run(interpreter: Any, *values: np.ndarray) -> list[np.ndarray]:
    """The outputs for inputs of these shapes, by LiteRT's methods."""
    for detail, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.mark.parametrize("content", [CONVOLUTION, small_models.convolution()], ids=["open", "fixed"])
def test_every_shape_answers_as_litert_does_and_is_described_so(content: bytes, tmp_path: Path) -> None:
    ours, theirs = pair(content, tmp_path)
    for shape in ((2, 8, 8, 3), (5, 8, 8, 3), (1, 8, 8, 3), (1, 11, 6, 3)):
        value = images(*shape)
        np.testing.assert_allclose(run(ours, value)[0], run(theirs, value)[0], atol=1e-5)
        assert ours.report().target == "cpu"
        assert_same_details(ours, theirs)


def test_shape_arithmetic_follows_the_batch(tmp_path: Path) -> None:
    ours, theirs = pair(small_models.flattened(), tmp_path)
    for batch in (1, 3, 8):
        value = images(batch, 4, 4, 2)
        (found,), (expected,) = run(ours, value), run(theirs, value)
        assert found.shape == expected.shape == (batch, 3)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert ours.report().target == "cpu"


def test_a_loaded_model_compiles_for_open_sizes(tmp_path: Path) -> None:
    _, theirs = pair(CONVOLUTION, tmp_path)
    model = jitdelegate.load(CONVOLUTION, serialization_dir=tmp_path)
    for batch in (3, 1, 4):
        value = images(batch, 8, 8, 3)
        np.testing.assert_allclose(model(value), run(theirs, value)[0], atol=1e-5)
    assert model.report().target == "cpu"
    kept = [each for each in model.report().notes if each.startswith("inputs")]
    for note, batch, further in zip(kept, (3, 4), model._specializations.further, strict=True):
        told = re.fullmatch(r"(.*) It took (\d+\.\d{3}) s and has (\d+\.\d{2}) MB of its own\.", note)
        assert told and told[1] == f"inputs of [{batch}, 8, 8, 3]: cpu, cache miss."
        assert float(told[2]) == pytest.approx(sum(further.seconds.values()), abs=0.001)
        assert float(told[3]) == pytest.approx(further.own_bytes / 1e6, abs=0.01) and further.own_bytes


def test_a_fixed_size_is_refused_with_one_error(tmp_path: Path) -> None:
    model = jitdelegate.load(CONVOLUTION, serialization_dir=tmp_path)
    with pytest.raises(TensorError, match=r"'image'.*\[2, 9, 8, 3\].*\[1, 8, 8, 3\]"):
        model(images(2, 9, 8, 3))


def test_a_shape_is_compiled_once_and_then_found_in_the_cache(tmp_path: Path) -> None:
    outcomes = []
    for _ in range(2):
        ours, _ = pair(CONVOLUTION, tmp_path)
        run(ours, images(6, 8, 8, 3))
        outcomes.append(ours.report().cache.outcome)
    assert outcomes == ["miss", "hit"]
    assert len([*tmp_path.glob("*.jitd")]) == 2


def test_only_the_shapes_used_last_are_kept_and_the_others_are_hits(tmp_path: Path) -> None:
    model = jitdelegate.load(CONVOLUTION, serialization_dir=tmp_path)
    batches, opened_again = range(2, MOST_SHAPES + 3), counts.hits
    for batch in batches:
        model(images(batch, 8, 8, 3))
        model(images(2, 8, 8, 3))
    assert counts.hits == opened_again
    kept = [note for note in model.report().notes if note.startswith("inputs")]
    assert len(kept) == MOST_SHAPES
    assert kept[-1].startswith("inputs of [2, 8, 8, 3]")
    assert not any("[3, 8, 8, 3]" in note for note in kept)
    before = counts.hits
    assert model(images(3, 8, 8, 3)).shape == (3, 4, 4, 4)
    assert counts.hits == before + 1
    assert sum(counts.misses.values()) >= len(batches)


def test_a_program_that_is_kept_no_longer_gives_its_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.engine.specializations.MOST_SHAPES", 1)
    model = jitdelegate.load(CONVOLUTION, serialization_dir=tmp_path)
    model(images(2, 8, 8, 3))
    session = weakref.ref(model._specializations.resized(model._opened, ((2, 8, 8, 3),)).session)
    assert session() is not None
    for batch in (3, 1):
        model(images(batch, 8, 8, 3))
    assert session() is None


def test_a_program_that_is_kept_no_longer_goes_on_for_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.engine.specializations.MOST_SHAPES", 1)
    interpreter, theirs = pair(CONVOLUTION, tmp_path)
    value = images(2, 8, 8, 3)
    found = run(interpreter, value)[0]
    interpreter._specializations.resized(interpreter._opened, ((3, 8, 8, 3),))
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), found)
    np.testing.assert_allclose(found, run(theirs, value)[0], atol=1e-5)


def test_threads_may_use_different_shapes_of_one_model(tmp_path: Path) -> None:
    model = jitdelegate.load(CONVOLUTION, serialization_dir=tmp_path, num_threads=1)
    values = [images(batch, 8, 8, 3) for batch in (1, 2, 3, 4) * 4]
    expected = [bytes(model(value)) for value in values]
    with ThreadPoolExecutor(4) as pool:
        assert [bytes(output) for output in pool.map(model, values)] == expected


def test_several_inputs_may_grow_together(tmp_path: Path) -> None:
    ours, theirs = pair(small_models.two_outputs(), tmp_path)
    left, right = images(5, 3), images(5, 3) * 2
    for found, expected in zip(run(ours, left, right), run(theirs, left, right), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert ours.report().target == "cpu"


def test_what_is_not_compiled_for_a_shape_runs_on_litert_with_the_reason(tmp_path: Path) -> None:
    ours, theirs = pair(CONVOLUTION, tmp_path)
    found, expected = run(ours, images(0, 8, 8, 3)), run(theirs, images(0, 8, 8, 3))
    assert found[0].shape == expected[0].shape
    report = ours.report()
    assert report.target == "litert"
    assert report.operators[0].reason == "CONV_2D: 'image' has no elements, its shape is [0, 8, 8, 3]."
    np.testing.assert_allclose(run(ours, images(2, 8, 8, 3)), run(theirs, images(2, 8, 8, 3)), atol=1e-5)
    assert ours.report().target == "cpu"


def test_a_loaded_model_runs_on_litert_for_that_shape_alone(tmp_path: Path) -> None:
    model = jitdelegate.load(CONVOLUTION, serialization_dir=tmp_path)
    assert model(images(0, 8, 8, 3)).shape[0] == 0
    assert any(note.startswith("inputs of [0, 8, 8, 3]: LiteRT, CONV_2D") for note in model.report().notes)
    assert model(images(2, 8, 8, 3)).shape == (2, 4, 4, 4)
    assert model.report().target == "cpu"


def test_a_model_that_fails_for_the_sizes_in_its_file_runs_for_others(tmp_path: Path) -> None:
    content = small_models.rows_of_a_dozen()
    ours, theirs = pair(content, tmp_path)
    model = jitdelegate.load(content, serialization_dir=tmp_path)
    for shape in ((2, 6), (3, 12)):
        value = images(*shape)
        (expected,) = run(theirs, value)
        np.testing.assert_allclose(run(ours, value)[0], expected, atol=1e-5)
        np.testing.assert_allclose(model(value), expected, atol=1e-5)
        assert ours.report().target == "cpu"


def test_a_model_is_refused_only_when_it_runs_on_the_sizes_that_fail(tmp_path: Path) -> None:
    ours, _ = pair(small_models.rows_of_a_dozen(), tmp_path)
    model = jitdelegate.load(small_models.rows_of_a_dozen(), serialization_dir=tmp_path)
    for act in (lambda: ours.allocate_tensors(), lambda: model(images(1, 1))):
        with pytest.raises(DeviceError, match="LiteRT cannot run this model"):
            act()


def uncompiled() -> bytes:
    """f32[?,4] -> FAKE_QUANT, which runs on LiteRT."""
    builder = ModelBuilder()
    value = builder.input((1, 4), shape_signature=(-1, 4))
    options = {"min": 0.0, "max": 255.0, "num_bits": 8}
    builder.output(builder.op("FAKE_QUANT", [value], (1, 4), options=options))
    return builder.finish()


def test_only_a_few_shapes_are_tried_where_none_can_be_compiled(tmp_path: Path) -> None:
    model = jitdelegate.load(uncompiled(), serialization_dir=tmp_path)
    for batch in range(2, 9):
        assert model(np.ones((batch, 4), np.float32)).shape == (batch, 4)
    assert len([*tmp_path.glob("*.jitd")]) == 1 + MOST_FAILURES


def test_shapes_that_are_compiled_stay_so_whatever_fails_later(tmp_path: Path) -> None:
    ours, _ = pair(small_models.rows_of_a_dozen(), tmp_path)
    run(ours, images(2, 6))
    for width in range(2, 2 + MOST_FAILURES):
        ours.resize_tensor_input(0, (1, width))
        with pytest.raises(DeviceError):
            ours.allocate_tensors()
    run(ours, images(2, 6))
    assert ours.report().target == "cpu"


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 8, 8, 4), ()])
def test_a_shape_that_litert_refuses_too_leaves_the_program(shape: tuple[int, ...], tmp_path: Path) -> None:
    ours, theirs = pair(CONVOLUTION, tmp_path)
    for interpreter in (ours, theirs):
        interpreter.resize_tensor_input(0, shape)
        with pytest.raises(RuntimeError):
            interpreter.allocate_tensors()
    assert run(ours, images(2, 8, 8, 3))[0].shape == (2, 4, 4, 4)
    assert ours.report().target == "cpu"


@pytest.mark.parametrize("content", [CONVOLUTION, small_models.flattened(), uncompiled()])
@pytest.mark.parametrize("size", [-1, -(1 << 31), 1 << 31, 1 << 62, 1 << 63, 10**30])
def test_a_size_that_no_tensor_has_is_an_error_of_ours(content: bytes, size: int, tmp_path: Path) -> None:
    ours, theirs = pair(content, tmp_path)
    shape = ours.get_input_details()[0]["shape"].tolist()
    with pytest.raises((TensorError, DeviceError)):
        ours.resize_tensor_input(0, [size, *shape[1:]])
        ours.allocate_tensors()
    with pytest.raises((ValueError, RuntimeError, OverflowError)):
        theirs.resize_tensor_input(0, [size, *shape[1:]])
        theirs.allocate_tensors()
    for interpreter in (ours, theirs):
        interpreter.resize_tensor_input(0, [2, *shape[1:]])


@pytest.mark.parametrize("content", [CONVOLUTION, small_models.flattened(), uncompiled()])
def test_an_input_that_no_memory_holds_is_a_device_error(content: bytes, tmp_path: Path) -> None:
    model = jitdelegate.load(content, serialization_dir=tmp_path)
    rows = np.broadcast_to(np.float32(1), (1 << 44, *model.inputs[0].shape[1:]))
    with pytest.raises(DeviceError, match="memory"):
        model(rows)
    assert model(np.ones((2, *model.inputs[0].shape[1:]), np.float32)).shape[0] == 2


UNREADY: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda interpreter: interpreter.invoke(),
    "set": lambda interpreter: interpreter.set_tensor(0, images(2, 8, 8, 3)),
    "get": lambda interpreter: interpreter.get_tensor(0),
    "view": lambda interpreter: interpreter.tensor(0)(),
}


@pytest.mark.parametrize("act", UNREADY.values(), ids=UNREADY)
def test_after_a_resize_tensors_have_to_be_allocated_again(act: Callable[[Any], Any], tmp_path: Path) -> None:
    errors = []
    for interpreter in pair(CONVOLUTION, tmp_path):
        interpreter.allocate_tensors()
        interpreter.resize_tensor_input(0, (2, 8, 8, 3))
        with pytest.raises((ValueError, RuntimeError)) as raised:
            act(interpreter)
        errors.append(raised.value)
    assert isinstance(errors[0], type(errors[1]))
    assert str(errors[1]) in str(errors[0])


@pytest.mark.parametrize("content", [CONVOLUTION, small_models.convolution()], ids=["open", "fixed"])
def test_before_allocation_only_the_input_has_its_new_shape(content: bytes, tmp_path: Path) -> None:
    ours, theirs = pair(content, tmp_path)
    for interpreter in (ours, theirs):
        interpreter.allocate_tensors()
        interpreter.resize_tensor_input(0, (2, 8, 8, 3))
    assert_same_details(ours, theirs)


def test_strict_lets_open_sizes_change_again_and_again(tmp_path: Path) -> None:
    for interpreter in pair(CONVOLUTION, tmp_path):
        for batch in (2, 3, 2):
            interpreter.resize_tensor_input(0, (batch, 8, 8, 3), strict=True)
            interpreter.allocate_tensors()
        with pytest.raises(RuntimeError, match="ResizeInputTensorStrict"):
            interpreter.resize_tensor_input(0, (2, 8, 8, 4), strict=True)
        interpreter.resize_tensor_input(0, (2, 8, 8, 3))
        interpreter.invoke()


def test_the_same_shape_again_needs_no_allocation(tmp_path: Path) -> None:
    for interpreter in pair(CONVOLUTION, tmp_path):
        first = run(interpreter, images(2, 8, 8, 3))[0]
        interpreter.resize_tensor_input(0, (2, 8, 8, 3))
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), first)


def test_an_output_that_the_file_has_wrong_is_described_as_litert_does(tmp_path: Path) -> None:
    builder = ModelBuilder()
    builder.output(builder.op("RELU", [builder.input((4, 3))], (1, 3)))
    ours, theirs = pair(builder.finish(), tmp_path)
    for interpreter in (ours, theirs):
        interpreter.allocate_tensors()
    assert ours.report().target == "cpu"
    assert_same_details(ours, theirs)


def test_a_key_tells_its_shapes_and_subgraph() -> None:
    for subgraph, shapes in ((0, ()), (2, ()), (0, ((2, 8), ())), (1, ((),)), (0, ((0,), (3, 4)))):
        key = model_key("f", CPU, options=variant_parts(subgraph, shapes))
        assert (key.subgraph, key.shapes) == (subgraph, shapes)


def test_the_main_program_s_key_has_no_parts_for_variants() -> None:
    assert variant_parts(0) == ()
    names = {model_key("f", CPU, options=variant_parts(*one)).entry_name() for one in VARIANTS}
    assert len(names) == len(VARIANTS)


VARIANTS: list[Any] = [(0, ()), (1, ()), (0, ((1,),)), (0, ((1, 1),)), (0, ((1,), (1,))), (1, ((1,),)), (0, ((11,),))]
REAL = ("dilated_conv", "keypoint_classifier", "toycar", "pretrainedResnet", "keyword_spotting_alexa.float32")


@pytest.mark.parametrize("name", REAL)
def test_real_models_answer_as_litert_does_for_other_batches(models: Path, name: str, tmp_path: Path) -> None:
    ours, theirs = pair((models / f"real/{name}.tflite").read_bytes(), tmp_path)
    (detail,) = theirs.get_input_details()
    for batch in (2, 3):
        signature, shape = detail["shape_signature"], [*detail["shape"]]
        value = images(*(batch * (4 if axis else 1) if s == -1 else shape[axis] for axis, s in enumerate(signature)))
        (found,), (expected,) = run(ours, value), run(theirs, value)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    if name != "dilated_conv":
        assert ours.report().target == "cpu"
