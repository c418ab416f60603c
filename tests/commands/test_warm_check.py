"""python -m jitdelegate.warm --check: finds what is missing or bad, compiles nothing, writes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import warm
from jitdelegate.engine.litert_delegate.trust import refusal
from jitdelegate.runtime.cache import key
from jitdelegate.targets.cpu import target as cpu
from jitdelegate.targets.host import levels
from tests.api import small_models
from tests.api.test_shared_weights import MODEL
from tests.gpu.stub.library import Library

LEVEL = next(name for name, row in LEVELS.items() if row.host)
WAYS = {
    "this CPU": (small_models.two_signatures, ["--target", "cpu"], 2),
    "no GPU": (small_models.convolution, [], 1),
    "left to LiteRT": (small_models.uncompiled, ["--target", "litert"], 1),
    "another CPU": (small_models.two_signatures, ["--target", f"cpu:{LEVEL}"], 2),
    "shapes": (lambda: MODEL, ["--target", f"cpu:{LEVEL}", "--input-shape", "x=4x64"], 6),
    "its own shapes": (lambda: MODEL, ["--target", "cpu", "--input-shape", "x=4x64"], 6),
    "options": (small_models.quantized, ["--target", "cpu", "--quantize-inputs", "--model-token", "net"], 1),
    "interpreter": (small_models.convolution, ["--target", "cpu", "--litert-interpreter"], 2),
}


@pytest.fixture(params=WAYS)
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """With a model, whose programs are in the folder `cache` then."""
    make, arguments, count = WAYS[request.param]
    if "--litert-interpreter" in arguments and refusal(None):
        pytest.skip("LiteRT's interpreter calls no compiled code here")
    path = tmp_path / "model.tflite"
    path.write_bytes(make())
    whole = [str(path), *arguments, "--serialization-dir", str(tmp_path / "cache")]
    assert warm.main(whole) == 0
    assert len([*(tmp_path / "cache").glob("*.jitd")]) == count
    return whole


def _check(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The one result; whatever would compile fails."""
    with monkeypatch.context() as patch:
        patch.setattr("jitdelegate.compiler.compile.compile_model", None)
        patch.setattr("jitdelegate.runtime.cache.store.Store.put", None)
        patch.setattr(key, "ALWAYS_HASHED", 0)  # else a small file is never remembered
        capsys.readouterr()
        status = warm.main([*arguments, "--check", "--json"])
    (result,) = json.loads(capsys.readouterr().out)
    assert status == result.get("status", 0) == (0 if result["state"] == "hit" else 1)
    found: dict[str, Any] = result
    return found


def _traces(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Time of the last read, of the last write and size of all files and of the folder."""
    stats = {path.name: path.stat() for path in (folder, *folder.iterdir())}
    return {
        name: (one.st_atime_ns if name != folder.name else 0, one.st_mtime_ns, one.st_size)
        for name, one in stats.items()
    }


def test_all_that_was_warmed_is_found(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tmp_path / "cache").iterdir():
        os.utime(path, (1, path.stat().st_mtime))  # a system that seldom notes when a file was read notes it then
    before = _traces(tmp_path / "cache")
    result = _check(arguments, capsys, monkeypatch)
    assert result["state"] == "hit" and result["bytes"] == Path(result["path"]).stat().st_size
    assert _traces(tmp_path / "cache") == before


def test_beside_prebuilt_folders_too_nothing_is_written_or_removed(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prebuilt").mkdir(mode=0o755)
    monkeypatch.setenv("JITDELEGATE_PREBUILT", str(tmp_path / "prebuilt"))
    left = tmp_path / "cache/.left.tmp"
    left.touch()
    for path in (tmp_path / "cache").iterdir():
        os.utime(path, (1, 1))
    before = _traces(tmp_path / "cache")
    assert _check(arguments, capsys, monkeypatch)["state"] == "hit"
    assert _traces(tmp_path / "cache") == before


def test_each_missing_or_damaged_program_is_found_missing(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in sorted((tmp_path / "cache").glob("*.jitd")):
        content = path.read_bytes()
        path.unlink()
        assert "there is no entry for it yet" in _check(arguments, capsys, monkeypatch)["error"]
        assert not path.exists()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        path.chmod(0o600)
        assert "damaged" in _check(arguments, capsys, monkeypatch)["error"]
        path.write_bytes(content)
    assert _check(arguments, capsys, monkeypatch)["state"] == "hit"


def test_no_folder_is_made(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in ("cpu", f"cpu:{LEVEL}"):
        arguments = [model, "--target", target, "--serialization-dir", str(tmp_path / "none" / "below")]
        assert "there is no directory" in _check(arguments, capsys, monkeypatch)["error"]
    assert not (tmp_path / "none").exists()


def test_entries_of_other_compilers_are_found_stale(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [model, "--target", f"cpu:{LEVEL}", "--serialization-dir", str(tmp_path / "cache")]
    assert warm.main(arguments) == 0
    monkeypatch.setattr(cpu, "installed_toolchain", lambda: "llvmlite 99")
    assert "llvmlite 99 is installed" in _check(arguments, capsys, monkeypatch)["error"]


def test_a_machine_without_compilers_finds_what_it_would_run(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
    if len(offered) < 2:
        pytest.skip("this machine has fewer than two named instruction sets")
    folder = ["--serialization-dir", str(tmp_path / "cache")]
    assert warm.main([model, "--target", f"cpu:{offered[0]}", *folder]) == 0
    assert _check([model, "--target", "cpu", *folder], capsys, monkeypatch)["state"] == "miss"
    monkeypatch.setattr(cpu, "installed_toolchain", lambda: "")
    assert _check([model, "--target", "cpu", *folder], capsys, monkeypatch)["state"] == "hit"


def test_a_line_names_the_device(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert warm.main([model, "--target", f"cpu:{LEVEL}", "--check", "--output", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"{model} for {LEVEL}: miss: there is no directory {tmp_path / 'none'}\n"


def test_a_missing_model_is_a_wrong_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert warm.main([str(tmp_path / "none.tflite"), "--check"]) == 2
    assert "Could not open" in capsys.readouterr().err


def test_a_model_that_a_gpu_does_not_take_is_looked_for_on_the_cpu(
    gpu: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.uncompiled())
    arguments = [str(path), "--target", "auto", "--serialization-dir", str(cache)]
    assert warm.main(arguments) == 0
    assert _check(arguments, capsys, monkeypatch)["state"] == "hit"
    entries = {path: path.read_bytes() for path in cache.glob("*.jitd")}
    assert len(entries) == 2
    for path, content in entries.items():
        path.unlink()
        assert _check(arguments, capsys, monkeypatch)["state"] == "miss"
        path.write_bytes(content)
