"""Folders that `warm --output` writes start models warm wherever they are copied to, for whoever starts them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from cache_tools.__main__ import main as cache_tools
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import analyze, timed_start, warm
from jitdelegate.commands.measurement.starts import _plain as measured_options
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import CacheWarning
from jitdelegate.runtime.cache import trouble
from jitdelegate.runtime.cache.model_names import NAME as NAMES
from jitdelegate.runtime.cache.prebuilt_store import PrebuiltStore
from jitdelegate.runtime.cache.store import counts
from jitdelegate.runtime.cache.use_log import NAME as USES
from jitdelegate.targets.cuda.target import TARGET as CUDA
from jitdelegate.targets.host import levels
from tests.api import prebuilt_starts, small_models
from tests.api.test_cuda import EXPECTED, X, gpu_of
from tests.child import OPEN_TO_OTHERS, ROOT, command_of
from tests.entries import overwrite
from tests.gpu.stub.compiler import Compiler, scale_and_shift_model

OFFERED = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
"""The instruction sets that this CPU has."""
CAPABILITIES = {"sm_80": (8, 0), "sm_90": (9, 0)}
REMOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@pytest.fixture(autouse=True)
def nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_told", set())
    counts.reset()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The folder that is written; neither it nor its parent is there yet."""
    return tmp_path / "some" / "programs"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that others may enter; pytest's own are closed to them, by other sessions too."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(autouse=True)
