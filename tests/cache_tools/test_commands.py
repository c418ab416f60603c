"""The commands see what is in the cache, and what is wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cache_tools.__main__ import main
from cache_tools.entries import open_entries
from jitdelegate.cache.entry import LEAST_SHARED
from jitdelegate.cache.store import Store, open_store
from jitdelegate.program.write import write
from tests.cache.programs import MODEL_A, MODEL_B, key
from tests.entries import overwrite
from tests.program.test_program import cuda_program, full_program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with entries of two models."""
    path = tmp_path / "programs"
    store = open_store(str(path))
    for model in (MODEL_A, MODEL_B):
        put(store, model)
    return path


def put(store: Store, model: str) -> None:
    program = full_program()
    program.key = key(model).parts
    assert store.put(key(model), write(program)) == ""


def break_weights(folder: Path, model: str) -> None:
    path = folder / key(model).entry_name()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    overwrite(path, content)


def test_ls_prints_one_line_per_entry(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [key(MODEL_A).entry_name(), key(MODEL_B).entry_name()]
    for word in ("bytes", "cpu x86-64-v3", MODEL_A, "1 of 2 ops"):
        assert word in lines[0]


@pytest.mark.parametrize(
    ("argv", "name"), [("/bin/jitdelegate-cache", "jitdelegate-cache"), ("x/__main__.py", "python -m cache_tools")]
)
def test_help_names_the_command_as_it_was_called(
    argv: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [argv])
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


def test_entries_keep_no_weights(tmp_path: Path) -> None:
    path, weights = tmp_path / "programs", bytes(2 * LEAST_SHARED)
    program = full_program()
    program.key, program.weights = key().parts, weights
    assert open_store(str(path)).put(key(), write(program)) == ""
    before = len(os.listdir("/dev/fd"))
    (entry,) = open_entries(str(path), verify=True)
    assert len(os.listdir("/dev/fd")) == before
    assert entry.program is not None and not len(entry.program.weights)
    assert entry.details()["segments"]["weights"] == len(weights)


def test_no_memory_for_an_entry_makes_it_a_bad_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("cache_tools.entries.open_entry", refuse)
    assert {entry.trouble for entry in open_entries(str(folder))} == {"there is no memory for it"}


def test_ls_prints_json_for_machines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--json", str(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["model"] for entry in found] == [MODEL_A, MODEL_B]
    assert found[0]["bytes"] == (folder / key(MODEL_A).entry_name()).stat().st_size


def test_show_prints_key_tensors_operators_kernels_and_segments(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(folder / key().entry_name())]) == 0
    page = capsys.readouterr().out
    for text in (
        f"  model: {MODEL_A}",
        "  toolchain: llvmlite 1",
        "  image: float32[1, 2, 2, 3]",
        "litert: custom ops are not compiled",
        "cpu in kernel 0, integer",
        "  conv_0: Contract, 8 chunks",
        "  code: 5000 bytes",
    ):
        assert text in page


def test_show_prints_what_a_gpu_launches_and_what_its_kernels_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, known = open_store(str(tmp_path / "programs")), key()
    program = cuda_program()
    program.key = known.parts
    assert store.put(known, write(program)) == ""
    assert main(["show", str(tmp_path / "programs" / known.entry_name())]) == 0
    page = capsys.readouterr().out
    for text in (
        "  contract_0: Contract, 2 launches, 128 threads, 96 registers, 8 bytes spilled, 16 bytes of stack,"
        " 4096 bytes shared",
        "  0: grid 7x2x3, block 32x4x1, 49152 bytes shared: a256 w100 i-5 f1065353216",
        "  1: grid 1x1x1",
    ):
        assert text in page


def test_show_prints_json_for_machines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--json", str(folder / key().entry_name())]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["operators"][1]["reason"] == "custom ops are not compiled"
    assert found["segments"] == {"code": 5000, "weights": 5120}


def test_verify_finds_good_entries_good(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["good", "good"]


def test_verify_reads_every_byte_and_goes_on_after_a_bad_entry(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    break_weights(folder, MODEL_A)
    assert main(["ls", str(folder)]) == 0
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 1
    bad, good = capsys.readouterr().out.splitlines()
    assert "weights: hash of" in bad and good.endswith("good")
    assert main(["verify", "--json", str(folder / key(MODEL_B).entry_name())]) == 0
    assert json.loads(capsys.readouterr().out)[0]["good"] is True


def test_a_bad_entry_stops_no_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overwrite(folder / key(MODEL_A).entry_name(), b"nonsense")
    assert main(["ls", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "bad: 8 bytes" in lines[0] and MODEL_B in lines[1]


def test_explain_names_the_parts_that_differ(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (str(folder / key(model).entry_name()) for model in (MODEL_A, MODEL_B))
    assert main(["explain", first, second]) == 0
    assert capsys.readouterr().out == f"model: {MODEL_A} | {MODEL_B}\n"
    assert main(["explain", first, first]) == 0
    assert capsys.readouterr().out == "no part differs\n"


@pytest.mark.parametrize(
    "arguments", [[], ["prune"], ["show"], ["ls", "/nowhere/at/all"], ["show", "."], ["ls", "--yaml"]]
)
def test_wrong_arguments_say_so(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err


def test_the_users_cache_directory_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    put(open_store(None), MODEL_A)
    assert main(["ls"]) == 0
    assert MODEL_A in capsys.readouterr().out


def test_looking_makes_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "xdg-cache").exists()


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "cache_tools", "ls", str(folder)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_commands_import_no_compiler(folder: Path) -> None:
    script = (
        "import sys; from cache_tools.__main__ import main; status = main(sys.argv[1:])\n"
        "assert not {'numpy', 'llvmlite', 'numba', 'flatbuffers'} & set(sys.modules)\n"
        "sys.exit(status)"
    )
    subprocess.run([sys.executable, "-c", script, "verify", str(folder)], check=True, capture_output=True)
