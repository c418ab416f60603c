"""A model whose entry other processes change keeps its results, variables, views and target."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cache import store
from jitdelegate.runtime.cache.store import counts
from tests.api import partial_models as partial
from tests.api import small_models
from tests.api.resource_models import streaming
from tests.api.test_shape_inputs import sliced
from tests.entries import only_entry
from tests.ops.recurrent_models import LstmModel

IMAGE = np.random.default_rng(1).uniform(-1, 1, (1, 8, 8, 3)).astype(np.float32)
LSTM = LstmModel(op="LSTM").content()


@pytest.fixture(autouse=True)
def weights_of_any_size_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LEAST_SHARED", 0)
    monkeypatch.setattr("jitdelegate.program.write.LEAST_PAGES", 0)


def load(content: bytes, cache: Path, **options: Any) -> jitdelegate.Model:
    """A model on a shared entry."""
    jitdelegate.load(content, serialization_dir=cache, num_threads=1, options=options).close()
    model = jitdelegate.load(content, serialization_dir=cache, num_threads=1, options=options)
    session = model._opened.session
    if session is not None and session.shared is None:
        pytest.skip("nothing is shared on this system")
    return model


def interpreter(content: bytes, cache: Path) -> jitdelegate.Interpreter:
    load(content, cache).close()
    made = jitdelegate.Interpreter(
        model_content=content, experimental_delegates=[jitdelegate.GpuDelegate(serialization_dir=cache, num_threads=1)]
    )
    made.allocate_tensors()
    return made


def cut(cache: Path) -> None:
    for path in cache.glob("*.jitd"):
        os.truncate(path, 0)


def never(*_: object) -> None:
    pytest.fail("it was compiled again")


def test_a_cut_entry_is_compiled_again_and_its_weights_are_private_from_then_on(tmp_path: Path) -> None:
    with load(small_models.convolution(), tmp_path) as model:
        expected = bytes(model(IMAGE))
        assert model.report().cache.outcome == "hit"
        cut(tmp_path)
        assert bytes(model(IMAGE)) == expected
        report = model.report()
        assert report.cache.outcome == "miss" and "the entry was damaged: weights: hash of" in report.cache.reason
        assert len(report.operators) == 1
        assert model._opened.session is not None and model._opened.session.shared is None
        cut(tmp_path)
        assert bytes(model(IMAGE)) == expected
    with load(small_models.convolution(), tmp_path) as model:
        assert bytes(model(IMAGE)) == expected


def test_an_entry_that_is_whole_again_is_opened_again_and_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(small_models.convolution(), tmp_path) as model:
        expected, good = bytes(model(IMAGE)), only_entry(tmp_path).read_bytes()
        cut(tmp_path)
        assert not any(bytes(model._opened.program.weights))  # what is mapped is gone for good
        only_entry(tmp_path).chmod(0o600)
        only_entry(tmp_path).write_bytes(good)
        monkeypatch.setattr("jitdelegate.compiler.entry.compiled", never)
        assert bytes(model(IMAGE)) == expected
    assert only_entry(tmp_path).read_bytes() == good


def test_a_restored_entry_is_no_trouble_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load(small_models.convolution(), tmp_path) as model:
        expected, good = bytes(model(IMAGE)), only_entry(tmp_path).read_bytes()
        only_entry(tmp_path).chmod(0o600)
        only_entry(tmp_path).write_bytes(good)
        monkeypatch.setattr("jitdelegate.engine.load_path.recompile", never)
        assert bytes(model(IMAGE)) == expected
        assert model._opened.session is not None and model._opened.session.shared is not None


def test_private_weights_share_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(small_models.convolution(), tmp_path).close()
    monkeypatch.setattr("jitdelegate.engine.load_path.recompile", never)
    options = {"private_weights": True}
    with jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path, options=options) as model:
        assert model._opened.session is not None and model._opened.session.shared is None
        expected = bytes(model(IMAGE))
        assert model.report().cache.hit
        cut(tmp_path)
        assert bytes(model(IMAGE)) == expected


def test_views_of_an_interpreters_tensors_stay_the_memory_that_is_computed_on(tmp_path: Path) -> None:
    made = interpreter(small_models.convolution(), tmp_path)
    given, found = made.get_input_details()[0]["index"], made.get_output_details()[0]["index"]
    view, result = made.tensor(given), made.tensor(found)
    before = view().ctypes.data, result().ctypes.data
    view()[:] = IMAGE
    made.invoke()
    expected = result().copy()
    view()[:] = 0
    made.invoke()
    cut(tmp_path)
    view()[:] = IMAGE
    made.invoke()
    assert np.array_equal(result(), expected)
    assert (view().ctypes.data, result().ctypes.data) == before
    assert np.array_equal(made.get_tensor(found), expected) and np.array_equal(made.get_tensor(given), IMAGE)
    assert made.report().cache.outcome == "miss"


@pytest.mark.parametrize("content", [streaming(), LSTM, partial.remembering()])
@pytest.mark.parametrize("at", [0, 2])
def test_variables_go_on_where_they_were(tmp_path: Path, content: bytes, at: int) -> None:
    with jitdelegate.load(content, serialization_dir=False, num_threads=1) as model:
        shapes = [each.shape for each in model.inputs]
    rounds = [[np.full(shape, 0.25 * turn, np.float32) for shape in shapes] for turn in range(5)]

    def answers(model: jitdelegate.Model, change: Callable[[], None]) -> list[bytes]:
        found: list[list[np.ndarray]] = []
        for turn, values in enumerate(rounds):
            if turn == at:
                change()
            found += partial.called(model, [values])
        return [output.tobytes() for outputs in found for output in outputs]

    with load(content, tmp_path / "a") as model:
        expected = answers(model, lambda: None)
    with load(content, tmp_path / "b") as model:
        assert answers(model, lambda: cut(tmp_path / "b")) == expected
        assert model.report().cache.outcome == "miss"


def test_a_variable_that_was_set_is_kept(tmp_path: Path) -> None:
    made = interpreter(LSTM, tmp_path)
    index = made._opened.program.states[0].index
    value = np.full(made.get_tensor(index).shape, 0.5, np.float32)
    made.set_tensor(index, value)
    cut(tmp_path)
    assert np.array_equal(made.get_tensor(index), value)
    made.invoke()
    assert made.report().cache.outcome == "miss"


@pytest.mark.parametrize("content", [partial.alternating(width=64), partial.remembering()])
def test_a_model_in_partitions_is_healed_with_the_variables_of_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    partial.choose_loader(monkeypatch, "partitions")
    rounds = partial.rounds_for(content, 4)
    options = {key: value for key, value in partial.options().items() if key != "serialization_dir"}
    with load(content, tmp_path, **options) as model:
        assert model._opened.program.loader == "partitions"
        first = partial.called(model, rounds[:2])
        cut(tmp_path)
        second = partial.called(model, rounds[2:])
        assert model.report().cache.outcome == "miss"
    with load(content, tmp_path / "other", **options) as model:
        partial.assert_same(first + second, partial.called(model, rounds))


def test_a_program_for_a_value_is_healed(tmp_path: Path) -> None:
    value, begin = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.array([0, 1, 0], np.int32)
    with load(sliced(), tmp_path) as model:
        expected = np.array(model(value, begin))
        cut(tmp_path)
        assert np.array_equal(np.array(model(value, begin)), expected)
    made = interpreter(sliced(), tmp_path)
    for change in (lambda: None, lambda: cut(tmp_path)):
        change()
        for detail, given in zip(made.get_input_details(), (value, begin), strict=True):
            made.set_tensor(detail["index"], given)
        made.invoke()
        assert np.array_equal(made.get_tensor(made.get_output_details()[0]["index"]), expected)


def test_a_model_that_cannot_be_healed_says_so_and_runs_on_litert_when_it_is_allocated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = interpreter(small_models.convolution(), tmp_path)
    made.invoke()
    cut(tmp_path)

    def refuse(*_: object) -> None:
        raise DeviceError("no memory of 5000 bytes")

    monkeypatch.setattr("jitdelegate.runtime.cpu.session.Session", refuse)
    with pytest.raises(DeviceError, match="cannot be loaded: no memory of 5000 bytes"):
        made.invoke()
    made.allocate_tensors()
    made.set_tensor(made.get_input_details()[0]["index"], IMAGE)
    made.invoke()
    assert made.report().target == "litert"


def test_a_model_without_its_file_ends_in_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    jitdelegate.load(path, serialization_dir=tmp_path / "cache", num_threads=1).close()
    with jitdelegate.load(path, serialization_dir=tmp_path / "cache", num_threads=1) as model:
        expected = bytes(model(IMAGE))
        cut(tmp_path / "cache")
        path.unlink()
        for _ in range(2):
            with pytest.raises(jitdelegate.ModelError, match="Could not open"):
                model(IMAGE)
        path.write_bytes(small_models.convolution())
        assert bytes(model(IMAGE)) == expected


def test_a_changed_entry_is_counted(tmp_path: Path) -> None:
    with load(small_models.convolution(), tmp_path) as model:
        model(IMAGE)
        counts.reset()
        cut(tmp_path)
        model(IMAGE)
    assert counts.misses == {"damaged": 1} and counts.writes == 1
