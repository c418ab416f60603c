"""The load path in fresh processes: what it imports, what it opens, and that it compiles nothing. Counts, no times."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jitdelegate
from jitdelegate.engine import model_file
from tests import starts
from tests.api import small_models
from tests.child import answer_of

HEAVY = {
    *("numba", "llvmlite", "flatbuffers", "numpy", "platformdirs", "rich", "ai_edge_litert", "cuda"),
    *("typing", "dataclasses", "enum", "re", "pathlib", "json", "logging", "tempfile", "threading", "functools"),
    *("contextlib", "hashlib", "collections", "importlib", "inspect", "argparse", "subprocess", "warnings"),
}
"""What the load path must not import; each costs more than opening a program, or leads to what does."""
MOST_MODULES = 38
"""Ours, xxhash's, and those of the standard library that NEARLY_FREE does not bring along."""
MOST_OF_OURS = 30
"""Modules of ours that a first load of a small model and its first run bring along."""
MOST_ENTERED = 20
"""Files of ours in which a first load of a small model and its first run call a function."""
MOST_COMPILING, MOST_PASSES = 137, 13
"""The same with an empty cache, for a model of one convolution: in all, and those in `passes`."""
FOR_BUFFERS = 8
"""Further ones for a CompiledModel: its signatures, buffers, their memory and bindings."""
COLD = {"tflite", "ops", "passes", "compiler", "ir", "commands", "analysis"}


@pytest.fixture
def warm(tmp_path: Path) -> tuple[str, str]:
    """A model's path, and a cache that has its program."""
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.convolution())
    jitdelegate.load(path, serialization_dir=cache).close()
    return str(path), str(cache)


def start(act: Callable[[str, str], object], path: str, cache: str) -> dict[str, Any]:
    """What a fresh process loaded and opened; -S keeps the environment's own start-up files out of the count."""
    packages = os.pathsep.join([str(Path(jitdelegate.__file__).parents[1]), *sys.path])
    found: dict[str, Any] = json.loads(
        answer_of(starts.watched, act.__name__, path, cache, flags=["-S"], PYTHONPATH=packages)
    )
    return found


def test_a_warm_start_on_bytes_imports_nothing_heavy(warm: tuple[str, str]) -> None:
    found = start(starts.on_bytes, *warm)
    assert found["outcome"] == "hit"
    assert found["shape"] == [1, 4, 4, 4]
    assert {name.split(".")[0] for name in found["loaded"]} & HEAVY == set()


def test_a_warm_start_does_not_care_for_a_remote(warm: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = start(starts.on_bytes, *warm)["loaded"]
    monkeypatch.setenv("JITDELEGATE_REMOTE", "memory://programs")
    monkeypatch.setenv("JITDELEGATE_REMOTE_KEY", "missing.pem")
    assert start(starts.on_bytes, *warm)["loaded"] == alone
    assert not {name.split(".")[0] for name in alone} & {"cryptography", "fsspec"}


def test_a_timed_start_on_bytes_imports_no_numpy(warm: tuple[str, str]) -> None:
    Path(warm[1], "input-0.bin").write_bytes(bytes(768))
    found = start(starts.timed, *warm)
    assert json.loads(found["printed"])["outputs"] == [{"dtype": "float32", "shape": [1, 4, 4, 4]}]
    assert "numpy" not in found["loaded"]


def test_a_warm_start_imports_no_part_of_the_cold_road(warm: tuple[str, str]) -> None:
    loaded = {name for name in start(starts.on_bytes, *warm)["loaded"] if name.startswith("jitdelegate.")}
    assert {name.split(".")[1] for name in loaded} & COLD == set()
    targets = {name for name in loaded if name.startswith("jitdelegate.targets.")}
    assert {name.split(".")[-1] for name in targets} <= {"host", "target", "cpu"}
    assert not loaded & {"jitdelegate.program.write", "jitdelegate.targets.target"}


def test_a_warm_start_loads_few_modules(warm: tuple[str, str]) -> None:
    found = set(start(starts.on_bytes, *warm)["loaded"]) - set(start(starts.nearly_free, *warm)["loaded"])
    assert len(found) <= MOST_MODULES, sorted(found)


def test_a_first_load_and_run_bring_few_modules_of_ours(warm: tuple[str, str]) -> None:
    found = [name for name in start(starts.run_once, *warm)["loaded"] if name.split(".")[0] == "jitdelegate"]
    assert len(found) <= MOST_OF_OURS, found


def test_a_first_load_and_run_enter_few_files(warm: tuple[str, str]) -> None:
    entered = start(starts.entered, *warm)["entered"]
    assert "engine/load_path.py" in entered
    assert len(entered) <= MOST_ENTERED, entered


def test_a_compilation_enters_few_files_and_passes(warm: tuple[str, str], tmp_path: Path) -> None:
    entered = start(starts.entered, warm[0], str(tmp_path / "empty"))["entered"]
    passes = [name for name in entered if name.startswith("passes/")]
    assert "passes/lower.py" in passes
    assert len(passes) <= MOST_PASSES, passes
    assert len(entered) <= MOST_COMPILING, entered


def test_a_warm_start_compiles_nothing(warm: tuple[str, str]) -> None:
    assert start(starts.on_bytes, *warm)["stages"] == ["fingerprint", "cache", "open"]


def test_a_warm_interpreter_imports_nothing_heavy_until_an_array_is_asked_for(warm: tuple[str, str]) -> None:
    found = start(starts.interpreter, *warm)
    assert found["outcome"] == "hit"
    assert {name.split(".")[0] for name in found["loaded"]} & HEAVY == set()


def test_a_warm_compiled_model_imports_nothing_heavy(warm: tuple[str, str]) -> None:
    found = start(starts.compiled_model, *warm)
    assert (found["outcome"], found["stages"]) == ("hit", ["fingerprint", "cache", "open"])
    assert {name.split(".")[0] for name in found["loaded"]} & HEAVY == set()
    own = [name for name in found["run"] if name.split(".")[0] == "jitdelegate"]
    assert len(own) <= MOST_OF_OURS + FOR_BUFFERS, own


def test_a_warm_start_on_arrays_imports_no_compiler(warm: tuple[str, str]) -> None:
    found = start(starts.on_arrays, *warm)
    assert found["outcome"] == "hit"
    assert {name.split(".")[0] for name in found["loaded"]} & {"numba", "llvmlite", "flatbuffers"} == set()


def test_a_shape_that_was_seen_before_imports_no_compiler(tmp_path: Path) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.convolution())
    first, second = (start(starts.resized, str(path), str(cache)) for _ in range(2))
    assert (first["outcome"], second["outcome"]) == ("miss", "hit")
    assert second["shape"] == [5, 4, 4, 4]
    assert second["stages"] == ["fingerprint", "cache", "open"]
    assert_no_compiler(second)


