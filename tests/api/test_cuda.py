"""Models on a GPU, as callers see them: the choice of the target, the messages, and the fallback to the CPU."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import warm
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import DeviceError, OptionError, TensorError
from jitdelegate.runtime.cache.key import this_cpu
from jitdelegate.runtime.cuda import toolchain as toolchain_module
from jitdelegate.targets.cpu.target import CpuDevice
from jitdelegate.targets.cuda.target import CudaDevice
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models
from tests.api.test_gpu_buffers import GpuArray
from tests.gpu.stub import library as stub
from tests.gpu.stub.compiler import TOOLCHAIN, Compiler, scale_and_shift_model
from tests.gpu.stub.install import install
from tests.gpu.stub.library import Library
from tests.gpu.stub.programs import EXPECTED, SCALE, SHIFT, X, library


def load(**arguments: Any) -> jitdelegate.Model:
    return jitdelegate.load(scale_and_shift_model(), **{"serialization_dir": False, **arguments})


@pytest.mark.parametrize("target", ["auto", "cuda"])
def test_a_model_runs_on_the_gpu_where_there_is_one(target: str, compiler: Compiler, gpu: Library) -> None:
    with load(target=target) as model:
        np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
        report = model.report()
    assert (report.target, report.features, report.device) == ("cuda", "sm_90", "Stub 9000")
    assert (report.threads, report.kernels, report.launches) == (1, 2, 2)
    assert report.notes == ()
    assert "cuda sm_90, Stub 9000, 2 launches of 2 kernels" in str(report)
    assert report.to_dict()["device"] == "Stub 9000" and report.to_dict()["launches"] == 2
    assert gpu.calls["cuGraphLaunch"] == 1
    assert gpu.leaks() == []


def test_the_option_profile_gives_times_of_kernels(compiler: Compiler, gpu: Library) -> None:
    with load(target="cuda", options={"profile": True}) as model:
        np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
        found = model.report().kernel_times
    assert [(each.name, each.operators, bool(each.seconds)) for each in found] == [
        ("scale", (0,), True),
        ("shift", (1,), True),
    ]
    assert gpu.calls["cuGraphLaunch"] == 0


def test_the_key_says_what_to_compile_for(compiler: Compiler, gpu: Library) -> None:
    load(options={"precision": "tf32"})
    (key,) = compiler.keys
    names = ("target", "features", "multiprocessors", "loader", "machine", "precision", "toolchain")
    assert {name: key.part(name) for name in names} == {
        "target": "cuda",
        "features": "sm_90",
        "multiprocessors": "132",
        "loader": "cubin",
        "machine": this_cpu(),
        "precision": "tf32",
        "toolchain": TOOLCHAIN,
    }


def test_the_precision_names_programs_for_a_gpu_and_no_others() -> None:
    exact, loose = DelegateOptions(), DelegateOptions(is_precision_loss_allowed=True)
    gpu, cpu = CudaDevice("sm_90"), CpuDevice()
    assert find_key(gpu, exact, "0").entry_name() != find_key(gpu, loose, "0").entry_name()
    assert find_key(cpu, exact, "0").entry_name() == find_key(cpu, loose, "0").entry_name()
    assert find_key(gpu, exact, "0").entry_name() == find_key(gpu, DelegateOptions(device=3), "0").entry_name()


def test_a_second_start_compiles_nothing(compiler: Compiler, gpu: Library, tmp_path: Path) -> None:
    for _ in range(2):
        model = load(serialization_dir=tmp_path / "cache")
        np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
    assert len(compiler.keys) == 1
    assert model.report().cache.hit
    assert list(model.report().seconds) == ["device", "fingerprint", "cache", "open"]


def test_a_program_of_another_machine_is_taken_where_nothing_can_compile(
    compiler: Compiler, gpu: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(serialization_dir=tmp_path / "cache").close()
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    monkeypatch.setattr(sys, "platform", "another")
    with load(serialization_dir=tmp_path / "cache") as model:
        assert model.report().cache.hit and model.report().target == "cuda"


def gpu_of(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> Library:
    """From now on the machine has this GPU."""
    monkeypatch.setattr("jitdelegate.runtime.cuda.context._held", {})
    return install(monkeypatch, library(**arguments))


def test_a_gpu_with_another_number_of_multiprocessors_gets_a_program_of_its_own(
    compiler: Compiler, gpu: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for multiprocessors in (132, 114, 120, 132):
        gpu_of(monkeypatch, multiprocessors=multiprocessors)
        with load(serialization_dir=tmp_path / "cache") as model:
            np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
            assert model.report().notes == ()
    assert [key.part("multiprocessors") for key in compiler.keys] == ["132", "114"]


@pytest.mark.parametrize("target", ["auto", "cuda"])
def test_where_nothing_can_compile_the_nearest_program_for_the_architecture_runs_and_the_report_says_so(
    target: str, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for multiprocessors in (16, 132):
        gpu_of(monkeypatch, multiprocessors=multiprocessors)
        load(serialization_dir=tmp_path / "cache").close()
    gpu_of(monkeypatch, multiprocessors=114)
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    compiler.error = DeviceError("nothing can compile")
    with load(target=target, serialization_dir=tmp_path / "cache") as model:
        np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
        report = model.report()
    assert (report.target, report.cache.hit) == ("cuda", True)
    assert report.notes == (
        "the program is for a GPU of 132 multiprocessors, Stub 9000 has 114: jitdelegate's extra cuda compiles one"
        " that fits",
    )
    assert len(compiler.keys) == 2


def test_where_nothing_can_compile_the_program_that_fits_is_taken_first(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for multiprocessors in (132, 114):
        gpu_of(monkeypatch, multiprocessors=multiprocessors)
        load(serialization_dir=tmp_path / "cache").close()
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    with load(serialization_dir=tmp_path / "cache") as model:
        assert (model.report().notes, model.report().cache.hit) == ((), True)


def damage(path: Path) -> None:
    """Changes the last bit of an entry."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    os.unlink(path)
    path.write_bytes(content)
    path.chmod(0o600)


