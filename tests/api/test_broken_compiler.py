"""A compiler that is missing, broken or out of memory: with target "auto" the model runs on LiteRT and the report says
why; a target that was asked for is one clear error."""

from __future__ import annotations

import gc
import json
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from cache_tools.commands import run as cache_tools
from jitdelegate.api import delegate_warning
from jitdelegate.commands import warm
from jitdelegate.compiler import compile as compiler
from jitdelegate.errors import (
    CompileError,
    CompilerFailedError,
    DelegateWarning,
    DelegationError,
    DeviceError,
    ModelError,
)
from tests.api import partial_models, programs, small_models
from tests.api.resource_models import streaming
from tests.child import answer_of
from tests.entries import overwrite

MODEL = small_models.convolution()
OPEN = small_models.convolution(open_batch=True)
IMAGE = np.random.default_rng(0).uniform(-1, 1, (1, 8, 8, 3)).astype(np.float32)
IMAGES = np.concatenate([IMAGE, -IMAGE])
ROOT = Path(__file__).parents[2]

RAISED: list[tuple[Callable[[], Exception], str]] = [
    (lambda: ModuleNotFoundError("No module named 'llvmlite'"), "ModuleNotFoundError: No module named 'llvmlite'"),
    (lambda: OSError(12, "cannot map libllvmlite.so"), "OSError: [Errno 12] cannot map libllvmlite.so"),
    (MemoryError, "MemoryError"),
    (lambda: RuntimeError("LLVM ERROR: broken."), "RuntimeError: LLVM ERROR: broken"),
    (lambda: KeyError(3), "KeyError: 3"),
    (RecursionError, "RecursionError"),
]


def litert(content: bytes, image: np.ndarray) -> np.ndarray:
    model = jitdelegate.load(content, target="litert", serialization_dir=False)
    return np.asarray(model(image))


@pytest.fixture(autouse=True)
def nothing_was_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings come once per model; other tests of the process may have opened it."""
    monkeypatch.setattr(delegate_warning, "_announced", set())


@pytest.fixture
def break_compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Exception]], None]:
    def break_it(make: Callable[[], Exception]) -> None:
        def fail(*_: Any) -> bytes:
            raise make()

        monkeypatch.setattr(compiler, "compile_model", fail)

    return break_it


@pytest.mark.parametrize("name", ["compile_model", "_whole_program"])
def test_nothing_of_a_failed_compilation_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may be most of the memory; the collector comes rarely."""
    used = list[Any]()

    def fail(*_: Any) -> bytes:
        numbers = np.zeros(3)
        used.append(weakref.ref(numbers))
        raise CompilerFailedError(name) if name == "compile_model" else CompileError(name)

    monkeypatch.setattr(compiler, name, fail)
    gc.collect()
    gc.disable()
    try:
        with pytest.warns(DelegateWarning, match=name):
            jitdelegate.load(MODEL, serialization_dir=False)
        assert [each() for each in used] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize(("make", "told"), RAISED)
def test_auto_runs_on_litert_and_says_why(
    tmp_path: Path, break_compiler: Callable[..., None], make: Callable[[], Exception], told: str
) -> None:
    break_compiler(make)
    content = small_models.convolution(seed=RAISED.index((make, told)))
    with pytest.warns(DelegateWarning, match="the compiler failed with"):
        model = jitdelegate.load(content, serialization_dir=tmp_path)
    assert np.array_equal(np.asarray(model(IMAGE)), litert(content, IMAGE))
    report = model.report()
    assert (report.target, report.cache.outcome) == ("litert", "miss")
    assert {one.reason for one in report.operators} == {f"the compiler failed with {told}."}
    assert report.cache.reason == report.failure == f"the compiler failed with {told}"


@pytest.mark.parametrize(("make", "told"), RAISED)
def test_a_failure_is_remembered_unless_it_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Exception], told: str
) -> None:
    content = small_models.convolution(seed=50 + RAISED.index((make, told)))
    calls: list[Any] = []
    expected = litert(content, IMAGE)
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "compile_model", _failing(make, calls))
        for _ in range(3):
            model = jitdelegate.load(content, serialization_dir=tmp_path)
            assert np.array_equal(np.asarray(model(IMAGE)), expected)
            assert model.report().failure.startswith(f"the compiler failed with {told}")
    lasts = not isinstance(make(), OSError | MemoryError | ImportError)
    assert len(calls) == (1 if lasts else 3)
    if not lasts:
        assert jitdelegate.load(content, serialization_dir=tmp_path).report().target == "cpu"
        return
    (entry,) = tmp_path.glob("*.jitd")
    with pytest.raises(CompilerFailedError, match=f"python -m cache_tools rm {entry.name}` lets the next start try"):
        jitdelegate.load(content, target="cpu", serialization_dir=tmp_path)
    assert cache_tools(["rm", entry.name, "--dir", str(tmp_path)]) == 0
    assert jitdelegate.load(content, serialization_dir=tmp_path).report().target == "cpu"


