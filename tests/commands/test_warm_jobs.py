"""python -m jitdelegate.warm for folders, in several processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import warm
from jitdelegate.commands.fleet import jobs
from jitdelegate.commands.fleet.processes import Processes
from jitdelegate.program.read import read, verify_weights
from jitdelegate.runtime.cache.key import this_cpu
from tests.api import small_models

NAMED = [name for name, row in LEVELS.items() if row.host and not row.only_for]
MAKES = (small_models.convolution, small_models.quantized, small_models.two_signatures, small_models.uncompiled)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models in a folder and in one below it."""
    below = tmp_path / "models" / "below"
    below.mkdir(parents=True)
    for number, make in enumerate(MAKES):
        (below.parent if number % 2 else below).joinpath(f"{number}.tflite").write_bytes(make())
    return below.parent


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.jitd")}


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert warm.main([*map(str, arguments), "--json"]) == 0
    results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return results


def test_a_folder_means_all_models_below_it(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = run(capsys, folder, "--serialization-dir", tmp_path / "cache")
    assert [one["model"] for one in results] == sorted(map(str, folder.rglob("*.tflite")))
    assert len(results) == len(MAKES)


def test_processes_write_the_same_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def backwards(*arguments: Any) -> Iterator[Any]:
        yield from reversed([*jobs.run_jobs(*arguments)])

    monkeypatch.setattr(warm, "run_jobs", backwards)
    both = folder, "--target", f"cpu:{NAMED[0]},{NAMED[1]}"
    alone = run(capsys, *both, "--output", tmp_path / "alone")
    shared = run(capsys, *both, "--jobs", 2, "--output", tmp_path / "shared")
    assert [(one["model"], one["cpu"]) for one in shared] == [(one["model"], one["cpu"]) for one in alone]
    assert {one["state"] for one in shared} == {"compiled"}
    assert files(tmp_path / "shared") == files(tmp_path / "alone")
    assert len(shared) == 2 * len(MAKES)


def test_this_machine_s_own_programs_are_compiled_in_processes_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(capsys, folder, "--target", "cpu", "--jobs", "auto", "--serialization-dir", tmp_path)
    assert {one["state"] for one in results} == {"compiled"}
    assert run(capsys, folder, "--target", "cpu", "--check", "--serialization-dir", tmp_path)


def test_a_lack_of_memory_leaves_fewer_processes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = list[int]()
    monkeypatch.setattr(warm, "allowed_workers", lambda models: 1)
    monkeypatch.setattr(warm, "Processes", lambda count: counts.append(count) or Processes(count))
    assert warm.main([str(folder), "--target", f"cpu:{NAMED[0]}", "--jobs", "3", "--output", str(tmp_path / "p")]) == 0
    assert capsys.readouterr().err == "1 of 3 processes compile, since the memory allows no more\n"
    assert counts == [1]


def test_a_bad_model_stops_no_other_process(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.tflite").write_bytes(b"nonsense")
    arguments = [str(folder), "--target", f"cpu:{NAMED[0]}", "--jobs", "2", "--output", str(tmp_path / "programs")]
    assert warm.main(arguments) == 1
    told = capsys.readouterr()
    lines = [line for line in told.err.splitlines() if " processes compile" not in line]  # where memory is short
    assert len(lines) == 1 and lines[0].startswith(f"{folder / 'bad.tflite'} for {NAMED[0]}: ")
    assert told.out.count(": compiled, ") == len(MAKES)


def test_a_folder_has_the_same_bytes_wherever_it_is_made(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For CPUs and GPUs together, whatever this machine's CPU offers."""
    pytest.importorskip("numba_cuda")
    arguments = model, "--target", f"cpu:{','.join(NAMED)},cuda:sm_80,sm_90", "--output"
    results = run(capsys, *arguments, tmp_path / "here")
    monkeypatch.setattr("jitdelegate.targets.host.levels", lambda: ("generic",))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {5})
    run(capsys, *arguments, tmp_path / "there")
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert len(files(tmp_path / "here")) == len(NAMED) + 2
    for one in results:
        program = read(Path(one["path"]).read_bytes())
        verify_weights(program)
        if "cpu" in one:
            assert program.part("machine").split()[1] == LEVELS[one["cpu"]].host
        else:
            assert (program.features, program.part("machine")) == (one["gpu"], this_cpu())


def test_ctrl_c_says_what_is_done(model: str, tmp_path: Path) -> None:
    pipe = tmp_path / "waits.tflite"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "jitdelegate.warm", model, str(pipe), "--jobs", "2"]
    command += ["--target", f"cpu:{NAMED[0]}", "--output", str(tmp_path / "programs")]
    warming = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert warming.stdout is not None
    assert warming.stdout.readline().startswith(f"{model}: compiled, ")
    os.killpg(warming.pid, signal.SIGINT)  # as a terminal does
    out, err = warming.communicate(timeout=60)
    assert (warming.returncode, out, err) == (130, "", "1 of 2 jobs were done\ninterrupted\n")
    assert len([*(tmp_path / "programs").glob("*.jitd")]) == 1
    deadline = time.monotonic() + 10
    while _living(warming.pid):  # the helper of `multiprocessing` ends a little later than all others
        assert time.monotonic() < deadline, "a worker is left"


def _living(group: int) -> list[int]:
    """Processes of a group that have not ended."""
    living = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, its_group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has ended meanwhile
        if int(its_group) == group and state != "Z":
            living.append(int(process.name))
    return living


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "-1"], "expected a number of processes or auto"),
        (["--jobs", "2", "--dask", "local"], "not allowed with"),
        (["--dask", "local"], "--dask and --ray compile for --target"),
        (["--ray", "--target", "cpu"], "--dask and --ray compile for --target"),
        (["--dask", "local", "--check", "--target", f"cpu:{NAMED[0]}"], "--check reads the cache here"),
    ],
)
def test_what_does_not_go_together_is_refused(
    model: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        warm.main([model, *arguments])
    assert exit.value.code == 2 and words in capsys.readouterr().err


def test_a_folder_without_models_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        warm.main([str(tmp_path)])
    assert exit.value.code == 2 and "the folders have no .tflite file" in capsys.readouterr().err
