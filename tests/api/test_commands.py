"""python -m jitdelegate.warm and python -m jitdelegate.demo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from ai_edge_litert.interpreter import Interpreter

from jitdelegate import GpuDelegate
from jitdelegate.commands import demo, guide_models, warm
from jitdelegate.commands.demo_model import mobilenet_v1
from tests.api import programs, small_models
from tests.child import in_child


def test_warming_compiles_once_and_then_hits(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [model, "--serialization-dir", str(tmp_path / "cache")]
    for expected in ("compiled", "hit"):
        assert warm.main(arguments) == 0
        line = capsys.readouterr().out
        assert line.startswith(f"{model}: {expected}, ")
        assert "1 of 1 operators delegated, runs on cpu" in line
        assert line.count("\n") == 1


def test_warming_for_litert_s_interpreter_leaves_it_nothing_to_compile(model: str, tmp_path: Path) -> None:
    assert warm.main([model, "--litert-interpreter", "--serialization-dir", str(tmp_path)]) == 0
    kept = sorted(tmp_path.glob("*.jitd"))
    delegate = GpuDelegate(serialization_dir=str(tmp_path))
    Interpreter(model, experimental_delegates=[delegate]).allocate_tensors()
    report = delegate.report()
    assert report is not None and report.cache.hit and report.fully_delegated
    assert len(kept) == 2
    assert sorted(tmp_path.glob("*.jitd")) == kept


def test_one_bad_model_stops_no_other(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"nonsense")
    nowhere = str(tmp_path / "nowhere.tflite")
    assert warm.main([str(bad), nowhere, model, "--serialization-dir", str(tmp_path / "cache")]) == 2
    told = capsys.readouterr()
    assert told.out.startswith(f"{model}: compiled")
    assert [line.split(":")[0] for line in told.err.splitlines()] == [str(bad), nowhere]


def test_warming_tells_machines_in_json(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    arguments = [model, "--serialization-dir", str(cache), "--model-token", "net", "--threads", "1", "--json"]
    assert warm.main(arguments) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["state"] == "compiled"
    assert (result["target"], result["delegated"], result["operators"]) == ("cpu", 1, 1)
    assert Path(result["path"]).name.startswith("net-")
    assert Path(result["path"]).stat().st_size == result["bytes"]


def test_a_cache_that_takes_nothing_is_a_failure(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert warm.main([model, "--serialization-dir", model]) == 1
    assert "nothing was stored" in capsys.readouterr().err


def test_a_reader_that_goes_away_keeps_no_model_from_being_warmed(model: str, tmp_path: Path) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(small_models.two_outputs())
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "jitdelegate.warm", model, str(other), "--serialization-dir", str(tmp_path / "c")]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "c").glob("*.jitd"))) == 2


WRONG_ARGUMENTS = [
    (warm, ["--nonsense"]),
    (warm, []),
    (warm, ["m", "--threads", "0"]),
    (warm, ["m", "--threads", "9" * 5000]),
    (warm, ["m", "--target", "tpu"]),
    (warm, ["m", "--serialization-dir", ""]),
    (warm, ["m", "--litert-interpreter", "--target", "cuda:sm_90"]),
    (demo, ["--nonsense"]),
    (demo, ["m", "--threads", "0"]),
    (demo, ["m", "--threads", "many"]),
    (demo, ["m", "--models", "folder"]),
]


@pytest.mark.parametrize(("command", "arguments"), WRONG_ARGUMENTS)
def test_wrong_arguments_exit_with_2(
    command: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        command.main(arguments)
    assert exit.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_warming_works_as_a_command(model: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jitdelegate.warm", model, "--serialization-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith(f"{model}: compiled"), done.stderr) == (0, True, "")


def test_an_interrupted_command_is_one_line_and_exit_status_130(tmp_path: Path) -> None:
    pipe = tmp_path / "model.tflite"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "jitdelegate.warm", str(pipe), "--serialization-dir", str(tmp_path / "cache")]
    warming = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with pipe.open("wb"):  # opens when the command reads the model, which then waits for its bytes
        warming.send_signal(signal.SIGINT)
        told = warming.communicate()[1]
    assert (warming.returncode, told) == (130, "interrupted\n")


@pytest.mark.parametrize("command", ["warm", "analyze", "benchmark", "diff", "demo", "replay"])
def test_a_command_that_is_interrupted_while_it_imports_says_the_same(command: str) -> None:
    done = in_child(programs.interrupted_import, f"jitdelegate.{command}", "model.tflite")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("argv", "name"), [("/bin/jitdelegate-warm", "jitdelegate-warm"), ("x/warm.py", "python -m jitdelegate.warm")]
)
def test_help_names_a_command_as_it_was_called(
    argv: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [argv])
    with pytest.raises(SystemExit):
        warm.main(["--help"])
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


@pytest.mark.parametrize("make", [small_models.convolution, small_models.uncompiled, small_models.quantized])
def test_the_demo_shows_start_up_latency_and_agreement(
    make: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(make())  # type: ignore[operator]
    assert demo.main([str(path), "--threads", "1"]) == 0
    text = capsys.readouterr().out
    for word in ("cold", "warm", "LiteRT", "open", "first run", "latency", "█", "agreement"):
        assert word in text


def test_the_demo_writes_the_models_of_the_guides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "guide"
    assert demo.main(["--models", str(folder)]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(paths) == sorted(folder.iterdir()) and len(paths) == len(guide_models.FILES)
    first = {path: path.read_bytes() for path in paths}
    assert demo.main(["--models", str(folder)]) == 0  # again: the same files
    assert {path: path.read_bytes() for path in paths} == first


def test_the_demo_says_which_file_it_could_not_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert demo.main(["--models", str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"could not write {str(file)!r}: ")


def test_the_demo_reports_a_model_it_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.custom())
    assert demo.main([str(path)]) == 1
    assert "Nonesuch" in capsys.readouterr().err


def test_the_demo_compares_texts_by_element(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main([str(models / "fixtures/string_input_model.bin.tflite"), "--threads", "1"]) == 0
    assert "every byte of every output is the same" in capsys.readouterr().out


def test_the_example_network_is_the_same_every_time_and_compiles(tmp_path: Path) -> None:
    import jitdelegate

    content = mobilenet_v1(size=32, width=0.25)
    assert content == mobilenet_v1(size=32, width=0.25)
    report = jitdelegate.load(content, serialization_dir=False).report()
    assert report.fully_delegated
    assert len(report.operators) == 31