def test_a_signature_of_another_subgraph_that_was_seen_before_imports_no_compiler(tmp_path: Path) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.two_signatures())
    first, second = (start(starts.signature, str(path), str(cache)) for _ in range(2))
    assert (first["hits"], first["misses"]) == (0, {"absent": 3})
    assert (second["hits"], second["misses"]) == (3, {})
    assert_no_compiler(second)


def assert_no_compiler(found: dict[str, Any]) -> None:
    heavy = {"numba", "llvmlite", "flatbuffers", "ai_edge_litert"}
    assert {name.split(".")[0] for name in found["loaded"]} & heavy == set()
    assert "jitdelegate.compiler.compile" not in found["loaded"]


def test_a_warm_start_opens_few_files(warm: tuple[str, str]) -> None:
    path, cache = warm
    opened = [name for name in start(starts.on_bytes, path, cache)["opened"] if not name.endswith(".py")]
    entry = next(Path(cache).glob("*.jitd")).name
    # the directory, the model, the toolchain's version file, the entry, and the modules written in C (each once for the
    # file, as the dynamic loader opens it unseen)
    own = [name for name in opened if not name.endswith((".so", "_version.py"))]
    assert sorted(Path(name).name for name in own) == sorted(["model.tflite", entry, *_steps(cache)])


def test_a_start_from_a_prebuilt_folder_takes_one_more_module_and_no_directory_of_its_own(
    warm: tuple[str, str],
) -> None:
    usual, found = (start(act, *warm) for act in (starts.on_bytes, starts.from_a_folder))
    assert found["outcome"] == "hit"
    assert sorted({*found["loaded"]} - {*usual["loaded"]}) == ["jitdelegate.runtime.cache.prebuilt_store"]
    of_usual, of_found = (sorted(name for name in one["opened"] if not name.endswith(".py")) for one in (usual, found))
    assert of_found == of_usual
    assert not Path(os.environ["XDG_CACHE_HOME"]).exists()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU needs no limit")
def test_the_default_number_of_threads_takes_one_more_file(warm: tuple[str, str]) -> None:
    asked, default = (start(act, *warm)["opened"] for act in (starts.on_bytes, starts.with_default_threads))
    assert sorted(default) == sorted([*asked, model_file.CPU_LIMIT])


def _steps(cache: str) -> list[str]:
    """The directory itself, which is opened to be checked."""
    return [Path(cache).name]


def test_importing_the_package_loads_nothing_else() -> None:
    packages = str(Path(jitdelegate.__file__).parents[1])
    assert answer_of(starts.imported, flags=["-S"], PYTHONPATH=packages) == "['__future__', 'jitdelegate']"
