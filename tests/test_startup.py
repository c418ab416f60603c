"""The load path in fresh processes: what it imports, what it opens, and that it compiles nothing. Counts, no times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jitdelegate
from jitdelegate.engine import model_file
from tests.api import small_models

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
MOST_COMPILING, MOST_PASSES = 122, 13
"""The same with an empty cache, for a model of one convolution: in all, and those in `passes`."""
FOR_BUFFERS = 8
"""Further ones for a CompiledModel: its signatures, buffers, their memory and bindings."""
NEARLY_FREE = """
import ctypes, errno, mmap, os, stat, struct, time
result = dict()
"""
COLD = {"tflite", "ops", "passes", "compiler", "ir", "commands", "analysis"}
PROGRAM = """
import sys
before = set(sys.modules)
opened = []
sys.addaudithook(lambda event, values: opened.append(str(values[0])) if event == "open" else None)
{body}
found = dict(loaded=sorted(set(sys.modules) - before), opened=[name for name in opened if not name.endswith(".pyc")])
import json
print(json.dumps(found | result))
"""
BYTES = """
import jitdelegate
model = jitdelegate.load(sys.argv[1], serialization_dir=sys.argv[2], num_threads=2)
output = memoryview(model(bytes(768)))
report = model.report()
result = dict(shape=output.shape, outcome=report.cache.outcome, stages=list(report.seconds))
"""
RUN = """
import jitdelegate
model = jitdelegate.load(sys.argv[1], serialization_dir=sys.argv[2], num_threads=1)
output = model(bytes(768))
result = dict()
"""
ENTERED = """
import jitdelegate
root, entered, plain = jitdelegate.__file__.removesuffix("__init__.py"), set(), 1

def note(frame, event, value):
    code = frame.f_code
    if event == "call" and code.co_flags & plain and code.co_filename.startswith(root):
        entered.add(code.co_filename.removeprefix(root))

sys.setprofile(note)
jitdelegate.load(sys.argv[1], serialization_dir=sys.argv[2], num_threads=1)(bytes(768))
sys.setprofile(None)
result = dict(entered=sorted(entered))
"""
"""Bodies of modules and classes are no plain functions."""
ARRAY = """
import numpy
before |= set(sys.modules)
import jitdelegate
model = jitdelegate.load(sys.argv[1], serialization_dir=sys.argv[2])
output = numpy.asarray(model(numpy.zeros((1, 8, 8, 3), numpy.float32)))
report = model.report()
result = dict(shape=output.shape, outcome=report.cache.outcome, stages=list(report.seconds))
"""
INTERPRETER = """
import jitdelegate
delegate = jitdelegate.GpuDelegate(serialization_dir=sys.argv[2])
interpreter = jitdelegate.Interpreter(sys.argv[1], experimental_delegates=[delegate])
interpreter.allocate_tensors()
interpreter.invoke()
report = interpreter.report()
result = dict(shape=(1, 4, 4, 4), outcome=report.cache.outcome, stages=list(report.seconds))
"""
COMPILED_MODEL = """
import jitdelegate
model = jitdelegate.CompiledModel.create(sys.argv[1], serialization_dir=sys.argv[2], num_threads=1)
inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
model.run(inputs, outputs)
loaded = set(sys.modules)
report = model.report()
result = dict(outcome=report.cache.outcome, stages=list(report.seconds), run=sorted(loaded - before))
"""

RESIZED = """
import numpy
before |= set(sys.modules)
import jitdelegate
delegate = jitdelegate.GpuDelegate(serialization_dir=sys.argv[2])
interpreter = jitdelegate.Interpreter(sys.argv[1], experimental_delegates=[delegate])
interpreter.resize_tensor_input(0, [5, 8, 8, 3])
interpreter.allocate_tensors()
interpreter.invoke()
(output,) = interpreter.get_output_details()
report = interpreter.report()
result = dict(shape=output["shape"].tolist(), outcome=report.cache.outcome, stages=list(report.seconds))
"""
SIGNATURE = """
import numpy
before |= set(sys.modules)
import jitdelegate
delegate = jitdelegate.GpuDelegate(serialization_dir=sys.argv[2])
interpreter = jitdelegate.Interpreter(sys.argv[1], experimental_delegates=[delegate])
output = interpreter.get_signature_runner("triple")(x=numpy.ones((5, 2), numpy.float32))["y"]
counters = interpreter.report().cache.counters
result = dict(shape=output.shape, hits=counters["hits"], misses=counters["misses"])
"""

TIMED = """
import io
from jitdelegate.commands import timed_start
printed, sys.stdout = sys.stdout, io.StringIO()
timed_start.main(["jitdelegate", *sys.argv[1:3], sys.argv[2], "1", "1"])
result, sys.stdout = dict(printed=sys.stdout.getvalue()), printed
"""


@pytest.fixture
def warm(tmp_path: Path) -> tuple[str, str]:
    """A model's path, and a cache that has its program."""
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.convolution())
    jitdelegate.load(path, serialization_dir=cache).close()
    return str(path), str(cache)


