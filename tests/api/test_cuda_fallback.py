"""A GPU that fails while models are opened and run: the CPU takes over, with one warning and the right results."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import jitdelegate
from jitdelegate.errors import DelegateWarning, DeviceError, ModelError
from jitdelegate.program.program import Port, Signature, State
from jitdelegate.runtime.cuda import context
from jitdelegate.targets.cpu.target import CpuDevice
from jitdelegate.tflite.write import ModelBuilder
from tests.api.test_cuda import EXPECTED, X, load
from tests.gpu.stub import compiler as stub_compiler
from tests.gpu.stub.compiler import Compiler, scale_and_shift_model
from tests.gpu.stub.install import install
from tests.gpu.stub.library import (
    CONTEXT_IS_DESTROYED,
    ILLEGAL_ADDRESS,
    INVALID_GRAPHICS_CONTEXT,
    INVALID_VALUE,
    LAUNCH_FAILED,
    OUT_OF_MEMORY,
    GlBuffer,
    Library,
)
from tests.gpu.stub.programs import SCALE, SHIFT, X_OFFSET, Y_OFFSET, library
from tests.runtime.test_cuda_failures import ALL, Failing


@pytest.fixture
def cache(tmp_path: Path, compiler: Compiler) -> Iterator[str]:
    """A cache with the model's programs for the GPU and the CPU."""
    compiler.output = stub_compiler.OUTPUT
    load(target="cpu", serialization_dir=tmp_path).close()
    gc.freeze()  # looks at what is made from here on only
    yield str(tmp_path)
    gc.unfreeze()


def called(cache: str) -> list[Any]:
    with load(serialization_dir=cache) as model:
        return [model(X), model.run({"x": X})["y"], model(X)]


def interpreted(cache: str) -> list[Any]:
    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    running = jitdelegate.Interpreter(model_content=scale_and_shift_model(), experimental_delegates=[delegate])
    running.allocate_tensors()
    running.set_tensor(0, X)
    for _ in range(2):
        running.invoke()
    return [running.get_tensor(stub_compiler.OUTPUT)]


def gpu_or_cpu(cache: str) -> jitdelegate.Options:
    both = jitdelegate.HardwareAccelerator.GPU | jitdelegate.HardwareAccelerator.CPU
    return jitdelegate.Options(both, gpu_options=jitdelegate.GpuOptions(serialization_dir=cache))


def on_buffers(cache: str) -> list[Any]:
    with jitdelegate.CompiledModel.from_buffer(scale_and_shift_model(), options=gpu_or_cpu(cache)) as model:
        x, y = (jitdelegate.TensorBuffer.create("float32", shape) for shape in ((2, 3), (3, 2)))
        x.write(X)
        model.run_by_index(0, [x], [y])
        y.write(np.zeros((3, 2), np.float32))
        model.run_by_index(0, [x], [y])
        return [y.read()]


def outcome(live: Callable[[str], list[Any]], cache: str) -> tuple[list[Any] | DeviceError, list[str]]:
    """What a model's life comes to, and the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found: list[Any] | DeviceError = live(cache)
        except DeviceError as error:
            found = error.with_traceback(None)
    assert all(one.category is DelegateWarning for one in told)
    return found, [str(one.message) for one in told]


@pytest.mark.parametrize("code", [OUT_OF_MEMORY, CONTEXT_IS_DESTROYED, ILLEGAL_ADDRESS, LAUNCH_FAILED, INVALID_VALUE])
@pytest.mark.parametrize("live", [called, interpreted, on_buffers])
def test_whichever_call_fails_the_results_are_right_and_one_warning_says_why(
    live: Callable[[str], list[Any]], code: int, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an error for which the caller may be to blame, a run tells the caller."""
    every = install(monkeypatch, Failing(ALL, code))
    assert outcome(live, cache)[1] == []
    for left in range(ALL - every.left):
        context._held.clear()
        driver = install(monkeypatch, Failing(left, code))
        found, told = outcome(live, cache)
        if isinstance(found, DeviceError):
            assert code == INVALID_VALUE and str(found).startswith(f"{driver.refused[0]} failed with") and not told
            continue
        assert len(told) <= 1, (left, told)
        for one in found:
            np.testing.assert_array_equal(np.asarray(one), EXPECTED, f"{left}: {driver.refused}")


def crash(values: list[Any], memory: Any) -> None:
    """A kernel that reads where nothing is."""
    memory.read(4, 4)


CRASHING = {"scale": crash, "shift": crash}


