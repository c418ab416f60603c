"""The option `tuning`: keys, reports, and whole starts on the stub driver with times that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from cache_tools.__main__ import main as cache_tools
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import warm
from jitdelegate.engine.load_path import find_key
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.key import stored_key
from jitdelegate.runtime.cache.tuned import read_table, tuned_digest
from jitdelegate.runtime.cuda import toolchain as toolchain_module
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.targets.cuda.stopwatch import TIMES
from jitdelegate.targets.cuda.target import CudaDevice
from jitdelegate.targets.cuda.tuning import ROUNDS
from jitdelegate.tflite.write import ModelBuilder
from tests.api.test_cuda import gpu_of
from tests.gpu.stub.compiler import Compiler, install_compiler, scale_and_shift_model
from tests.gpu.stub.install import install
from tests.gpu.stub.library import Library

TUNED = "0123456789abcdef"
FEW = 2
"""Candidates that are measured, so that little is compiled."""


def test_only_a_gpu_that_is_here_has_keys_with_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_of(monkeypatch)
    options = DelegateOptions(tuning="full", target="cuda")
    here = CudaDevice("sm_90").target.find_device(options)
    own, usual = find_key(here, options, "0"), find_key(here, DelegateOptions(), "0")
    assert (own.part("tuning"), own.part("tuned"), usual.part("tuning")) == ("full", "", "")
    assert own.without("tuning", "tuned").parts == usual.parts == find_key(CudaDevice("sm_90"), options, "0").parts
    assert own.entry_name() != usual.entry_name()


def test_what_tuning_found_is_in_the_key_and_names_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_of(monkeypatch)
    options = DelegateOptions(tuning="fast", target="cuda")
    key = find_key(CudaDevice("sm_90").target.find_device(options), options, "0")
    settled = key.tuned([TUNED])
    assert settled.part("tuned") == TUNED
    assert settled.entry_name() == key.entry_name() == stored_key(settled.parts).entry_name()
    assert key.difference(settled.parts) is None
    assert key.tuned([TUNED, "f"]).part("tuned") not in ("", TUNED)
    assert key.without("tuning").tuned([TUNED]).parts == key.without("tuning").parts


def load(folder: Path, **options: Any) -> jitdelegate.Model:
    return jitdelegate.load(scale_and_shift_model(), serialization_dir=folder, **options)


def test_where_nothing_can_compile_an_untuned_program_runs_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_of(monkeypatch)
    install_compiler(monkeypatch)
    load(tmp_path / "cache").close()
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    with load(tmp_path / "cache", tuning="fast") as model:
        report = model.report()
    assert (report.cache.hit, report.notes) == (
        True,
        (
            "the program computes in float32, and is not tuned or measured: jitdelegate's extra cuda compiles one"
            " as asked for",
        ),
    )


def test_without_a_gpu_tuning_is_an_option_that_changes_nothing(tmp_path: Path) -> None:
    with jitdelegate.load(scale_and_shift_model(), target="cpu", serialization_dir=tmp_path, tuning="full") as model:
        assert model.report().ignored_options == ("tuning",)


def test_warm_says_that_it_does_not_tune_for_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler: Compiler = install_compiler(monkeypatch)
    model = tmp_path / "model.tflite"
    model.write_bytes(scale_and_shift_model())
    arguments = [str(model), "--serialization-dir", str(tmp_path / "cache"), "--target", "cuda:sm_90"]
    assert warm.main([*arguments, "--tuning", "full"]) == 0
    assert "not tuned, since kernels are measured on this machine's GPU only" in capsys.readouterr().err
    assert warm.main(arguments) == 0
    assert capsys.readouterr().err == ""
    assert len(compiler.keys) == 1


def fully_connected() -> bytes:
    random = np.random.default_rng(0)
    model = ModelBuilder()
    weights = model.constant(random.uniform(-1, 1, (32, 64)).astype(np.float32))
    model.output(model.op("FULLY_CONNECTED", [model.input((1, 64), name="x"), weights], (1, 32), name="y"))
    return model.finish()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Library:
    """A GPU whose kernels compute nothing; the stub learns what they take from the programs that are opened."""
    stub = install(monkeypatch, Library(lambda *arguments: None, {}))
    opened = CudaSession._open

    def learn(session: CudaSession, *arguments: Any, **named: Any) -> None:
        program = session.program
        stub.kinds |= {program.kernels[launch.kernel].name: launch.kinds for launch in program.launches}  # type: ignore[operator, misc]
        opened(session, *arguments, **named)

    monkeypatch.setattr(CudaSession, "_open", learn)
    return stub


def test_a_tuned_start_measures_once_takes_the_winner_and_keeps_it(
    gpu: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.targets.cuda.tuning.FEW", FEW)
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    folder = tmp_path / "cache"
    with jitdelegate.load(fully_connected(), target="cuda", serialization_dir=folder) as model:
        usual = Path(model.report().cache.path)
    (slow,) = (kernel.name for kernel in read(usual.read_bytes()).kernels)
    gpu.milliseconds[slow] = 1.0  # what everything takes, once more

    def tuned(name: str = "fast") -> tuple[str, Path]:
        before = gpu.launches.total()
        with jitdelegate.load(fully_connected(), target="cuda", serialization_dir=folder, tuning=name) as model:
            report = model.report()
        launches.append(gpu.launches.total() - before)
        assert report.cache.write_failure == ""
        return report.cache.outcome, Path(report.cache.path)

    launches: list[int] = []
    outcome, path = tuned()
    program = read(path.read_bytes())
    assert outcome == "miss" and program.kernels[0].name != slow
    assert launches == [FEW * (ROUNDS + 1) * TIMES]  # one round more, which loads the code
    table = read_table(open_cache_directory(str(folder)), "sm_90:132")
    ((problem, winner),) = table.items()
    assert problem.startswith("contract_gemv float32,float32,float32 M1 N32 K64 ")
    assert program.part("tuned") == tuned_digest({problem: winner.candidate})
    assert (winner.before, winner.microseconds) == (2050.0, 1050.0)  # with an event per TIMES
    assert tuned() == ("hit", path)
    path.unlink()
    assert tuned() == ("miss", path)
    assert launches[1:] == [0, 0]  # the table has the winner
    assert read(path.read_bytes()).key == program.key
    assert cache_tools(["explain", str(usual), str(path)]) == 0
    assert capsys.readouterr().out == f"tuning: None | fast\ntuned: None | {program.part('tuned')}\n"
    (folder / "sm_90-132.tuned").write_bytes(b"damage")
    path.unlink()
    assert tuned() == ("miss", path)
    assert launches[3] == launches[0] and read_table(open_cache_directory(str(folder)), "sm_90:132")
    assert gpu.leaks() == []