def test_a_damaged_program_for_another_number_of_multiprocessors_is_forgotten(
    compiler: Compiler, gpu: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(load(serialization_dir=tmp_path / "cache").report().cache.path)
    damage(path)
    gpu_of(monkeypatch, multiprocessors=114)
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    compiler.error = DeviceError("nothing can compile")
    with pytest.raises(DeviceError, match="nothing can compile"):
        load(target="cuda", serialization_dir=tmp_path / "cache")
    assert not path.exists()


CUDA_13 = "numba-cuda 0.30.4, nvidia-nvvm 13.5.37, nvidia-nvjitlink 13.5.37"
CUDA_12 = "numba-cuda 0.30.4, nvidia-cuda-nvcc-cu12 12.9.86, nvidia-nvjitlink-cu12 12.9.86"


def test_compilers_of_a_newer_cuda_than_the_drivers_are_not_asked(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = install(monkeypatch, library(version=12040))
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: CUDA_13)
    reason = (
        "there is no program for it in the cache, and the installed compilers are those of CUDA 13, which needs a"
        " driver for CUDA 13.0 or later, but this one speaks CUDA 12.4: update the driver, or install"
        " jitdelegate's extra cuda12"
    )
    on_the_cpu(reason)
    with pytest.raises(DeviceError, match=re.escape(reason)):
        load(target="cuda")
    assert [key.part("target") for key in compiler.keys] == ["cpu"]
    assert driver.calls["cuModuleLoadData"] == driver.calls["cuDevicePrimaryCtxRetain"] == 0


def test_a_program_of_an_older_cuda_runs_where_the_compilers_are_too_new_for_the_driver(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, library(version=12040))
    for toolchain in (CUDA_12, CUDA_13):
        monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda found=toolchain: found)
        with load(target="cuda", serialization_dir=tmp_path / "cache") as model:
            np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
    assert len(compiler.keys) == 1


def test_a_program_of_a_newer_cuda_than_the_drivers_is_refused_before_it_is_loaded(
    compiler: Compiler, gpu: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: CUDA_13)
    load(target="cuda", serialization_dir=tmp_path / "cache").close()
    driver = gpu_of(monkeypatch, version=12040)
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    reason = "the program was compiled by CUDA 13, which needs a driver for CUDA 13.0 or later, but this one speaks"
    on_the_cpu(reason, serialization_dir=tmp_path / "cache")
    with pytest.raises(DeviceError, match=reason):
        load(target="cuda", serialization_dir=tmp_path / "cache")
    assert driver.calls["cuModuleLoadData"] == driver.calls["cuDevicePrimaryCtxRetain"] == 0


def test_missing_compilers_are_named_after_the_drivers_cuda(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, library(version=12040))
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    on_the_cpu("is not installed: install jitdelegate's extra cuda12")


def test_the_stream_that_is_asked_for_is_the_one_that_is_run_in(compiler: Compiler, gpu: Library) -> None:
    with pytest.raises(DeviceError, match="INVALID_HANDLE"), load(target="cuda", options={"stream": 7}) as model:
        model(X)  # the stub knows no stream 7
    with pytest.raises(OptionError, match="stream is -1, expected None or the handle of a CUDA stream"):
        load(options={"stream": -1})
    assert (
        find_key(CudaDevice("sm_90"), DelegateOptions(stream=7), "0").parts
        == find_key(CudaDevice("sm_90"), DelegateOptions(), "0").parts
    )