def _failing(make: Callable[[], Exception], calls: list[Any]) -> Callable[..., Any]:
    def fail(*arguments: Any) -> bytes:
        calls.append(arguments)
        raise make()

    return fail


@pytest.mark.parametrize("installed", ["", "llvmlite 99.0"])
def test_a_failure_is_remembered_for_its_toolchain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    """A compiler that is not there is looked for again once one is; one that fails, once there is another."""
    content, found = small_models.convolution(seed=70 + len(installed)), [installed]
    make = (lambda: RuntimeError("bad")) if installed else (lambda: ModuleNotFoundError("No module named 'llvmlite'"))
    monkeypatch.setattr("jitdelegate.targets.cpu.target.installed_toolchain", lambda: found[0])
    with monkeypatch.context() as patch:
        calls: list[Any] = []
        patch.setattr(compiler, "compile_model", _failing(make, calls))
        for _ in range(2):
            assert jitdelegate.load(content, serialization_dir=tmp_path).report().target == "litert"
        assert len(calls) == 1
    found[0] = "llvmlite 99.1"
    report = jitdelegate.load(content, serialization_dir=tmp_path).report()
    assert (report.target, report.cache.outcome, report.failure) == ("cpu", "miss", "")


def test_cache_tools_show_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], break_compiler: Callable[..., None]
) -> None:
    break_compiler(lambda: RuntimeError("no luck"))
    jitdelegate.load(MODEL, serialization_dir=tmp_path)
    (entry,) = tmp_path.glob("*.jitd")
    assert cache_tools(["show", str(entry)]) == 0
    assert "failure: the compiler failed with RuntimeError: no luck" in capsys.readouterr().out
    assert cache_tools(["ls", str(tmp_path)]) == 0
    assert "litert (the compiler failed)" in capsys.readouterr().out


@pytest.mark.parametrize(("make", "told"), RAISED)
def test_a_target_that_was_asked_for_is_one_error_with_its_cause(
    tmp_path: Path, break_compiler: Callable[..., None], make: Callable[[], Exception], told: str
) -> None:
    break_compiler(make)
    with pytest.raises(CompilerFailedError) as caught:
        jitdelegate.load(MODEL, target="cpu", serialization_dir=tmp_path)
    assert str(caught.value) == f"the compiler failed with {told}"
    assert type(caught.value.__cause__) is type(make())


def test_full_delegation_is_an_error_that_says_why(break_compiler: Callable[..., None]) -> None:
    break_compiler(MemoryError)
    with pytest.raises(DelegationError, match="the compiler failed with MemoryError"):
        jitdelegate.load(MODEL, serialization_dir=False, options={"require_full_delegation": True})


def test_the_cache_of_a_good_compiler_is_used_and_kept(tmp_path: Path, break_compiler: Callable[..., None]) -> None:
    jitdelegate.load(OPEN, serialization_dir=tmp_path)
    break_compiler(MemoryError)
    model = jitdelegate.load(OPEN, serialization_dir=tmp_path)
    assert model.report().target == "cpu"
    with pytest.warns(DelegateWarning, match="MemoryError"):
        answer = model(IMAGES)  # for another batch nothing is compiled yet
    assert np.array_equal(np.asarray(answer), litert(OPEN, IMAGES))
    assert len(list(tmp_path.glob("*.jitd"))) == 1
    assert np.allclose(np.asarray(model(IMAGE)), litert(OPEN, IMAGE), atol=1e-5)


def test_a_damaged_program_gives_way_to_litert(tmp_path: Path, break_compiler: Callable[..., None]) -> None:
    jitdelegate.load(MODEL, serialization_dir=tmp_path)
    _damage_weights(tmp_path)
    model = jitdelegate.load(MODEL, serialization_dir=tmp_path)
    assert model.report().target == "cpu"
    break_compiler(lambda: RuntimeError("no luck"))
    assert np.array_equal(np.asarray(model(IMAGE)), litert(MODEL, IMAGE))
    report = model.report()
    assert report.target == "litert"
    assert report.operators[0].reason == "the compiler failed with RuntimeError: no luck."
    assert "damaged" in report.cache.reason


