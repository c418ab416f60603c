"""python -m jitdelegate.warm for CPUs that this machine does not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import jitdelegate
from jitdelegate import passes
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import BFLOAT16, EXACT, LEVELS
from jitdelegate.commands import warm
from jitdelegate.engine.litert_delegate.trust import refusal
from jitdelegate.engine.load_path import find_key
from jitdelegate.engine.precompile import precompile
from jitdelegate.errors import DeviceError, OptionError
from jitdelegate.program.read import read, verify_weights
from jitdelegate.runtime.cache.key import machine_with
from jitdelegate.targets import parse_targets
from jitdelegate.targets.cpu import generate as generated
from jitdelegate.targets.cpu import target as cpu
from jitdelegate.targets.cpu.code import machine
from jitdelegate.targets.cpu.target import TARGET, CpuDevice
from jitdelegate.targets.host import levels
from tests.api import small_models
from tests.targets.test_cpu_graphs import Network, pyramid

NAMED = [name for name, row in LEVELS.items() if row.host and not row.only_for]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert warm.main([*arguments, "--json"]) == 0
    results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return results


def test_several_cpus_get_programs_in_one_folder_and_the_second_time_hit(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = NAMED
    arguments = [model, "--target", f"cpu:{','.join(others)},litert", "--target", f"cpu:{first}"]
    for expected in ("compiled", "hit"):
        results = _run(capsys, *arguments, "--serialization-dir", str(tmp_path))
        assert [one.get("cpu", "") for one in results] == [*others, "", first]
        assert {one["state"] for one in results} == {expected}
    for one in results:
        program = read(Path(one["path"]).read_bytes())
        verify_weights(program)
        if level := one.get("cpu", ""):
            assert (program.target, program.features, one["target"]) == ("cpu", level, f"cpu:{level}")
            assert program.part("machine") == machine_with(LEVELS[level].host)
    assert len({one["path"] for one in results}) == len(NAMED) + 1


@pytest.mark.parametrize("level", [name for name, row in LEVELS.items() if row.host])
@pytest.mark.parametrize("precision", [EXACT, BFLOAT16])
def test_a_machine_with_this_cpu_asks_for_the_same_program(
    level: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, options = LEVELS[level], DelegateOptions(precision=precision)
    if row.only_for not in ("", precision):
        with pytest.raises(DeviceError, match=f"for the precision '{row.only_for}'"):
            CpuDevice(level).key_parts(options)
        return
    known = tuple(name for name, one in LEVELS.items() if one.host in ("", row.host))
    offered = known[: known.index(level) + 1]
    monkeypatch.setattr("jitdelegate.targets.host.levels", lambda: offered)
    monkeypatch.setattr(cpu, "this_machine", lambda: machine_with(row.host))
    there, here = find_key(CpuDevice(), options, "0"), find_key(CpuDevice(level), options, "0")
    assert here.parts == there.parts


def test_a_start_on_the_other_machine_opens_what_was_stored(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offered = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
    if not offered:
        pytest.skip("this machine has no named instruction set")
    named = [value for level in NAMED for value in ("--target", f"cpu:{level}")]
    _run(capsys, model, *named, "--serialization-dir", str(tmp_path))
    tmp_path.chmod(0o500)
    with jitdelegate.load(model, target="cpu", serialization_dir=str(tmp_path)) as loaded:
        assert loaded.report().cache.hit
        assert loaded.report().features == offered[-1]
        (port,) = loaded.inputs
        loaded(np.zeros(port.shape, port.dtype))


def test_a_machine_that_cannot_compile_runs_the_program_for_the_nearest_lower_level(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offered = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
    if len(offered) < 3:
        pytest.skip("this machine has fewer than three named instruction sets")
    named = [value for level in offered[:-1] for value in ("--target", f"cpu:{level}")]
    _run(capsys, model, *named, "--serialization-dir", str(tmp_path))
    monkeypatch.setattr(cpu, "installed_toolchain", lambda: "")
    with jitdelegate.load(model, target="auto", serialization_dir=str(tmp_path)) as loaded:
        report = loaded.report()
    assert report.cache.hit and report.features == offered[-2]
    assert any(f"is for {offered[-2]} and in float32" in note for note in report.notes)


def test_a_machine_that_cannot_compile_nor_measure_runs_the_float32_program(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offered = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
    if not offered:
        pytest.skip("this machine has no named instruction set")
    _run(capsys, model, "--target", f"cpu:{offered[-1]}", "--precision", "auto", "--serialization-dir", str(tmp_path))
    monkeypatch.setattr(cpu, "installed_toolchain", lambda: "")
    options = {"precision": "auto"}
    with jitdelegate.load(model, target="cpu", serialization_dir=str(tmp_path), options=options) as loaded:
        report = loaded.report()
    assert report.cache.hit and report.features == offered[-1]
    assert any("in float32" in note for note in report.notes)


def test_litert_s_interpreter_on_the_other_machine_has_nothing_to_compile(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offered = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
    if not offered or refusal(None):
        pytest.skip("LiteRT's interpreter calls no compiled code here")
    _run(capsys, model, "--litert-interpreter", "--target", f"cpu:{offered[-1]}", "--serialization-dir", str(tmp_path))
    kept = sorted(tmp_path.glob("*.jitd"))
    delegate = jitdelegate.GpuDelegate(serialization_dir=str(tmp_path))
    Interpreter(model, experimental_delegates=[delegate]).allocate_tensors()
    report = delegate.report()
    assert report is not None and report.cache.hit and report.fully_delegated
    assert len(kept) == 2 and sorted(tmp_path.glob("*.jitd")) == kept


def test_litert_s_interpreter_has_the_ports_of_the_file(model: str, tmp_path: Path) -> None:
    options = DelegateOptions(serialization_dir=str(tmp_path), quantize_inputs=True)
    with pytest.raises(OptionError, match="LiteRT's own interpreter has the inputs and outputs of the file"):
        precompile(model, CpuDevice(NAMED[0]), options, hosted=True)


def test_further_signatures_and_shapes_are_compiled_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(small_models.two_signatures())
    _run(capsys, str(path), "--target", f"cpu:{NAMED[0]}", "--serialization-dir", str(cache))
    programs = [read(entry.read_bytes()) for entry in cache.glob("*.jitd")]
    assert sorted((program.features, program.part("subgraph")) for program in programs) == [
        (NAMED[0], ""),
        (NAMED[0], "1"),
    ]


def test_auto_precision_is_float32_where_nothing_can_be_run() -> None:
    options = DelegateOptions(precision="auto")
    own = CpuDevice(NAMED[0]).key_parts(options)
    assert own.options == CpuDevice(NAMED[0]).key_parts(DelegateOptions()).options


@pytest.mark.parametrize(
    "text, expected",
    [
        ("cpu", [("cpu", [])]),
        (f"cpu:{NAMED[0]},{NAMED[1]}", [("cpu", NAMED[:2])]),
        (f"litert,cpu:{NAMED[0]},cpu,auto", [("litert", []), ("cpu", NAMED[:1]), ("cpu", []), ("auto", [])]),
        (f"cuda:sm_80,sm_90:114,cpu:{NAMED[0]}", [("cuda", ["sm_80", "sm_90:114"]), ("cpu", NAMED[:1])]),
    ],
)
def test_several_targets_have_commas_between_them(text: str, expected: list[tuple[str, list[str]]]) -> None:
    assert [(name, [one.kind for one in devices]) for name, devices in parse_targets(text)] == expected


@pytest.mark.parametrize(
    "text", ["cpu:", "cpu:generic", "cpu:sse9", "cpu:x86-64-v3,", "cpu,x86-64-v3", "reference:x", ""]
)
def test_wrong_targets_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="expected"):
        list(parse_targets(text))


def test_the_text_with_an_unknown_level_is_named() -> None:
    with pytest.raises(OptionError, match=f"^target is 'cpu:', but there is no instruction set '', .* {NAMED[0]}, "):
        list(parse_targets("cpu:"))


def test_each_level_is_compiled_for_once() -> None:
    assert [device.kind for device in TARGET.devices(f"{NAMED[0]},{NAMED[0]}")] == NAMED[:1]


def test_a_target_that_is_given_twice_is_compiled_for_once(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--target", f"cpu:{NAMED[0]},cpu,cpu", "--target", f"cpu,cpu:{NAMED[0]}"]
    results = _run(capsys, model, *again, "--serialization-dir", str(tmp_path))
    assert [one.get("cpu", "") for one in results] == [NAMED[0], ""]


@pytest.mark.parametrize("level", [name for name, row in LEVELS.items() if row.host])
def test_code_for_other_processors_has_no_inline_assembly(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would end the process."""
    texts: list[str] = []

    def compiled(ir: str, features: str) -> bytes:
        texts.append(ir)
        return machine.compile_object(ir, features)

    monkeypatch.setattr(generated, "is_assembled", lambda features: False)
    monkeypatch.setattr(generated, "compile_object", compiled)
    generated.generate(passes.run(pyramid(Network(np.random.default_rng(0)))), level)
    assert "@wake(" in texts[0] and " asm " not in texts[0]