def private_umask() -> Iterator[None]:
    """Under which nobody else may read what a process makes."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def bake(output: Path, *arguments: object) -> None:
    assert warm.main([*map(str, arguments), "--output", str(output)]) == 0
    counts.reset()


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.parametrize("target", ["cpu", f"cpu:{OFFERED[-1]}" if OFFERED else "litert", "litert"])
def test_all_users_may_read_what_was_written_for_any_target(
    target: str, output: Path, model: str, tmp_path: Path
) -> None:
    own = ("--litert-interpreter", "--input-shape", "0=2x8x8x3") if target.startswith("cpu") else ()
    bake(output, model, "--target", target, *own)
    assert [folder.stat().st_mode & 0o777 for folder in (output, output.parent)] == [0o755, 0o755]
    found = modes(output)
    assert set(found.values()) == {0o644}
    assert found.pop(NAMES) and all(name.endswith(".jitd") for name in found)
    assert len(found) == (4 if own else 1)
    assert not Path(os.environ["XDG_CACHE_HOME"]).exists()


def test_what_is_there_already_is_opened_to_all(output: Path, model: str) -> None:
    output.mkdir(parents=True)
    jitdelegate.load(model, serialization_dir=output, target="cpu").close()
    (entry,) = (path.name for path in output.glob("*.jitd"))
    assert (output.stat().st_mode & 0o777, modes(output)) == (0o700, {entry: 0o400, NAMES: 0o600, USES: 0o600})
    bake(output, model, "--target", "cpu")
    assert (output.stat().st_mode & 0o777, modes(output)) == (0o755, {entry: 0o644, NAMES: 0o644, USES: 0o600})


def test_a_private_folder_of_other_things_stays_private(
    output: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.mkdir(parents=True)
    (output / "letter").touch()
    for target in "cpu", "cpu:aarch64":
        assert warm.main([model, "--target", target, "--output", str(output)]) == 1
        error = capsys.readouterr().err
        assert "has mode 0700, and letter beside programs; expected a folder that others may read" in error
    assert os.listdir(output) == ["letter"]
    output.chmod(0o755)
    bake(output, model, "--target", "cpu")


def test_a_folder_is_found_by_the_environment_unless_the_option_names_others(
    output: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bake(output, model, "--target", "cpu")
    monkeypatch.setenv("JITDELEGATE_PREBUILT", os.pathsep.join(["", str(output), str(output)]))
    options = {"target": "cpu", "serialization_dir": False}
    with jitdelegate.load(model, options=options) as loaded:
        cache = loaded.report().cache
        assert cache.hit and Path(cache.path).parent == output
        assert cache.path in str(loaded.report())
    with jitdelegate.load(model, options=options, prebuilt=()) as loaded:
        assert loaded.report().cache.outcome == "off"
    with pytest.warns(CacheWarning, match="nowhere cannot be used"):
        loaded = jitdelegate.load(model, options=options, prebuilt=tmp_path / "nowhere")
    assert loaded.report().cache.outcome == "miss"


def test_commands_that_measure_or_explain_compilation_look_into_no_folder(
    output: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITDELEGATE_PREBUILT", str(output))
    (tmp_path / "input-0.bin").write_bytes(bytes(768))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)  # there is no such folder
        assert analyze.main([model]) == 0
        timed_start.main(["jitdelegate", model, str(tmp_path / "own"), str(tmp_path), "1", "1"])
    assert measured_options(DelegateOptions(prebuilt=output), "own") == {
        "prebuilt": [],
        "remote": False,
        "serialization_dir": "own",
    }


def test_a_damaged_program_is_replaced_in_the_own_directory(output: Path, model: str, tmp_path: Path) -> None:
    bake(output, model, "--target", "cpu")
    (entry,) = output.glob("*.jitd")
    whole = entry.read_bytes()
    overwrite(entry, whole[:-1] + bytes([whole[-1] ^ 1]))
    changed, own = entry.read_bytes(), tmp_path / "own"
    with pytest.warns(CacheWarning, match="prebuilt folder .* has an entry that cannot be used"):
        for writes in 1, 0:
            counts.reset()
            with jitdelegate.load(model, target="cpu", prebuilt=output, serialization_dir=own) as loaded:
                loaded(bytes(768))
                assert loaded.report().cache.path == str(own / entry.name)
            assert (counts.writes, counts.misses["damaged"]) == (writes, 1)
    assert entry.read_bytes() == changed
    assert (own / entry.name).read_bytes() == whole


def test_a_damaged_program_is_compiled_in_memory_where_nothing_is_stored(output: Path, model: str) -> None:
    bake(output, model, "--target", "cpu")
    (entry,) = output.glob("*.jitd")
    with jitdelegate.load(model, target="cpu", prebuilt=output, serialization_dir=False) as loaded:
        expected = bytes(loaded(bytes(range(256)) * 3))
    whole = entry.read_bytes()
    overwrite(entry, whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.warns(CacheWarning, match="is damaged"):
        loaded = jitdelegate.load(model, target="cpu", prebuilt=output, serialization_dir=False)
        assert bytes(loaded(bytes(range(256)) * 3)) == expected
    assert loaded.report().cache.outcome == "miss"
    assert counts.misses == {"damaged": 1, "absent": 1}


def test_the_cache_s_tools_read_a_folder_that_nobody_may_write(
    output: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bake(output, model, "--target", "cpu")
    output.chmod(0o555)
    before = [(path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in (output, *output.iterdir())]
    for command in "ls", "stats", "verify":
        capsys.readouterr()
        assert cache_tools([command, "--dir", str(output)]) == 0
        assert command != "ls" or Path(model).name in capsys.readouterr().out
    assert before == [(path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in (output, *output.iterdir())]


@pytest.mark.skipif(len(OFFERED) < 3, reason="this CPU has fewer than three named instruction sets")
@pytest.mark.skipif(not OPEN_TO_OTHERS, reason="others may not enter the checkout")
@pytest.mark.parametrize("way", ["writable", "read-only", "mounted read-only"])
def test_every_start_of_another_user_on_each_level_hits(way: str, output: Path, public: Path) -> None:
    models, moved, named = public / "models", public / "moved", f"cpu:{','.join(OFFERED)}"
    models.mkdir()
    (models / "signatures.tflite").write_bytes(small_models.two_signatures())
    (models / "host.tflite").write_bytes(small_models.convolution())
    bake(output, models / "signatures.tflite", "--target", named, "--input-shape", "x=4x2")
    bake(output, models / "host.tflite", "--target", named, "--litert-interpreter")
    shutil.move(output, moved)
    for path in (models, *models.iterdir()):
        path.chmod(0o755)
    if way == "read-only":
        moved.chmod(0o555)
    found = started(command_of(prebuilt_starts.on_levels, models, moved, *OFFERED), moved if "mounted" in way else None)
    assert found["misses"] == {} and found["writes"] == 0
    assert found["hits"] == 6 * len(OFFERED)
    assert {Path(path).parent for path in found["paths"]} == {moved}
    assert len(set(found["paths"])) == 2 * len(OFFERED)


def started(command: Sequence[str], mounted: Path | None) -> dict[str, Any]:
    """What a child tells that has no home, and whose own cache directory cannot be made.

    Args:
        mounted: a folder that is mounted read-only for the child.
    """
    if mounted is not None:
        if subprocess.run(["unshare", "-m", "sh", "-c", REMOUNT, mounted, "true"], capture_output=True).returncode:
            pytest.skip("this user may mount nothing")
        command = ["unshare", "-m", "sh", "-c", REMOUNT, str(mounted), *command]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "XDG_CACHE_HOME": "/proc/nowhere"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_programs_of_two_gpus_start_from_a_moved_folder(
    compiler: Compiler, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, moved = tmp_path / "model.tflite", tmp_path / "moved"
    model.write_bytes(scale_and_shift_model())
    for capability in CAPABILITIES.values():
        gpu_of(monkeypatch, capability=capability)
        bake(output, model, "--target", "cuda")
    shutil.move(output, moved)
    moved.chmod(0o555)
    for name, capability in CAPABILITIES.items():
        gpu_of(monkeypatch, capability=capability)
        with jitdelegate.load(model, target="cuda", prebuilt=moved, serialization_dir=False) as loaded:
            np.testing.assert_array_equal(np.asarray(loaded(X)), EXPECTED)
            assert loaded.report().cache.hit and loaded.report().features == name
    assert len(compiler.keys) == len(CAPABILITIES)


def test_a_machine_with_a_gpu_finds_what_was_compiled_without_one(
    output: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    bake(output, model, "--target", f"cuda:{','.join(CAPABILITIES)}")
    store, options = PrebuiltStore([str(output)], False), DelegateOptions(target="cuda")
    for name, capability in CAPABILITIES.items():
        gpu_of(monkeypatch, capability=capability)
        key = find_key(CUDA.find_device(options), options, store.fingerprint(model))
        lookup = store.get(key)
        assert lookup.hit and lookup.program is not None and lookup.program.features == name