def start(body: str, path: str, cache: str) -> dict[str, Any]:
    """What a fresh process loaded and opened; -S keeps the environment's own start-up files out of the count."""
    packages = [str(Path(jitdelegate.__file__).parents[1]), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
    command = [sys.executable, "-S", "-c", PROGRAM.format(body=body), path, cache]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_warm_start_on_bytes_imports_nothing_heavy(warm: tuple[str, str]) -> None:
    found = start(BYTES, *warm)
    assert found["outcome"] == "hit"
    assert found["shape"] == [1, 4, 4, 4]
    assert {name.split(".")[0] for name in found["loaded"]} & HEAVY == set()


def test_a_timed_start_on_bytes_imports_no_numpy(warm: tuple[str, str]) -> None:
    Path(warm[1], "input-0.bin").write_bytes(bytes(768))
    found = start(TIMED, *warm)
    assert json.loads(found["printed"])["outputs"] == [{"dtype": "float32", "shape": [1, 4, 4, 4]}]
    assert "numpy" not in found["loaded"]


def test_a_warm_start_imports_no_part_of_the_cold_road(warm: tuple[str, str]) -> None:
    loaded = {name for name in start(BYTES, *warm)["loaded"] if name.startswith("jitdelegate.")}
    assert {name.split(".")[1] for name in loaded} & COLD == set()
    targets = {name for name in loaded if name.startswith("jitdelegate.targets.")}
    assert {name.split(".")[-1] for name in targets} <= {"host", "target", "cpu"}
    assert not loaded & {"jitdelegate.program.write", "jitdelegate.targets.target"}


def test_a_warm_start_loads_few_modules(warm: tuple[str, str]) -> None:
    found = set(start(BYTES, *warm)["loaded"]) - set(start(NEARLY_FREE, *warm)["loaded"])
    assert len(found) <= MOST_MODULES, sorted(found)


def test_a_first_load_and_run_bring_few_modules_of_ours(warm: tuple[str, str]) -> None:
    found = [name for name in start(RUN, *warm)["loaded"] if name.split(".")[0] == "jitdelegate"]
    assert len(found) <= MOST_OF_OURS, found


def test_a_first_load_and_run_enter_few_files(warm: tuple[str, str]) -> None:
    entered = start(ENTERED, *warm)["entered"]
    assert "engine/load_path.py" in entered
    assert len(entered) <= MOST_ENTERED, entered


def test_a_compilation_enters_few_files_and_passes(warm: tuple[str, str], tmp_path: Path) -> None:
    entered = start(ENTERED, warm[0], str(tmp_path / "empty"))["entered"]
    passes = [name for name in entered if name.startswith("passes/")]
    assert "passes/lower.py" in passes
    assert len(passes) <= MOST_PASSES, passes
    assert len(entered) <= MOST_COMPILING, entered


def test_a_warm_start_compiles_nothing(warm: tuple[str, str]) -> None:
    assert start(BYTES, *warm)["stages"] == ["fingerprint", "cache", "open"]


def test_a_warm_interpreter_imports_nothing_heavy_until_an_array_is_asked_for(warm: tuple[str, str]) -> None:
    found = start(INTERPRETER, *warm)
    assert found["outcome"] == "hit"
    assert {name.split(".")[0] for name in found["loaded"]} & HEAVY == set()


def test_a_warm_compiled_model_imports_nothing_heavy(warm: tuple[str, str]) -> None:
    found = start(COMPILED_MODEL, *warm)
    assert (found["outcome"], found["stages"]) == ("hit", ["fingerprint", "cache", "open"])
    assert {name.split(".")[0] for name in found["loaded"]} & HEAVY == set()
    own = [name for name in found["run"] if name.split(".")[0] == "jitdelegate"]
    assert len(own) <= MOST_OF_OURS + FOR_BUFFERS, own


def test_a_warm_start_on_arrays_imports_no_compiler(warm: tuple[str, str]) -> None:
    found = start(ARRAY, *warm)
    assert found["outcome"] == "hit"
    assert {name.split(".")[0] for name in found["loaded"]} & {"numba", "llvmlite", "flatbuffers"} == set()


def test_a_shape_that_was_seen_before_imports_no_compiler(tmp_path: Path) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.convolution())
    first, second = (start(RESIZED, str(path), str(cache)) for _ in range(2))
    assert (first["outcome"], second["outcome"]) == ("miss", "hit")
    assert second["shape"] == [5, 4, 4, 4]
    assert second["stages"] == ["fingerprint", "cache", "open"]
    assert_no_compiler(second)


def test_a_signature_of_another_subgraph_that_was_seen_before_imports_no_compiler(tmp_path: Path) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.two_signatures())
    first, second = (start(SIGNATURE, str(path), str(cache)) for _ in range(2))
    assert (first["hits"], first["misses"]) == (0, {"absent": 3})
    assert (second["hits"], second["misses"]) == (3, {})
    assert_no_compiler(second)


def assert_no_compiler(found: dict[str, Any]) -> None:
    heavy = {"numba", "llvmlite", "flatbuffers", "ai_edge_litert"}
    assert {name.split(".")[0] for name in found["loaded"]} & heavy == set()
    assert "jitdelegate.compiler.compile" not in found["loaded"]


def test_a_warm_start_opens_few_files(warm: tuple[str, str]) -> None:
    path, cache = warm
    opened = [name for name in start(BYTES, path, cache)["opened"] if not name.endswith(".py")]
    entry = next(Path(cache).glob("*.jitd")).name
    # the directory, the model, the toolchain's version file, the entry, and the modules written in C (each once for the
    # file, as the dynamic loader opens it unseen)
    own = [name for name in opened if not name.endswith((".so", "_version.py"))]
    assert sorted(Path(name).name for name in own) == sorted(["model.tflite", entry, *_steps(cache)])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU needs no limit")
def test_the_default_number_of_threads_takes_one_more_file(warm: tuple[str, str]) -> None:
    asked, default = (start(body, *warm)["opened"] for body in (BYTES, BYTES.replace(", num_threads=2", "")))
    assert sorted(default) == sorted([*asked, model_file.CPU_LIMIT])


def _steps(cache: str) -> list[str]:
    """The directory itself, which is opened to be checked."""
    return [Path(cache).name]


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import jitdelegate; print(sorted(set(sys.modules) - before))"
    packages = str(Path(jitdelegate.__file__).parents[1])
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": packages})
    assert done.stdout.strip() == "['__future__', 'jitdelegate']"
