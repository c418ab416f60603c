"""A model's file is mapped while it is compiled, and while LiteRT runs it; what others do to it changes no answer."""

from __future__ import annotations

import errno
import gc
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import warm
from jitdelegate.engine import model_file
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import DeviceError, ModelError
from jitdelegate.ir.graph import Model
from jitdelegate.runtime.cache.key import fingerprint
from jitdelegate.runtime.shared_file import SharedFile
from jitdelegate.tflite import read as reader
from tests.api import small_models

MODEL = small_models.convolution()
OTHER = small_models.two_outputs()


@pytest.fixture(autouse=True)
def files_of_any_size_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "LEAST_MAPPED", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.tflite"
    found.write_bytes(MODEL)
    return found


@pytest.fixture
def source(path: Path) -> ModelFile:
    found = ModelFile(path, DelegateOptions(serialization_dir=False))
    found.fingerprint()
    if found._mapped() is None:
        pytest.skip("files are not mapped on this system")
    return found


def touch(path: Path) -> None:
    os.utime(path)


def cut_and_restore(path: Path) -> None:
    os.truncate(path, 0)
    path.write_bytes(MODEL)


def replace_by_other(path: Path) -> None:
    path.write_bytes(OTHER)


def move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replace_atomically(path: Path) -> None:
    path.with_name("other").write_bytes(OTHER)
    path.with_name("other").replace(path)


class Maker:
    """Lets something happen to the file while it reads the first content."""

    def __init__(self, path: Path, happens: Callable[[Path], None], *, fails: bool = False) -> None:
        self.path, self.happens, self.fails = path, happens, fails
        self.kinds: list[type] = []

    def __call__(self, content: Any) -> str:
        self.kinds.append(type(content.obj) if isinstance(content, memoryview) else type(content))
        if len(self.kinds) == 1:
            self.happens(self.path)
            if self.fails:
                raise ValueError("what was read makes no sense")
        return fingerprint(content)


def test_a_file_is_mapped_and_read_once(path: Path, source: ModelFile) -> None:
    maker = Maker(path, lambda _: None)
    assert source.make(maker) == fingerprint(MODEL) and maker.kinds == [SharedFile]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("happens", [touch, cut_and_restore, move_away, replace_atomically])
def test_what_was_made_while_the_file_was_touched_is_made_again_from_a_copy(
    path: Path, source: ModelFile, happens: Callable[[Path], None], fails: bool
) -> None:
    maker = Maker(path, happens, fails=fails)
    assert source.make(maker) == fingerprint(MODEL) and maker.kinds == [SharedFile, bytes]


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_made_while_the_file_became_another_model_is_an_error(
    path: Path, source: ModelFile, fails: bool
) -> None:
    maker = Maker(path, replace_by_other, fails=fails)
    with pytest.raises(ModelError, match="changed since it was opened"):
        source.make(maker)
    assert maker.kinds == [SharedFile]


def test_an_error_of_a_file_that_stays_as_it_is_is_raised(path: Path, source: ModelFile) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        source.make(Maker(path, lambda _: None, fails=True))


def test_a_file_that_changed_before_is_not_mapped(path: Path, source: ModelFile) -> None:
    path.write_bytes(OTHER)
    with pytest.raises(ModelError, match="changed since it was opened"):
        source.make(Maker(path, lambda _: None))


def test_a_file_that_is_gone_is_an_error(path: Path, source: ModelFile) -> None:
    path.unlink()
    with pytest.raises(ModelError, match="Could not open"):
        source.make(Maker(path, lambda _: None))