def test_the_interpreter_runs_on_the_gpu(compiler: Compiler, gpu: Library) -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, target="cuda")
    interpreter = jitdelegate.Interpreter(model_content=scale_and_shift_model(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X)
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), EXPECTED)
    assert gpu.calls["cuGraphLaunch"] == 1


def on_the_cpu(reason: str, **arguments: Any) -> None:
    """The model was left to the CPU, for this reason."""
    with load(**arguments) as model:
        np.testing.assert_allclose(np.asarray(model(X)), EXPECTED, rtol=1e-6)
        report = model.report()
    assert (report.target, report.device, report.launches) == ("cpu", "", 0)
    assert [note for note in report.notes if note.startswith("not on a GPU: ") and reason in note] == list(report.notes)
    assert len(report.notes) == 1


def test_without_a_driver_the_cpu_takes_over_and_cuda_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cuda.library.LIBRARY", "libnonesuch.so.1")
    monkeypatch.setattr("jitdelegate.targets.DEVICES", str(tmp_path))
    on_the_cpu("no NVIDIA device was found in /dev")
    (tmp_path / "nvidiactl").touch()
    on_the_cpu("no NVIDIA driver was found: libnonesuch.so.1: cannot open shared object file")
    with pytest.raises(DeviceError, match=r"target is 'cuda', but no NVIDIA driver was found: libnonesuch\.so\.1"):
        load(target="cuda")


@pytest.mark.parametrize(
    ("machine", "options", "reason"),
    [
        ({"version": 11040}, {}, "the NVIDIA driver is too old: it speaks CUDA 11.4"),
        ({"devices": 0}, {}, "CUDA_ERROR_NO_DEVICE"),
        ({}, {"device": 1}, "device is 1, but there are devices 0 to 0"),
        ({"capability": (6, 1)}, {}, "Stub 9000 is sm_61"),
        ({"total_bytes": 500}, {}, "no GPU memory of 1004 bytes: 500 of 500 bytes are free"),
    ],
)
def test_where_the_gpu_cannot_serve_the_cpu_takes_over_and_cuda_says_why(
    machine: dict[str, Any],
    options: dict[str, Any],
    reason: str,
    compiler: Compiler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = install(monkeypatch, library(**machine))
    on_the_cpu(reason, options=options)
    with pytest.raises(DeviceError, match=reason):
        load(target="cuda", options=options)
    assert driver.leaks() == []


def test_a_missing_compiler_leaves_auto_to_the_cpu_and_fails_cuda(compiler: Compiler, gpu: Library) -> None:
    compiler.error = DeviceError("No module named 'numba'; install jitdelegate's extra cuda")
    on_the_cpu("No module named 'numba'")
    with pytest.raises(DeviceError, match="No module named 'numba'"):
        load(target="cuda")


def test_a_model_that_no_gpu_takes_is_left_to_the_cpu_for_good(
    compiler: Compiler, gpu: Library, tmp_path: Path
) -> None:
    compiler.reason = "a tensor has 2147483648 bytes."
    for _ in range(2):
        on_the_cpu(compiler.reason, serialization_dir=tmp_path / "cache")
    assert [key.part("target") for key in compiler.keys] == ["cuda", "cpu"]
    with load(target="cuda", serialization_dir=tmp_path / "cache") as model:
        assert model.report().target == "litert"


def test_a_shape_that_no_gpu_takes_runs_on_the_cpu_while_others_stay(compiler: Compiler, gpu: Library) -> None:
    builder = ModelBuilder()
    builder.output(builder.op("RELU", [builder.input((2, 3), name="x")], (2, 3)))
    delegate = jitdelegate.GpuDelegate(serialization_dir=False)
    interpreter = jitdelegate.Interpreter(model_content=builder.finish(), experimental_delegates=[delegate])
    compiler.reason = "too large for any GPU."
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    for value, target, expected in ((rows, "cpu", rows), (X, "cuda", EXPECTED)):
        interpreter.resize_tensor_input(0, value.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, value)
        interpreter.invoke()
        assert interpreter.report().target == target
        np.testing.assert_array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), expected)
    asked = [(key.part("target"), key.shapes) for key in compiler.keys]
    assert asked == [("cuda", ()), ("cuda", ((4, 3),)), ("cpu", ((4, 3),))]
    first, second = interpreter.report().notes
    assert first == "not on a GPU: too large for any GPU."
    assert second.startswith("inputs of [4, 3]: cpu, cache off. It took ")


def test_a_model_that_nothing_compiles_runs_on_litert_and_says_why_it_is_not_on_the_gpu(gpu: Library) -> None:
    report = jitdelegate.load(small_models.uncompiled(), serialization_dir=False).report()
    assert report.target == "litert"
    (note,) = report.notes
    assert note.startswith("not on a GPU: ") and "FAKE_QUANT" in note


