"""In LiteRT's interpreter, the delegate takes what it can for the shapes that inputs come to have."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.engine.executable import MOST_SHAPES
from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import small_models
from tests.child import answer_of


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


WIDTH = 1024


def matrices() -> bytes:
    """f32[?,WIDTH] -> FULLY_CONNECTED, TANH twice: 8 MB of weights."""
    random, model = np.random.default_rng(0), ModelBuilder()
    value = model.input((1, WIDTH), name="rows", shape_signature=(-1, WIDTH))
    for _ in range(2):
        weights = model.constant(random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 32)
        value = model.op("TANH", [model.op("FULLY_CONNECTED", [value, weights, None], (1, WIDTH))], (1, WIDTH))
    model.output(value)
    return model.finish()


def anonymous() -> int:
    """Bytes of this process that no file holds."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous"))


def places() -> set[tuple[int, ...]]:
    """Where the partitions that LiteRT has now read their matrices."""
    sessions = [kernel._client_kernel._session for kernel in callbacks.kernels.values()]  # type: ignore[union-attr]
    return {tuple(session._memory.weights.constants) for session in sessions}


def batch(rows: int) -> np.ndarray:
    return np.linspace(-1, 1, rows * WIDTH, dtype=np.float32).reshape(rows, WIDTH)


def runs_many_shapes(folder: str, private: str) -> None:
    """In a process of its own, whose memory other tests leave alone."""
    content, found, memory = matrices(), set(), []
    for _ in range(2):  # as they are compiled, and from the cache
        interpreter, _ = hosted(content, Path(folder), private_weights=private == "private", num_threads=1)
        for rows in range(1, MOST_SHAPES + 5):
            answer(interpreter, batch(rows))
            found |= places()
            memory.append(anonymous())
        assert len(found) == 1
        found.clear()
        growth = max(memory[1:]) - memory[0]
        assert growth < 4 * WIDTH * WIDTH, f"{growth} bytes more for other shapes of a model of {len(content)}"
        memory.clear()
        del interpreter
        gc.collect()


@pytest.mark.parametrize("weights", ["shared", "private"])
def test_all_shapes_share_one_copy_of_the_weights(tmp_path: Path, weights: str) -> None:
    answer_of(runs_many_shapes, tmp_path, weights)


def test_two_interpreters_share_one_copy_of_the_weights(tmp_path: Path) -> None:
    content = matrices()
    first, second = (hosted(content, tmp_path)[0] for _ in range(2))
    expected = answer(first, batch(3))
    np.testing.assert_array_equal(answer(second, batch(3)), expected)
    assert len(places()) == 1
    del first
    gc.collect()
    np.testing.assert_array_equal(answer(second, batch(3)), expected)


def test_only_the_shapes_used_last_are_kept_and_litert_s_kernel_goes_on(tmp_path: Path) -> None:
    content = small_models.convolution(open_batch=True)
    interpreter, delegate = hosted(content, tmp_path)
    other = LiteRT(model_content=content)
    model = delegate._hosted
    assert model is not None
    value = np.ones((2, 8, 8, 3), np.float32)
    found, gone = answer(interpreter, value), []
    for rows in range(3, MOST_SHAPES + 6):  # asks for the programs of other shapes, as a second interpreter would
        gone.append(weakref.ref(model._open(0, ((rows, 8, 8, 3),))))
        model._open(0, ((3, 8, 8, 3),))
        assert len(model.further) <= MOST_SHAPES
    gc.collect()
    kept = [each.resized[0][0] for each in model.further]
    assert kept == [*range(7, MOST_SHAPES + 6), 3][-MOST_SHAPES:] and [each() for each in gone[1:4]] == 3 * [None]
    report = delegate.report()
    assert report is not None and sum(note.startswith("inputs of") for note in report.notes) == MOST_SHAPES
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), found)
    np.testing.assert_allclose(found, answer(other, value), rtol=1e-5)
    assert answer(interpreter, value).shape == found.shape
