"""For people who look for a reason: JITDELEGATE_DEBUG, JITDELEGATE_DUMP, and kernels of a dump that run alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from jitdelegate.commands import entrance, replay
from jitdelegate.compiler.trace import VARIABLE
from jitdelegate.errors import OptionError
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import programs, small_models
from tests.child import in_child

HEADINGS = {
    1: "0 cpu     CONV_2D",
    2: "jitdelegate: time per kernel",
    3: "by Contract(",
    4: "define ",
}
"""What appears on stderr from each level on."""


def told(act: Callable[[str], None], level: str, tmp_path: Path) -> str:
    """What a process of this level writes to stderr."""
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    done = in_child(act, path, JITDELEGATE_DEBUG=level)
    assert done.stdout == ""
    assert (done.returncode == 0) == (level in ("", "0", "1", "2", "3", "4"))
    return done.stderr


@pytest.mark.parametrize("level", range(5))
def test_each_level_tells_more_on_stderr(level: int, tmp_path: Path) -> None:
    text = told(programs.load_and_run, str(level), tmp_path)
    assert {each: heading in text for each, heading in HEADINGS.items()} == {each: each <= level for each in HEADINGS}
    if not level:
        assert text == told(programs.load_and_run, "", tmp_path) == ""


def test_a_session_that_is_open_at_the_end_tells_its_times_too(tmp_path: Path) -> None:
    assert told(programs.load_run_and_end, "2", tmp_path).count("time per kernel") == 1


@pytest.mark.parametrize("level", ["5", "-1", "all"])
def test_another_level_is_refused(level: str, tmp_path: Path) -> None:
    text = told(programs.load_and_run, level, tmp_path)
    assert f"JITDELEGATE_DEBUG is '{level}', expected one of 0, 1, 2, 3, 4" in text


@pytest.fixture
def dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "new" / "dumps"))
    return tmp_path / "new" / "dumps"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def dense() -> bytes:
    """A graph that two passes change."""
    model = ModelBuilder()
    x = model.input((1, 4), name="x")
    summed = model.op("ADD", [x, model.constant(np.ones((1, 4), np.float32))], (1, 4))
    model.output(model.op("TANH", [summed], (1, 4), name="y"))
    return model.finish()


def test_a_program_has_a_folder_with_the_passes_that_changed_it(dumps: Path) -> None:
    jitdelegate.load(dense(), serialization_dir=False)
    (folder,) = dumps.iterdir()
    assert folder.name.startswith("00_cpu_")
    assert names(folder) == [
        *("00_key.txt", "01_read.txt", "02_lower.txt", "03_fuse_elementwise.txt"),
        *("04_plan.txt", "05_kernels.txt", "06_assembly.txt", "kernels"),
    ]
    graphs = [(folder / name).read_text() for name in names(folder)[1:4]]
    assert all("return %" in text for text in graphs) and len(set(graphs)) == len(graphs)
    assert "target: cpu" in (folder / "00_key.txt").read_text()
    assert names(folder / "kernels") == ["00_ADD.npz"]  # TANH is its epilogue


def test_programs_of_one_process_have_folders_of_their_own(dumps: Path) -> None:
    for _ in range(2):
        jitdelegate.load(dense(), serialization_dir=False)
    jitdelegate.load(small_models.convolution(), serialization_dir=False)
    assert [name[:7] for name in names(dumps)] == ["00_cpu_", "01_cpu_", "02_cpu_"]
    assert len({name[3:] for name in names(dumps)}) == 2


@pytest.mark.parametrize("loader", ["delegate", "partitions"])
def test_partitions_have_folders_with_unlike_names_and_their_graphs(
    loader: str, dumps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loader == "delegate":
        partial.skip_without_host()
    partial.choose_loader(monkeypatch, loader)
    jitdelegate.load(partial.alternating(), options=partial.options())
    folder = next(path for path in sorted(dumps.iterdir()) if any(path.glob("partition_*")))
    parts = sorted(folder.glob("partition_*"))
    assert [part.name for part in parts] == [
        *("partition_00_nodes_0-1", "partition_01_nodes_3-3", "partition_02_nodes_5-5")
    ]
    for part in parts:
        assert names(part)[:2] == ["00_extract.txt", "01_lower.txt"]
        assert names(part)[-1] == "kernels" and any((part / "kernels").iterdir())
        assert all((part / name).read_text() for name in names(part)[:-1])
    assert "NEG" in (folder / "01_read.txt").read_text()


def test_nothing_is_written_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    jitdelegate.load(dense(), serialization_dir=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_place_that_takes_no_files_is_refused_by_the_variable_s_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / name))
    with pytest.raises(OptionError, match=r"JITDELEGATE_DUMP is .*, expected a folder"):
        jitdelegate.load(small_models.convolution(), serialization_dir=False)


@pytest.fixture
def kernels(dumps: Path) -> Path:
    """The folder of a dump's kernels."""
    jitdelegate.load(small_models.convolution(), serialization_dir=False)
    return next(dumps.glob("*/kernels"))


@pytest.mark.parametrize("features", ["auto", "generic"])
def test_a_kernel_of_a_dump_runs_alone_and_answers_as_numpy(
    features: str, kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--runs", "3", "--cpu-features", features, "--threads", "2"]
    for path in (kernels, kernels / "00_CONV_2D.npz"):
        assert replay.main([str(path), *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"{kernels / '00_CONV_2D.npz'}: same, largest error ")
        assert any("CONV_2D" in line for line in lines) and any(" us" in line and "Contract" in line for line in lines)


def test_a_kernel_that_answers_otherwise_is_told(
    kernels: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = replay.run_graph
    monkeypatch.setattr(replay, "run_graph", lambda graph, feeds: [1.01 * each for each in real(graph, feeds)])
    assert replay.main([str(kernels)]) == 1
    assert "DIFFERENT, largest error" in capsys.readouterr().out


def test_a_file_that_is_no_kernel_and_an_empty_folder_fail(
    tmp_path: Path, kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"text")
    assert replay.main([str(bad), str(kernels)]) == 1
    answer = capsys.readouterr()
    assert "bad.npz holds no graph" in answer.err and "same" in answer.out
    (tmp_path / "empty").mkdir()
    assert replay.main([str(tmp_path / "empty")]) == 2
    with pytest.raises(SystemExit) as ended:
        replay.main([str(kernels), "--threads", "0"])
    assert ended.value.code == 2


def test_the_command_is_in_the_overview(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jitdelegate.replay", str(kernels)], capture_output=True, text=True, check=True
    )
    assert ": same, largest error" in done.stdout
    assert entrance.main([]) == 0
    assert "jitdelegate.replay" in capsys.readouterr().out


def test_the_reference_replays_itself(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(kernels), "--target", "reference", "--runs", "1"]) == 0
    assert "largest error 0.0e+00" in capsys.readouterr().out


def test_seeds_give_inputs_that_can_be_had_again(kernels: Path) -> None:
    options = jitdelegate.DelegateOptions(target="cpu")
    path = kernels / "00_CONV_2D.npz"
    first, again, other = (replay.replay(path, options, seed=seed).error for seed in (1, 1, 2))
    assert first == again
    assert first != other or first == 0
