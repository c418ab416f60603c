"""A cache that keeps nothing says so once, where its user looks, and never fails a model."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import jitdelegate
from jitdelegate import CacheWarning
from jitdelegate.base.user_warning import PlainWarnings
from jitdelegate.commands import warm
from jitdelegate.runtime.cache import trouble
from jitdelegate.runtime.cache.directory import CacheDirectory
from tests.api import programs, small_models
from tests.child import in_child

MODEL = small_models.convolution()
IMAGE = bytes(768)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_told", set())


def open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def link(path: Path) -> None:
    path.symlink_to(path.parent)


def foreign(path: Path) -> None:
    path.mkdir(mode=0o700)
    if os.geteuid() != 0:
        pytest.skip("only root can give directories to another user")
    os.chown(path, 65534, 65534)


UNUSABLE: list[tuple[Callable[[Path], object], str, str]] = [
    (open_to_others, "has mode 0777, expected one that others cannot write", "chmod 700 {}, or another"),
    (link, "is a symbolic link, expected a directory", "another"),
    (Path.touch, "is not a directory", "another"),
    (foreign, "belongs to user 65534", "another"),
]


@pytest.mark.parametrize(("make", "reason", "remedy"), UNUSABLE)
def test_a_directory_that_cannot_be_used_is_one_warning_about_the_user_s_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], object], reason: str, remedy: str
) -> None:
    cache = tmp_path / "cache"
    make(cache)
    with pytest.warns(CacheWarning) as warned:
        for _ in range(3):
            with jitdelegate.load(MODEL, serialization_dir=cache) as model:
                assert len(bytes(model(IMAGE))) == 256
                assert reason in model.report().cache.reason
    (one,) = warned
    text = str(one.message)
    assert one.filename == __file__
    assert f"cache directory {cache} " in text and reason in text
    assert f"What helps: {remedy.format(cache)}" in text and text.endswith(
        "serialization_dir=False to do without a cache."
    )
    assert [(record.name, record.levelno, record.message) for record in caplog.records] == [
        ("jitdelegate", logging.WARNING, text)
    ]


def test_a_directory_that_cannot_be_made_is_a_warning() -> None:
    with pytest.warns(CacheWarning, match="cache directory /proc/nowhere cannot be used: .*No such file"):
        jitdelegate.load(MODEL, serialization_dir="/proc/nowhere").close()


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "more space there, or another"), (errno.EROFS, "another"), (0, "another")]
)
def test_a_directory_that_takes_no_program_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number)) if number else MemoryError

    monkeypatch.setattr(CacheDirectory, "write", refuse)
    with pytest.warns(CacheWarning) as warned:
        for _ in range(2):
            with jitdelegate.load(MODEL, serialization_dir=tmp_path) as model:
                assert len(bytes(model(IMAGE))) == 256
    (one,) = warned
    reason = os.strerror(number) if number else "no memory"
    assert f"cache directory {tmp_path} does not take the program" in str(one.message) and reason in str(one.message)
    assert f"What helps: {remedy} serialization_dir" in str(one.message)
    assert reason in model.report().cache.write_failure


def test_each_directory_is_told_for_itself(tmp_path: Path) -> None:
    with pytest.warns(CacheWarning) as warned:
        for name in ("one", "other", "one"):
            (tmp_path / name).touch()
            jitdelegate.load(MODEL, serialization_dir=tmp_path / name).close()
    assert len(warned) == 2


@pytest.mark.parametrize("how", ["cold", "warm", "off", "read-only but warm"])
def test_a_cache_that_does_what_it_was_asked_for_warns_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    cache = False if how == "off" else tmp_path / "cache"
    if "warm" in how:
        jitdelegate.load(MODEL, serialization_dir=cache).close()
    if how.startswith("read-only"):
        monkeypatch.setattr(CacheDirectory, "create", lambda *_: pytest.fail("something is written"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitdelegate.load(MODEL, serialization_dir=cache).close()


def test_where_not_even_a_module_can_be_read_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jitdelegate.base.user_warning", None)
    (tmp_path / "file").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with jitdelegate.load(MODEL, serialization_dir=tmp_path / "file") as model:
            assert len(bytes(model(IMAGE))) == 256


def test_a_program_that_configures_no_log_sees_the_text_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "model.tflite").write_bytes(MODEL)
    done = in_child(programs.load, tmp_path / "model.tflite", tmp_path / "file")
    assert done.returncode == 0
    assert done.stderr.count("is not a directory") == 1


@pytest.mark.filterwarnings("default::jitdelegate.CacheWarning")
def test_a_command_prints_one_line_without_a_place_in_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "model.tflite").write_bytes(MODEL)
    model, cache = str(tmp_path / "model.tflite"), str(tmp_path / "file")
    assert warm.main([model, model, "--serialization-dir", cache]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"cache directory {cache} is not a directory") for line in lines] == [True, False, False]
    assert all(line.startswith(f"{model}: nothing was stored") for line in lines[1:])


def test_a_command_leaves_other_warnings_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning) as warned, PlainWarnings(CacheWarning):
        warnings.warn("theirs", UserWarning, stacklevel=1)
        warnings.warn("ours", CacheWarning, stacklevel=1)
    assert [str(each.message) for each in warned] == ["theirs"]
    assert capsys.readouterr().err == "ours\n"