@pytest.mark.parametrize("happens", [touch, cut_and_restore, move_away, replace_atomically])
def test_a_program_compiled_while_others_touch_the_file_is_right(
    path: Path, tmp_path: Path, happens: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, contents = reader.read, list[Any]()

    def read(content: Any) -> Any:
        contents.append(content)
        if len(contents) == 1:
            happens(path)
        return real(content)

    value = np.random.default_rng(0).uniform(size=(1, 8, 8, 3)).astype(np.float32)
    expected = jitdelegate.load(MODEL, target="cpu", serialization_dir=tmp_path / "apart")(value)
    monkeypatch.setattr(reader, "read", read)
    found = jitdelegate.load(path, target="cpu", serialization_dir=tmp_path / "cache")(value)
    np.testing.assert_array_equal(found, expected)
    assert len(contents) == 2
    (entry,), (other,) = ((tmp_path / folder).glob("*.jitd") for folder in ("cache", "apart"))
    assert entry.read_bytes() == other.read_bytes()


# LiteRT's own mapping

IMAGE = np.random.default_rng(2).normal(size=(1, 8, 8, 3)).astype(np.float32)


def open_on_litert(path: Path) -> jitdelegate.Model:
    return jitdelegate.load(path, target="litert", serialization_dir=False, num_threads=1)


def test_litert_maps_a_file_and_reads_no_copy(path: Path, source: ModelFile) -> None:
    with open_on_litert(path) as model:
        interpreter = model._opened.source.fallback().interpreter
        assert interpreter._mapped is not None and interpreter._mapped.mappings()
        assert len(interpreter._nets) == 1 and getattr(interpreter, "_model_content", None) is None
        assert bytes(model(IMAGE)) == bytes(jitdelegate.load(MODEL, target="litert", serialization_dir=False)(IMAGE))


@pytest.mark.parametrize("name", ["dup", "fstat"])
def test_litert_gets_a_copy_where_the_mapping_cannot_be_watched(
    name: str, source: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = source._mapped()

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(source, "_mapped", lambda: mapped)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        patch.setattr(source, "content", lambda: MODEL)
        assert source._litert_source() == MODEL
        gc.collect()


def test_a_run_of_litert_is_an_error_where_nobody_can_tell_whether_the_file_changed(
    path: Path, source: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_on_litert(path) as model:
        expected = bytes(model(IMAGE))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", fail)
            with pytest.raises(
                DeviceError, match="nobody can tell whether the model's file changed: Input/output error"
            ):
                model(IMAGE)
        assert bytes(model(IMAGE)) == expected


@pytest.mark.parametrize("happens", [touch, move_away, replace_atomically, Path.unlink])
def test_a_file_that_is_touched_or_replaced_changes_no_answer_of_litert(
    path: Path, source: ModelFile, happens: Callable[[Path], None]
) -> None:
    with open_on_litert(path) as model:
        expected = bytes(model(IMAGE))
        happens(path)
        assert bytes(model(IMAGE)) == expected
        model.reset_all_variables()  # makes another interpreter
        assert bytes(model(IMAGE)) == expected


@pytest.mark.parametrize("happens", [replace_by_other, lambda path: os.truncate(path, 0)])
def test_a_file_that_is_overwritten_ends_runs_of_litert_with_an_error(
    path: Path, source: ModelFile, happens: Callable[[Path], None]
) -> None:
    with open_on_litert(path) as model:
        model(IMAGE)
        happens(path)
        for _ in range(2):
            with pytest.raises(DeviceError, match="the model's file changed while LiteRT read from it"):
                model(IMAGE)


def test_a_path_with_a_newline_is_guarded_too(path: Path, source: ModelFile) -> None:
    odd = path.rename(path.with_name(" a\nmodel\r \\.tflite "))
    with open_on_litert(odd) as model:
        assert len(model._opened.source.fallback().interpreter._nets) == 1


def test_mappings_that_others_make_meanwhile_are_not_guarded(
    path: Path, source: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, theirs = LiteRT.__init__, list[mmap.mmap]()

    def make_and_map(*arguments: Any, **keywords: Any) -> None:
        make(*arguments, **keywords)
        with path.open("rb") as file:
            theirs.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    monkeypatch.setattr(LiteRT, "__init__", make_and_map)
    with open_on_litert(path) as model:
        assert model._opened.source.fallback().interpreter._nets == []
    assert len(theirs) == 1


def test_guards_of_litert_s_mappings_go_with_them(path: Path, source: ModelFile) -> None:
    with open_on_litert(path) as model:
        guard = model._opened.source.fallback().interpreter._nets[0]._guard
        taken = len(guard.free)
    del model
    gc.collect()
    assert len(guard.free) > taken


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each content that is read for a compilation."""
    found, once = list[int](), reader.read

    def read(content: memoryview) -> Model:
        found.append(len(content))
        return once(content)

    monkeypatch.setattr(reader, "read", read)
    return found


@pytest.mark.parametrize("is_path", [True, False])
def test_a_file_is_parsed_once_for_all_signatures(parses: list[int], path: Path, is_path: bool) -> None:
    content = small_models.two_signatures()
    path.write_bytes(content)
    model = jitdelegate.load(path if is_path else content, serialization_dir=False, target="cpu")
    model.prepare()
    source = model._opened.source
    assert parses == [len(content)]
    assert source._kept is None
    assert source._reading is None


def test_a_file_that_was_touched_between_two_signatures_is_parsed_again(parses: list[int], path: Path) -> None:
    path.write_bytes(small_models.two_signatures())
    model = jitdelegate.load(path, serialization_dir=False, target="cpu")
    touch(path)
    model.prepare()
    assert len(parses) == 2


def test_nothing_stays_once_every_signature_has_a_program(parses: list[int], path: Path, tmp_path: Path) -> None:
    path.write_bytes(small_models.two_signatures())

    def load() -> jitdelegate.Model:
        return jitdelegate.load(path, serialization_dir=tmp_path / "cache", target="cpu")

    load()
    (first,) = (tmp_path / "cache").glob("*.jitd")
    load().prepare()
    first.unlink()
    parses.clear()
    model = load()
    source = model._opened.source
    assert len(parses) == 1
    assert source._kept is not None
    model.run({"x": np.ones((1, 2), np.float32)}, signature="triple")  # in the cache
    assert (len(parses), source._kept, source._reading) == (1, None, None)


def test_a_file_is_parsed_once_for_all_shapes_that_warm_is_given(parses: list[int], path: Path, tmp_path: Path) -> None:
    path.write_bytes(small_models.two_signatures())
    shapes = [argument for size in (2, 3) for argument in ("--input-shape", f"0={size}x2")]
    assert warm.main([str(path), "--serialization-dir", str(tmp_path / "cache"), "--target", "cpu", *shapes]) == 0
    assert len(parses) == 1


def test_a_model_that_is_closed_keeps_no_mapping(path: Path) -> None:
    path.write_bytes(small_models.two_signatures())
    model = jitdelegate.load(path, serialization_dir=False, target="cpu")
    source = model._opened.source
    assert source._kept is not None
    model.close()
    assert source._kept is None