def test_after_an_illegal_address_models_go_on_and_new_ones_start_on_the_cpu(
    cache: str, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = install(monkeypatch, library(CRASHING))
    first, asked = load(serialization_dir=cache), load(serialization_dir=cache, target="cuda")
    with pytest.warns(DelegateWarning, match=r"model's content runs on the CPU: cuStreamSynchronize failed with"):
        np.testing.assert_array_equal(np.asarray(first(X)), EXPECTED)
    report = first.report()
    assert (report.target, report.device) == ("cpu", "")
    assert [note[:40] for note in report.notes] == ["not on a GPU: cuStreamSynchronize failed"]
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"^the GPU has failed in this process"):
            asked(X)
    before = driver.calls.copy()
    found, told = outcome(called, cache)
    assert isinstance(found, list) and told == []
    np.testing.assert_array_equal(np.asarray(found), np.stack([EXPECTED] * 3))
    assert not any(name.startswith(("cuCtx", "cuMem", "cuStream")) for name in driver.calls - before)
    child = os.fork()
    if child == 0:
        is_right = np.array_equal(np.asarray(called(cache)[0]), EXPECTED)
        os._exit(not (is_right and np.array_equal(np.asarray(first(X)), EXPECTED)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_request_that_fails_says_so_and_later_runs_are_the_cpus(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, library(CRASHING))
    with jitdelegate.CompiledModel.from_buffer(scale_and_shift_model(), options=gpu_or_cpu(cache)) as model:
        x, y = (jitdelegate.TensorBuffer.create("float32", shape) for shape in ((2, 3), (3, 2)))
        x.write(X)
        model.run_async([x], [y])
        with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            y.read()
        again = jitdelegate.TensorBuffer.create("float32", (3, 2))
        model.run([x], [again])
        np.testing.assert_array_equal(again.read(), EXPECTED)


def test_a_model_goes_on_where_another_library_reset_the_gpu(cache: str, gpu: Library) -> None:
    with load(serialization_dir=cache) as model:
        model(X)
        gpu.reset()
        load(serialization_dir=cache).close()
        with pytest.warns(DelegateWarning, match="runs on the CPU: another library reset the GPU"):
            np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)


def test_a_model_stays_on_the_gpu_until_the_cpu_is_ready(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other threads find a session at all times, and an attempt that fails changes nothing."""
    driver, path = install(monkeypatch, Failing(ALL, OUT_OF_MEMORY)), tmp_path / "model.tflite"
    path.write_bytes(scale_and_shift_model())
    model = jitdelegate.load(path, serialization_dir=False)
    model._opened.note("not on a GPU: another signature has an operator that it lacks.")
    path.unlink()
    driver.left = 1
    with pytest.warns(DelegateWarning, match="runs on the CPU"), pytest.raises(ModelError, match="Could not open"):
        model(X)
    path.write_bytes(scale_and_shift_model())
    driver.left, open_session = 1, CpuDevice.session

    def session(*given: Any) -> Any:
        np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
        return open_session(*given)

    monkeypatch.setattr(CpuDevice, "session", session)
    np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
    assert (driver.calls["cuGraphLaunch"], model.report().target) == (1, "cpu")


def test_a_thread_without_the_opengl_context_of_its_buffers_keeps_the_gpu(cache: str, gpu: Library) -> None:
    gpu.gl_buffers = {7: GlBuffer(X.tobytes()), 8: GlBuffer(bytes(24))}
    with jitdelegate.CompiledModel.from_buffer(scale_and_shift_model(), options=gpu_or_cpu(cache)) as model:
        x = jitdelegate.TensorBuffer.create_from_gl_buffer(0x90D2, 7, "float32", (2, 3))
        y = jitdelegate.TensorBuffer.create_from_gl_buffer(0x90D2, 8, "float32", (3, 2))
        gpu.fail("cuGraphicsMapResources", INVALID_GRAPHICS_CONTEXT)
        with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_GRAPHICS_CONTEXT"):
            model.run_by_index(0, [x], [y])
        model.run_by_index(0, [x], [y])
        np.testing.assert_array_equal(y.read(), EXPECTED)
    assert gpu.calls["cuGraphLaunch"] == 1


def test_a_model_that_is_closed_meanwhile_stays_closed(
    cache: str, monkeypatch: pytest.MonkeyPatch, gpu: Library
) -> None:
    open_session, model = CpuDevice.session, load(serialization_dir=cache)
    gpu.fail("cuGraphLaunch", OUT_OF_MEMORY)

    def session(*given: Any) -> Any:
        model.close()
        return open_session(*given)

    monkeypatch.setattr(CpuDevice, "session", session)
    with pytest.raises(DeviceError, match="the model is closed"):
        model(X)
    assert model._opened.session is None


def stepping_model() -> bytes:
    """A signature that replaces the tensor s: f32[2,3] by s * 3 + 2.5."""
    model = ModelBuilder()
    s = model.input((2, 3), name="s")
    scaled = model.op("MUL", [s, model.constant(np.array([SCALE], np.float32))], (2, 3))
    changed = model.op("ADD", [scaled, model.constant(np.array([SHIFT], np.float32))], (2, 3))
    model.output(changed)
    model.signature("step", {"s": s}, {"s": changed})
    return model.finish()


def in_a_session(cache: str) -> Any:
    session = jitdelegate.load(stepping_model(), serialization_dir=cache).session("s")
    for _ in range(2):
        session.run("step")
    return session.state["s"]


def in_an_array(cache: str) -> Any:
    model, s = jitdelegate.load(stepping_model(), serialization_dir=cache), np.zeros((2, 3), np.float32)
    for _ in range(2):
        model.run({"s": s}, "step", out={"s": s})
    return s


def in_a_buffer(cache: str) -> Any:
    with jitdelegate.CompiledModel.from_buffer(stepping_model(), options=gpu_or_cpu(cache)) as model:
        (buffer,) = model.create_input_buffers(0)
        model.run_by_index(0, [buffer], [buffer])
        model.run_async([buffer], [buffer]).wait()
        return buffer.read()


@pytest.mark.parametrize("has_graphs", [True, False])
@pytest.mark.parametrize("code", [OUT_OF_MEMORY, ILLEGAL_ADDRESS])
@pytest.mark.parametrize("live", [in_a_session, in_an_array, in_a_buffer])
def test_a_run_that_may_have_changed_its_inputs_is_not_repeated(
    live: Callable[[str], Any],
    code: int,
    has_graphs: bool,
    compiler: Compiler,
    cache: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler.output, step = 4, Signature(key="step", graph=0, inputs=(("s", 0),), outputs=(("s", 4),))
    changed = Port(name="t", index=4, shape=(2, 3), dtype="float32", nbytes=24)
    compiler.changes = {"outputs": (changed,), "signatures": (step,)}
    jitdelegate.load(stepping_model(), serialization_dir=cache, target="cpu").close()
    if not has_graphs:
        refused = DeviceError("no graphs")
        monkeypatch.setattr("jitdelegate.runtime.cuda.session.capture", Mock(side_effect=refused))
    every, were_right = install(monkeypatch, Failing(ALL, code)), 0
    outcome(live, cache)
    for left in range(ALL - every.left):
        context._held.clear()
        install(monkeypatch, Failing(left, code))
        found, _ = outcome(live, cache)
        if not isinstance(found, DeviceError):
            assert (np.asarray(found) == SHIFT * SCALE + SHIFT).all(), left
            were_right += 1
    assert were_right > 10


def with_variable(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, code: int) -> tuple[Failing, jitdelegate.Model]:
    """A model whose program has a variable, on a driver that may fail."""
    offsets = {"input_offsets": (X_OFFSET, 0), "output_offsets": (Y_OFFSET, 0)}
    compiler.changes = {"states": (State(name="sum", nbytes=24),), **offsets}
    return install(monkeypatch, Failing(ALL, code)), load()  # type: ignore[return-value]


@pytest.mark.parametrize(("code", "is_lost"), [(OUT_OF_MEMORY, False), (ILLEGAL_ADDRESS, True)])
def test_variables_are_lost_with_the_gpu_alone(
    code: int, is_lost: bool, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, model = with_variable(compiler, monkeypatch, code)
    driver.left = 4
    if is_lost:
        with pytest.raises(DeviceError, match=r"ILLEGAL_ADDRESS.*; on the CPU its variables have their first"):
            model(X)
    np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
    assert model.report().target == "cpu"


def test_a_run_that_may_have_changed_variables_is_not_repeated(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, model = with_variable(compiler, monkeypatch, OUT_OF_MEMORY)
    model(X)
    driver.left = 2
    with pytest.raises(DeviceError, match="cuGraphLaunch failed with CUDA_ERROR_OUT_OF_MEMORY"):
        model(X)
    np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
    assert model.report().target == "cuda"
