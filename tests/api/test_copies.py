"""Copies and pickles of what users hold: another model of its own, or one clear error."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.errors import DeviceError, ModelError
from tests.api import partial_models as partial
from tests.api import resource_models, small_models

X = np.random.default_rng(0).standard_normal((1, 8, 8, 3)).astype(np.float32)
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {number}": lambda value, number=number: pickle.loads(pickle.dumps(value, number))
        for number in range(2, 6)
    },
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    return path


@EVERY_WAY
def test_a_copied_model_is_opened_anew_from_the_cache(way: Callable[[Any], Any], path: Path, tmp_path: Path) -> None:
    for source in (path, path.read_bytes()):
        model = jitdelegate.load(source, target="cpu", serialization_dir=tmp_path / "cache", num_threads=2)
        other = way(model)
        assert other.report().cache.hit
        assert other._opened.source.options.num_threads == 2
        expected = np.array(model(X))
        model.close()
        np.testing.assert_array_equal(other(X), expected)
        assert other.report().target == "cpu"


@EVERY_WAY
def test_closing_a_copy_leaves_the_model_as_it_is(way: Callable[[Any], Any], path: Path) -> None:
    model = jitdelegate.load(path, target="cpu", serialization_dir=False)
    expected = np.array(model(X))
    way(model).close()
    np.testing.assert_array_equal(model(X), expected)
    assert model._opened.session is not None


@EVERY_WAY
def test_a_copy_has_variables_of_its_own(way: Callable[[Any], Any]) -> None:
    model = jitdelegate.load(resource_models.streaming(), target="cpu", serialization_dir=False)
    frame = np.ones((1, 1, 4), np.float32)
    first = np.array(model(frame))
    model(frame)
    other = way(model)
    np.testing.assert_array_equal(other(frame), first)
    assert np.array(model(frame)) != first


@EVERY_WAY
@pytest.mark.parametrize("loader", partial.LOADERS)
def test_models_in_part_on_litert_are_copied_too(
    loader: str, way: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    partial.choose_loader(monkeypatch, loader)
    content = partial.alternating()
    rounds = partial.rounds_for(content)
    with jitdelegate.load(content, options=partial.options()) as model:
        other = way(model)
    partial.assert_same(partial.called(other, rounds), partial.expected(content, rounds))


def test_a_file_that_holds_another_model_by_then_is_refused(path: Path) -> None:
    pickled = pickle.dumps(jitdelegate.load(path, serialization_dir=False))
    path.write_bytes(small_models.convolution(seed=1))
    with pytest.raises(ModelError, match="is another model: found fingerprint"):
        pickle.loads(pickled)
    path.unlink()
    with pytest.raises(ModelError, match="Could not open"):
        pickle.loads(pickled)


@EVERY_WAY
def test_a_closed_model_says_so(way: Callable[[Any], Any], path: Path) -> None:
    model = jitdelegate.load(path, serialization_dir=False)
    model.close()
    with pytest.raises(DeviceError, match="the model is closed"):
        way(model)


@EVERY_WAY
def test_an_interpreter_says_that_it_cannot_be_copied(way: Callable[[Any], Any], path: Path) -> None:
    with pytest.raises(TypeError, match="an Interpreter cannot be copied or pickled"):
        way(jitdelegate.Interpreter(path))


@EVERY_WAY
def test_events_and_batchers_say_that_they_cannot_be_copied(way: Callable[[Any], Any], path: Path) -> None:
    with jitdelegate.CompiledModel.from_file(str(path)) as model:
        buffers = model.create_input_buffers(0), model.create_output_buffers(0)
        for event in (jitdelegate.Event.create_managed(), model.run_async_by_index(0, *buffers)):
            with pytest.raises(TypeError, match="an Event cannot be copied or pickled"):
                way(event)
    batcher = jitdelegate.DynamicBatcher(jitdelegate.load(path, serialization_dir=False))
    with pytest.raises(TypeError, match="a DynamicBatcher cannot be copied or pickled"):
        way(batcher)


@EVERY_WAY
def test_an_environment_is_copied(way: Callable[[Any], Any]) -> None:
    environment = jitdelegate.Environment.create(compiler_cache_dir="programs", compiler_plugin_path="plugins")
    assert way(environment.options) == environment.options == way(environment).options


@EVERY_WAY
def test_a_copied_delegate_has_the_same_options(way: Callable[[Any], Any], tmp_path: Path) -> None:
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=tmp_path, only_ops=("ADD", "MUL"))
    assert repr(way(delegate)) == repr(delegate)
    assert way(delegate).report() is None


@EVERY_WAY
def test_outputs_and_reports_are_copied(way: Callable[[Any], Any], path: Path) -> None:
    model = jitdelegate.load(path, target="cpu", serialization_dir=False)
    output = model(X)
    other = way(output)
    assert (other.dtype, other.shape, bytes(other)) == (output.dtype, output.shape, bytes(output))
    np.asarray(other)[...] = 0
    assert bytes(other) != bytes(output)
    assert str(way(model.report())) == str(model.report())
    assert [repr(info) for info in way(model.inputs)] == [repr(info) for info in model.inputs]


def _answer(model: jitdelegate.Model) -> bytes:
    return bytes(model(X))


def test_a_pool_of_processes_takes_models(path: Path, tmp_path: Path) -> None:
    model = jitdelegate.load(path, target="cpu", serialization_dir=tmp_path / "cache")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_answer, (model,)) == bytes(model(X))
