"""The cache through load(): bad entries never give wrong results, and are replaced."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from jitdelegate.api.report import Report
from jitdelegate.errors import ModelError
from jitdelegate.program.program import READ_LATER
from jitdelegate.runtime.cache import key, memo
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.memo import Memo
from jitdelegate.runtime.cache.store import Store
from tests.api import small_models
from tests.entries import overwrite

IMAGE = np.random.default_rng(1).uniform(-1, 1, (1, 8, 8, 3)).astype(np.float32)


def start(cache: Path, content: bytes | Path, token: str | None = None) -> tuple[bytes, Report]:
    """Load and run once, as a fresh start would."""
    with jitdelegate.load(content, serialization_dir=cache, model_token=token, num_threads=1) as model:
        return bytes(model(IMAGE)), model.report()


def entry(cache: Path) -> Path:
    (found,) = cache.glob("*.jitd")
    return found


def test_the_second_start_is_a_hit_and_answers_the_same(tmp_path: Path) -> None:
    first, cold = start(tmp_path / "cache", small_models.convolution())
    second, warm = start(tmp_path / "cache", small_models.convolution())
    assert (cold.cache.outcome, warm.cache.outcome) == ("miss", "hit")
    assert second == first
    assert "generate" in cold.seconds
    assert "generate" not in warm.seconds


def test_the_second_start_reads_nothing_that_only_reports_tell(tmp_path: Path) -> None:
    start(tmp_path, small_models.convolution())
    with jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path) as model:
        for name in READ_LATER:
            with pytest.raises(AttributeError):
                object.__getattribute__(model._opened.program, name)
        assert len(model.report().operators) == 1
        assert object.__getattribute__(model._opened.program, "operators") == model._opened.program.operators


def test_a_model_on_litert_is_a_hit_the_second_time_too(tmp_path: Path) -> None:
    for expected in ("miss", "hit"):
        model = jitdelegate.load(small_models.uncompiled(), serialization_dir=tmp_path / "cache")
        report = model.report()
        assert report.cache.outcome == expected
        assert report.operators[0].reason


def test_64_flips_and_truncations_are_all_detected_and_healed(tmp_path: Path) -> None:
    cache, content, dice = tmp_path / "cache", small_models.convolution(), random.Random(0)
    expected, _ = start(cache, content)
    good = entry(cache).read_bytes()
    for turn in range(64):
        bad = bytearray(good)
        if turn % 4 == 0:
            del bad[dice.randrange(len(bad)) :]
        else:
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        overwrite(entry(cache), bad)
        answer, report = start(cache, content)
        assert answer == expected
        assert report.cache.outcome == "miss", f"turn {turn}"
        assert "damaged" in report.cache.reason
        assert entry(cache).read_bytes() == good


def test_flipped_weights_are_healed_at_the_first_run(tmp_path: Path) -> None:
    cache, content = tmp_path / "cache", small_models.convolution()
    expected, _ = start(cache, content)
    good = entry(cache).read_bytes()
    overwrite(entry(cache), good[:-1] + bytes([good[-1] ^ 1]))
    model = jitdelegate.load(content, serialization_dir=cache)
    assert model.report().cache.outcome == "hit"  # the weights are hashed before the first output, not at open
    assert bytes(model(IMAGE)) == expected
    assert model.report().cache.outcome == "miss"
    assert entry(cache).read_bytes() == good


def test_flipped_weights_never_reach_the_interpreter(tmp_path: Path) -> None:
    cache, content = tmp_path / "cache", small_models.convolution()
    expected, _ = start(cache, content)
    good = entry(cache).read_bytes()
    overwrite(entry(cache), good[:-1] + bytes([good[-1] ^ 1]))
    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    interpreter = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], IMAGE)
    interpreter.invoke()
    assert interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tobytes() == expected
    assert entry(cache).read_bytes() == good


def test_a_view_taken_before_damage_is_found_is_the_memory_that_is_computed_on(tmp_path: Path) -> None:
    cache, content = tmp_path / "cache", small_models.convolution()
    expected, _ = start(cache, content)
    good = entry(cache).read_bytes()
    overwrite(entry(cache), good[:-1] + bytes([good[-1] ^ 1]))
    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    interpreter = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    view = interpreter.tensor(interpreter.get_input_details()[0]["index"])
    before = view().ctypes.data
    interpreter.invoke()
    view()[:] = IMAGE
    assert view().ctypes.data == before
    interpreter.invoke()
    assert interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tobytes() == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only directories")
def test_damage_in_a_read_only_cache_is_computed_around(tmp_path: Path) -> None:
    cache, content = tmp_path / "cache", small_models.convolution()
    expected, _ = start(cache, content)
    good = entry(cache).read_bytes()
    overwrite(entry(cache), good[:-1] + bytes([good[-1] ^ 1]))
    cache.chmod(0o500)
    try:
        assert start(cache, content)[0] == expected
    finally:
        cache.chmod(0o700)


def test_an_entry_that_can_be_neither_removed_nor_replaced_is_computed_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, content = tmp_path / "cache", small_models.convolution()
    expected, _ = start(cache, content)
    good = entry(cache).read_bytes()
    overwrite(entry(cache), good[:-1] + bytes([good[-1] ^ 1]))
    monkeypatch.setattr("jitdelegate.runtime.cache.directory.CacheDirectory.remove", lambda place, name: None)
    answer, report = start(cache, content)
    assert answer == expected
    assert "damaged" in report.cache.reason


def test_two_models_under_one_token_are_told_apart_and_both_stay(tmp_path: Path) -> None:
    cache, models = tmp_path / "cache", [small_models.convolution(seed=seed) for seed in range(2)]
    expected = [start(tmp_path / "other", content)[0] for content in models]
    for outcome in ("miss", "hit"):
        for content, right in zip(models, expected, strict=True):
            answer, report = start(cache, content, token="classifier")
            assert (answer, report.cache.outcome) == (right, outcome)


def test_a_file_that_changed_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution(seed=0))
    first, _ = start(tmp_path / "cache", path)
    path.write_bytes(small_models.convolution(seed=1))
    assert start(tmp_path / "cache", path)[0] != first


def answer_of(content: bytes) -> bytes:
    with jitdelegate.load(content, serialization_dir=False, num_threads=1) as model:
        return bytes(model(IMAGE))


def test_a_file_that_changes_while_it_is_opened_is_opened_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, second = tmp_path / "model.tflite", small_models.convolution(seed=1)
    path.write_bytes(small_models.convolution())
    real = Store.fingerprint

    def hash_and_change(store: Store, source: str) -> str:
        found = real(store, source)
        path.write_bytes(second)
        return found

    monkeypatch.setattr(Store, "fingerprint", hash_and_change)
    answer, _ = start(tmp_path / "cache", path)
    monkeypatch.undo()
    assert answer == answer_of(second)
    assert start(tmp_path / "cache", path)[1].cache.hit


def test_a_file_that_changes_all_the_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    monkeypatch.setattr(Store, "fingerprint", lambda store, source: "0" * 32)
    with pytest.raises(ModelError, match=r"changed since it was opened: found fingerprint \w+, expected 0000"):
        jitdelegate.load(path, serialization_dir=tmp_path / "cache")


def test_a_file_that_changes_later_is_refused_to_further_programs(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution(open_batch=True))
    with jitdelegate.load(path, serialization_dir=tmp_path / "cache", num_threads=1) as model:
        path.write_bytes(small_models.convolution(seed=1, open_batch=True))
        with pytest.raises(ModelError, match="changed since it was opened"):
            model(np.concatenate([IMAGE, IMAGE]))


@pytest.mark.parametrize("token", [None, "classifier"])
def test_a_model_that_is_edited_through_a_mapping_is_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.setattr(memo, "_SETTLED_NANOSECONDS", -1)  # as if the file had been there for long
    path, second = tmp_path / "model.tflite", small_models.convolution(seed=1)
    path.write_bytes(small_models.convolution())
    memory = np.memmap(path, "u1", "r+")
    memory[:] = memory.copy()  # from here on its pages are dirty, and writing them moves no time stamp
    for _ in range(2):
        start(tmp_path / "cache", path, token)
    before = path.stat()
    memory[:] = np.frombuffer(second, "u1")
    assert path.stat() == before
    for outcome in ("miss", "hit"):
        answer, report = start(tmp_path / "cache", path, token)
        assert (answer, report.cache.outcome) == (answer_of(second), outcome)


@pytest.mark.parametrize("token", [None, "classifier"])
def test_a_wrong_fingerprint_that_is_remembered_is_forgotten_at_the_first_contradiction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.setattr(key, "ALWAYS_HASHED", 0)
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.convolution())
    Memo(open_cache_directory(str(cache))).put(path.stat(), "0" * 32)
    expected = answer_of(small_models.convolution())
    answer, report = start(cache, path, token)
    assert (answer, report.cache.outcome) == (expected, "miss")
    assert Memo(open_cache_directory(str(cache))).get(path.stat()) == ""
    answer, report = start(cache, path, token)
    assert (answer, report.cache.outcome) == (expected, "hit")


@pytest.mark.parametrize("place", ["file", "file/below", "\0"])
def test_a_directory_that_cannot_be_used_never_fails_the_model(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    answer, report = start(tmp_path / place, small_models.convolution())
    assert answer == start(tmp_path / "cache", small_models.convolution())[0]
    assert report.cache.outcome == "miss"
    assert report.cache.reason


def test_no_cache_is_said_to_be_off(tmp_path: Path) -> None:
    report = jitdelegate.load(small_models.convolution(), serialization_dir=False).report()
    assert (report.cache.outcome, report.cache.path) == ("off", "")


def test_without_a_directory_the_users_cache_is_used(tmp_path: Path) -> None:
    for expected in ("miss", "hit"):
        report = jitdelegate.load(small_models.convolution()).report()
        assert report.cache.outcome == expected
        assert report.cache.path.startswith(os.environ["XDG_CACHE_HOME"])
