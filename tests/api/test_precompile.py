"""python -m jitdelegate.warm for GPUs that this machine does not have."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import AARCH64, X86_64
from jitdelegate.commands import warm
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import CompileError, DeviceError, OptionError
from jitdelegate.ir.graph import Graph
from jitdelegate.program.read import read, verify_weights
from jitdelegate.runtime.cache.key import this_cpu
from jitdelegate.targets.cuda.code.gpu import gpu_of
from jitdelegate.targets.cuda.compile.template_store import SUFFIX
from jitdelegate.targets.cuda.generate import generate
from jitdelegate.targets.cuda.multiply.tensor_core import Operand, check_operand
from jitdelegate.targets.cuda.target import TARGET as CUDA
from jitdelegate.targets.cuda.target import CudaDevice
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    status = warm.main([*arguments, "--json"])
    results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert status == int(any("error" in result for result in results))
    return results


def test_signatures_of_further_subgraphs_get_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, cache = tmp_path / "model.tflite", tmp_path / "cache"
    model.write_bytes(small_models.two_signatures())
    _run(capsys, str(model), "--target", "cuda:sm_90", "--serialization-dir", str(cache))
    programs = [read(entry.read_bytes()) for entry in cache.glob("*.jitd")]
    assert sorted((program.target, program.part("subgraph")) for program in programs) == [("cuda", ""), ("cuda", "1")]


def test_inputs_and_outputs_have_the_types_that_options_ask_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, cache = tmp_path / "model.tflite", tmp_path / "cache"
    model.write_bytes(small_models.quantized())
    for asked, expected in ((), "int8"), (("--dequantize-outputs",), "float32"):
        (found,) = _run(capsys, str(model), "--target", "cuda:sm_90", "--serialization-dir", str(cache), *asked)
        assert [port.dtype for port in read(Path(found["path"]).read_bytes()).outputs] == [expected]


def test_each_named_gpu_gets_a_program_and_the_second_time_hits(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (model, "--target", "cuda:sm_80,sm_90", "--serialization-dir", str(tmp_path / "cache"))
    for expected in ("compiled", "hit"):
        results = _run(capsys, *arguments)
        assert [(one["gpu"], one["state"], one["target"]) for one in results] == [
            ("sm_80", expected, "cuda:sm_80"),
            ("sm_90", expected, "cuda:sm_90"),
        ]
    for one in results:
        program = read(Path(one["path"]).read_bytes())
        verify_weights(program)
        assert (program.target, program.loader, program.features) == ("cuda", "cubin", one["gpu"])
        assert program.launches
        assert all(kernel.registers > 0 for kernel in program.kernels)


def test_the_second_gpu_takes_the_templates_of_the_first(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    _run(capsys, model, "--target", "cuda:sm_80", "--serialization-dir", str(cache))
    assert list(cache.glob(f"*{SUFFIX}"))

    def never(*_: object) -> str:
        raise AssertionError("Numba was asked again")

    monkeypatch.setattr("jitdelegate.targets.cuda.compile.front_end.lower", never)
    (result,) = _run(capsys, model, "--target", "cuda:sm_86", "--serialization-dir", str(cache))
    assert result["state"] == "compiled"


def test_a_damaged_template_is_lowered_again(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    _run(capsys, model, "--target", "cuda:sm_80", "--serialization-dir", str(cache))
    before = {path: path.read_bytes() for path in cache.glob(f"*{SUFFIX}")}
    for path, content in before.items():
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (result,) = _run(capsys, model, "--target", "cuda:sm_90", "--serialization-dir", str(cache))
    assert result["state"] == "compiled"
    assert {path: path.read_bytes() for path in cache.glob(f"*{SUFFIX}")} == before


def test_programs_to_carry_away_leave_the_templates_at_home(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, output = tmp_path / "cache", tmp_path / "output"
    (result,) = _run(
        capsys, model, "--target", "cuda:sm_90", "--serialization-dir", str(cache), "--output", str(output)
    )
    assert [path.suffix for path in output.iterdir() if path.name != ".uses"] == [".jitd"]
    assert Path(result["path"]).parent == output
    assert list(cache.glob(f"*{SUFFIX}"))


def test_precision_is_another_program(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (model, "--target", "cuda:sm_90", "--serialization-dir", str(tmp_path))
    paths = {_run(capsys, *arguments, "--precision", name)[0]["path"] for name in ("float32", "float16", "tf32")}
    assert len(paths) == 3


def test_a_precision_that_the_gpu_lacks_is_an_error(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (model, "--target", "cuda:sm_75", "--serialization-dir", str(tmp_path), "--precision", "bfloat16")
    (result,) = _run(capsys, *arguments)
    assert "'bfloat16', but sm_75 has only" in result["error"]


def test_a_number_of_multiprocessors_is_another_program_and_the_usual_one_is_none(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (model, "--serialization-dir", str(tmp_path / "cache"), "--target")
    found = _run(capsys, *arguments, "cuda:sm_90,sm_90:132,sm_90:120,sm_90:114")
    assert [(one["gpu"], one["state"]) for one in found] == [("sm_90", "compiled"), ("sm_90:114", "compiled")]
    programs = [read(Path(one["path"]).read_bytes()) for one in found]
    assert [program.part("multiprocessors") for program in programs] == ["132", "114"]
    assert {program.features for program in programs} == {"sm_90"}
    (again,) = _run(capsys, *arguments, "cuda:sm_90:120")
    assert (again["state"], again["path"], again["target"]) == ("hit", found[1]["path"], "cuda:sm_90:114")


def test_kernels_are_chosen_for_the_number_of_multiprocessors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder, path = ModelBuilder(), tmp_path / "model.tflite"
    data, weights = builder.input((196, 512)), builder.constant(np.ones((512, 512), np.float32))
    builder.output(builder.op("FULLY_CONNECTED", [data, weights], (196, 512)))
    path.write_bytes(builder.finish())
    found = _run(capsys, str(path), "--target", "cuda:sm_90,sm_90:60", "--serialization-dir", str(tmp_path / "cache"))
    large, small = ([launch.grid for launch in read(Path(one["path"]).read_bytes()).launches] for one in found)
    assert prod(large[0]) > 2 * prod(small[0])


@pytest.mark.parametrize("target", ["cuda:sm_70", "cuda:", "cpu:sm_80", "gpu", "cuda:sm_90:", "cuda:sm_90:0,sm_80"])
def test_wrong_targets_are_wrong_arguments(model: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        warm.main([model, "--target", target])
    assert caught.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_a_folder_to_carry_away_needs_named_gpus(model: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        warm.main([model, "--output", str(tmp_path)])
    assert caught.value.code == 2


def _with_toolkit(monkeypatch: pytest.MonkeyPatch, major: int) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cuda.toolchain.cuda_major", lambda toolchain: major)


def test_what_the_compilers_know_no_binaries_for_is_ptx_with_a_reason(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_toolkit(monkeypatch, 12)
    (result,) = _run(capsys, model, "--target", "cuda:sm_110:12", "--serialization-dir", str(tmp_path))
    (note,) = result["notes"]
    assert result["gpu"] == "sm_110:12"
    assert note.startswith(
        "the installed compilers are those of CUDA 12, which make no code for sm_110: programs are PTX"
    )
    program = read(Path(result["path"]).read_bytes())
    assert (program.features, program.part("multiprocessors"), program.part("machine")) == (
        "compute_100",
        "18",
        AARCH64,
    )
    _with_toolkit(monkeypatch, 13)
    asked = find_key(CudaDevice("sm_110:12"), DelegateOptions(), "0")
    found = {(key.part("features"), key.part("multiprocessors")) for key in CudaDevice("sm_110:12").alternatives(asked)}
    assert ("compute_100", "18") in found


def test_what_the_compilers_know_no_code_for_is_refused_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_toolkit(monkeypatch, 13)
    with pytest.raises(OptionError, match=r"CUDA 13, which make no code for sm_72: .* extra cuda12$"):
        CUDA.devices("sm_72")
    assert "sm_72" not in {device.kind for device in CUDA.devices("all")}
    _with_toolkit(monkeypatch, 12)
    kinds = {device.kind for device in CUDA.devices("all")}
    assert "sm_72" in kinds and "sm_110" not in kinds


@pytest.mark.parametrize(
    "kind, cpu",
    [
        *(("sm_87", AARCH64), ("sm_110", AARCH64), ("sm_121", AARCH64), ("sm_121@x86_64", X86_64)),
        *(("sm_90", this_cpu()), ("sm_90@aarch64", AARCH64), ("sm_90:114@x86_64", X86_64)),
    ],
)
def test_programs_are_for_the_cpu_beside_the_gpu(kind: str, cpu: str) -> None:
    (device,) = CUDA.devices(kind)
    key = find_key(device, DelegateOptions(), "0")
    assert (key.part("machine"), key.cpu) == (cpu, cpu)


@pytest.mark.parametrize(
    "kinds, expected",
    [
        (f"sm_90@{this_cpu()},sm_90", ["sm_90"]),
        ("sm_87,sm_87@aarch64,sm_87@x86_64", ["sm_87", "sm_87@x86_64"]),
    ],
)
def test_a_cpu_that_is_beside_a_gpu_anyway_is_no_other_kind(kinds: str, expected: list[str]) -> None:
    assert [device.kind for device in CUDA.devices(kinds)] == expected


def test_an_unknown_cpu_beside_a_gpu_is_refused() -> None:
    with pytest.raises(OptionError, match="no CPU 'mips', expected x86_64 or aarch64"):
        CUDA.devices("sm_90@mips")


def test_gpus_without_mma_compute_in_float32_only() -> None:
    gpu = gpu_of("sm_72")
    for operand in Operand:
        with pytest.raises(CompileError, match=r"sm_72 has no \w+ tensor cores"):
            check_operand(gpu, operand)
    with pytest.raises(DeviceError, match="precision is 'float16', but sm_72 has only 'float32'"):
        generate(Graph((), (), (), ()), "sm_72", "float16", None, lambda stage, make: None, None)
