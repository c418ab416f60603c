"""In LiteRT's interpreter, the delegate takes what it can for the shapes that inputs come to have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.litert_delegate import callbacks
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import small_models


@pytest.fixture(autouse=True)
def a_host() -> None:
    partial.skip_without_host()


def halved() -> bytes:
    """f32[1,?,?,3] -> CONV_2D -> MAX_POOL_2D of 2x2 -> RELU; nothing is left of the single pixel in the file."""
    random = np.random.default_rng(0)
    model = ModelBuilder()
    image = model.input((1, 1, 1, 3), name="image", shape_signature=(1, -1, -1, 3))
    weights = model.constant(random.standard_normal((4, 3, 3, 3)).astype(np.float32))
    unit = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    features = model.op("CONV_2D", [image, weights, model.constant(np.ones(4, np.float32))], (1, 1, 1, 4), options=unit)
    pool = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    model.output(model.op("RELU", [model.op("MAX_POOL_2D", [features], (1, 1, 1, 4), options=pool)], (1, 1, 1, 4)))
    return model.finish()


def hosted(content: bytes, cache: Path, **options: Any) -> tuple[LiteRT, jitdelegate.GpuDelegate]:
    """LiteRT's own interpreter, and the delegate in it."""
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=cache, **options)
    return LiteRT(model_content=content, experimental_delegates=[delegate]), delegate


def answer(interpreter: Any, value: np.ndarray) -> np.ndarray:
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], value.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def images(*sizes: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.standard_normal((1, size, size + 1, 3)).astype(np.float32) for size in sizes]


def rows(*counts: int) -> list[np.ndarray]:
    return [np.arange(12 * count, dtype=np.float32).reshape(1, -1) - 20 for count in counts]


PLACEHOLDERS = {"image": (halved(), images(6, 2, 17, 6)), "rows": (small_models.rows_of_a_dozen(), rows(2, 5, 1, 2))}


@pytest.mark.parametrize(("content", "values"), PLACEHOLDERS.values(), ids=PLACEHOLDERS)
def test_what_the_file_s_placeholders_forbid_is_compiled_for_real_shapes(
    content: bytes, values: list[np.ndarray], tmp_path: Path
) -> None:
    interpreter, delegate = hosted(content, tmp_path)
    before = callbacks.python_invocations
    for value in values:
        np.testing.assert_allclose(answer(interpreter, value), answer(LiteRT(model_content=content), value), rtol=1e-5)
        report = delegate.report()
        assert report is not None and report.fully_delegated and report.kernels
    assert callbacks.python_invocations == before


@pytest.mark.parametrize(("content", "values"), PLACEHOLDERS.values(), ids=PLACEHOLDERS)
def test_a_loaded_model_runs_whole_for_real_shapes(content: bytes, values: list[np.ndarray], tmp_path: Path) -> None:
    with jitdelegate.load(content, target="cpu", serialization_dir=tmp_path) as model:
        for value in values:
            np.testing.assert_allclose(model(value), answer(LiteRT(model_content=content), value), rtol=1e-5)
            assert model._ran_last.program.loader == "flat"


def test_an_interpreter_begins_with_the_file_s_shapes_where_others_decide_what_is_compiled() -> None:
    for interpreter in (jitdelegate.Interpreter(model_content=halved()), LiteRT(model_content=halved())):
        interpreter.allocate_tensors()
        assert interpreter.get_input_details()[0]["shape"].tolist() == [1, 1, 1, 3]


def test_placeholders_that_litert_refuses_are_refused(tmp_path: Path) -> None:
    content = small_models.rows_of_a_dozen()
    for interpreter in (hosted(content, tmp_path)[0], LiteRT(model_content=content)):
        with pytest.raises(RuntimeError, match="failed to prepare"):
            interpreter.allocate_tensors()


def test_shapes_that_nothing_is_compiled_for_run_on_litert(tmp_path: Path) -> None:
    """No kernel is for values without elements."""
    interpreter, delegate = hosted(small_models.convolution(open_batch=True), tmp_path)
    for batch in (2, 0, 3):
        value = np.ones((batch, 8, 8, 3), np.float32)
        expected = answer(LiteRT(model_content=small_models.convolution(open_batch=True)), value)
        np.testing.assert_allclose(answer(interpreter, value), expected, rtol=1e-5)
        report = delegate.report()
        assert report is not None and report.fully_delegated == (batch > 0)


def test_shapes_that_nothing_is_compiled_for_are_refused_where_full_delegation_is_required(tmp_path: Path) -> None:
    interpreter, _ = hosted(small_models.convolution(open_batch=True), tmp_path, require_full_delegation=True)
    answer(interpreter, np.ones((2, 8, 8, 3), np.float32))
    with pytest.raises(RuntimeError, match="full delegation was required"):
        answer(interpreter, np.ones((0, 8, 8, 3), np.float32))


def test_every_shape_is_one_program_in_the_cache(tmp_path: Path) -> None:
    for _ in range(2):
        interpreter, _ = hosted(halved(), tmp_path)
        for value in images(6, 4):
            answer(interpreter, value)
        assert len([*tmp_path.glob("*.jitd")]) == 3