def test_auto_asks_no_compiler_that_is_not_installed(
    compiler: Compiler, gpu: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    on_the_cpu(r"there is no program for it in the cache, and numba-cuda 0.30.* with NVVM and nvJitLink")
    assert [key.part("target") for key in compiler.keys] == ["cpu"]


def test_a_start_that_left_the_gpu_finds_the_program_for_the_cpu(
    compiler: Compiler, gpu: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    for _ in range(2):
        report = load(serialization_dir=tmp_path / "cache").report()
    assert report.cache.hit and len(compiler.keys) == 1
    assert list(report.seconds) == ["device", "fingerprint", "cache", "open"]


def test_a_driver_that_gives_no_graph_is_told(compiler: Compiler, gpu: Library) -> None:
    gpu.fail("cuGraphInstantiateWithFlags", stub.INVALID_VALUE)
    with load() as model:
        np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
        (note,) = model.report().notes
    assert note.startswith("kernels are launched one by one: cuGraphInstantiateWithFlags failed")


def test_a_damaged_entry_is_compiled_again_before_anything_is_answered(
    compiler: Compiler, gpu: Library, tmp_path: Path
) -> None:
    path = Path(load(serialization_dir=tmp_path / "cache").report().cache.path)
    damage(path)
    with load(serialization_dir=tmp_path / "cache") as model:
        np.testing.assert_array_equal(np.asarray(model(X)), EXPECTED)
        assert "the entry was damaged: weights" in model.report().cache.reason
    assert len(compiler.keys) == 2


def warmed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What the command says of its one model."""
    assert warm.main([*arguments, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    return dict(result)


def test_warming_on_a_machine_with_a_gpu_says_which_or_why_not(
    compiler: Compiler, gpu: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(scale_and_shift_model())
    arguments = [str(model), "--serialization-dir", str(tmp_path / "cache")]
    result = warmed(capsys, *arguments)
    assert (result["state"], result["target"], result["notes"]) == ("compiled", "cuda:sm_90", [])
    gpu.devices = 0
    result = warmed(capsys, *arguments)
    assert (result["state"], result["target"]) == ("compiled", "cpu")
    assert "CUDA_ERROR_NO_DEVICE" in result["notes"][0]
    assert gpu.leaks() == []


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_other_targets_never_look_for_a_gpu(target: str, gpu: Library) -> None:
    with load(target=target) as model:
        assert model.report().target == target
        assert model.report().notes == ()
    assert not gpu.calls


def test_an_unknown_precision_is_refused_whatever_the_target() -> None:
    with pytest.raises(OptionError, match="precision is 'half'"):
        load(target="cpu", options={"precision": "half"})


def test_a_model_takes_arrays_on_its_gpu_and_one_on_the_cpu_refuses_them(compiler: Compiler, gpu: Library) -> None:
    x = GpuArray(X, gpu)
    with load() as model:
        np.testing.assert_array_equal(np.asarray(model(x)), EXPECTED)
        np.testing.assert_array_equal(np.asarray(model(TensorBuffer.create_from_cuda_array(x))), EXPECTED)
    with load(target="cpu") as model, pytest.raises(TensorError, match="lies on GPU 0, where numpy does not reach it"):
        model(TensorBuffer.create_from_cuda_array(x))


def test_a_compiled_model_runs_on_buffers_of_the_gpu_without_copies(compiler: Compiler, gpu: Library) -> None:
    gpu_options = jitdelegate.GpuOptions(serialization_dir=False)
    options = jitdelegate.Options(jitdelegate.HardwareAccelerator.GPU, gpu_options=gpu_options)
    x, y = GpuArray(X, gpu), GpuArray(np.zeros((3, 2), np.float32), gpu)
    inputs, outputs = ([TensorBuffer.create_from_cuda_array(each)] for each in (x, y))
    with jitdelegate.CompiledModel.from_buffer(scale_and_shift_model(), options=options) as model:
        model.run_by_index(0, inputs, outputs)
        before = gpu.calls.copy()
        gpu.memory.write(x.address, (X + 1).tobytes())
        model.run_by_index(0, inputs, outputs)
        assert not any("Memcpy" in name for name in gpu.calls - before)
        pinned = [*model.create_input_buffers(), model.create_output_buffer_by_name("<placeholder signature>", "y")]
        assert gpu.calls["cuMemHostAlloc"] == 2 and [buffer.place.gpu for buffer in pinned] == [-1, -1]
        (there,) = model.create_output_buffers(on_device=True)
        assert there.place.gpu == 0 and not there.read().any()
    np.testing.assert_array_equal(y.read(), ((X + 1) * np.float32(SCALE) + np.float32(SHIFT)).reshape(3, 2))