def test_variables_are_not_lost_in_silence(tmp_path: Path, break_compiler: Callable[..., None]) -> None:
    content = streaming()
    jitdelegate.load(content, serialization_dir=tmp_path)
    _damage_weights(tmp_path)
    model = jitdelegate.load(content, serialization_dir=tmp_path)
    break_compiler(MemoryError)
    (port,) = model.inputs
    frame = np.ones(port.shape, port.dtype)
    with pytest.raises(DeviceError, match="on LiteRT its variables have their first values again"):
        model(frame)
    found = np.asarray(model(frame))
    fresh = jitdelegate.load(content, target="litert", serialization_dir=False)
    assert np.array_equal(found, np.asarray(fresh(frame)))


def test_variables_are_not_lost_in_silence_where_no_code_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DeviceError("no executable memory: Permission denied")

    jitdelegate.load(streaming(), serialization_dir=tmp_path)
    _damage_weights(tmp_path)
    model = jitdelegate.load(streaming(), serialization_dir=tmp_path)
    monkeypatch.setattr("jitdelegate.runtime.cpu.session.Session", refuse)
    (port,) = model.inputs
    with pytest.raises(DeviceError, match=r"; the compiled program cannot be loaded: no executable .*; on LiteRT its"):
        model(np.ones(port.shape, port.dtype))


def _damage_weights(cache: Path) -> None:
    (entry,) = cache.glob("*.jitd")
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    overwrite(entry, content)


def test_a_model_that_is_none_is_still_a_model_error(break_compiler: Callable[..., None]) -> None:
    break_compiler(MemoryError)
    with pytest.raises(ModelError):
        jitdelegate.load(b"no model at all", serialization_dir=False)


def test_inside_litert_the_delegate_stays_out(tmp_path: Path, break_compiler: Callable[..., None]) -> None:
    partial_models.skip_without_host()
    break_compiler(lambda: OSError("no LLVM"))
    delegate = jitdelegate.GpuDelegate(serialization_dir=tmp_path)
    interpreter = LiteRT(model_content=MODEL, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    found = partial_models.invoked(interpreter, [[IMAGE]])
    assert np.array_equal(found[0][0], litert(MODEL, IMAGE))
    assert {one.reason for one in delegate.report().operators} == {"the compiler failed with OSError: no LLVM."}


def test_who_is_told_of_a_failure_inside_litert_may_ask_for_the_report(break_compiler: Callable[..., None]) -> None:
    partial_models.skip_without_host()

    def hang(*_: object) -> None:
        raise TimeoutError

    delegate = jitdelegate.GpuDelegate(serialization_dir=False, partitioning="all")
    content = small_models.convolution(open_batch=True, seed=100)  # of which nobody was told yet
    interpreter = LiteRT(model_content=content, experimental_delegates=[delegate])
    break_compiler(MemoryError)
    interpreter.resize_tensor_input(0, IMAGES.shape)
    told: list[str] = []
    end = jitdelegate.on_message(lambda message: told.append(str(delegate.report())))
    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(30)
    try:
        with pytest.warns(DelegateWarning, match="MemoryError"):
            interpreter.allocate_tensors()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        end()
    assert len(told) == 1


def test_warm_reports_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], break_compiler: Callable[..., None]
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(MODEL)
    break_compiler(lambda: RuntimeError("no luck"))
    for target in ("auto", "cpu", "cuda:sm_90"):
        assert warm.main([str(path), "--serialization-dir", str(tmp_path / "cache"), "--target", target]) == 1
        told = capsys.readouterr().err
        assert "the compiler failed with RuntimeError: no luck" in told
        assert "Traceback" not in told


@pytest.mark.parametrize("road", ["load", "interpreter", "delegate"])
@pytest.mark.parametrize(
    ("kind", "text"), [("ModuleNotFoundError", "No module named 'llvmlite'"), ("OSError", "libllvmlite.so: bad")]
)
def test_a_start_without_llvm(tmp_path: Path, kind: str, text: str, road: str) -> None:
    if road == "delegate":
        partial_models.skip_without_host()
    path = tmp_path / "model.tflite"
    path.write_bytes(MODEL)
    expected = litert(MODEL, np.ones((1, 8, 8, 3), np.float32)).tobytes().hex()
    found = {target: _child(kind, text, path, tmp_path / "cache", target, road) for target in ("auto", "cpu")}
    reason = f"the compiler failed with {kind}: {text}"
    assert found["auto"] == {"answer": expected, "target": "litert", "reasons": [f"{reason}."]}
    assert found["cpu"] == {"error": "CompilerFailedError", "text": reason}


def _child(kind: str, text: str, path: Path, cache: Path, target: str, road: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        answer_of(programs.run_without_llvm, kind, text, path, cache, target, road, flags=["-W", "ignore"])
    )
    return found
