"""The commands see what is in the cache, and what is wrong with it."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from cache_tools.__main__ import main
from cache_tools.entries import open_entries
from jitdelegate.program.program import Program
from jitdelegate.program.read import verify_weights
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.litter import sweep
from jitdelegate.runtime.cache.model_names import remember_model
from jitdelegate.runtime.cache.prebuilt_store import PrebuiltStore
from jitdelegate.runtime.cache.store import LEAST_SHARED, Store, open_store
from jitdelegate.runtime.cache.tuned import table_content
from jitdelegate.runtime.cache.use_log import Log, append
from jitdelegate.runtime.memory import shared_file
from tests import imports
from tests.api import test_shared_weights
from tests.child import answer_of
from tests.entries import overwrite
from tests.program.test_program import cuda_program, full_program
from tests.runtime.cache.programs import MODEL_A, MODEL_B, key
from tests.runtime.cache.test_prebuilt_store import FURTHER, MAIN, keep


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
    remember_model(open_cache_directory(str(folder)), MODEL_B, "/home/me/two words\n.tflite")
    assert main(["ls", str(folder)]) == 0
    heading, _, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["model", "target", "operators", "size", "age", "used", "entry"]
    shown = [line.split()[-1] for line in lines]
    assert shown == [key(model).digest()[:12] for model in (MODEL_A, MODEL_B)]
    for word in (MODEL_A, "cpu x86-64-v3", "1 of 2", "kB", "now"):
        assert word in lines[0]
    assert lines[1].startswith("two words\\n.tflite  ")


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


def test_an_entry_may_have_its_weights_in_a_prebuilt_folder_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prebuilt, own = str(tmp_path / "prebuilt"), str(tmp_path / "own")
    keep(open_store(prebuilt), key(), MAIN)
    keep(PrebuiltStore([prebuilt], own), FURTHER, MAIN)
    for named, status in ("", 1), (f"{tmp_path / 'nowhere'}:{prebuilt}", 0):
        monkeypatch.setenv("JITDELEGATE_PREBUILT", named)
        assert main(["verify", "--dir", own]) == status
    assert "which has a part of its weights, is missing" in capsys.readouterr().out


def test_no_memory_for_an_entry_makes_it_a_bad_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("cache_tools.entries.open_entry", refuse)
    assert {(entry.trouble, entry.verdict) for entry in open_entries(str(folder))} == {
        ("there is no memory for it", "unread")
    }


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
    lines = capsys.readouterr().out.splitlines()[2:]
    assert "bad: 8 bytes" in lines[0] and MODEL_B in lines[1]


def test_explain_names_the_parts_that_differ(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (str(folder / key(model).entry_name()) for model in (MODEL_A, MODEL_B))
    assert main(["explain", first, second]) == 0
    assert capsys.readouterr().out == f"model: {MODEL_A} | {MODEL_B}\n"
    assert main(["explain", first, first]) == 0
    assert capsys.readouterr().out == "no part differs\n"


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["prune"], ["show"], ["ls", "/nowhere/at/all"], ["show", "."], ["ls", "--yaml"], ["rm"]),
        *(["prune", "--max-size=big"], ["prune", "--max-age=1y"], ["rm", "a", "--all"], ["import", "/nowhere.tar"]),
    ],
)
def test_wrong_arguments_say_so(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.jitd"))


def test_prune_removes_what_was_not_used_for_long_and_then_what_is_too_much(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry_a, entry_b = (key(model).entry_name() for model in (MODEL_A, MODEL_B))
    size, then = (folder / entry_a).stat().st_size, time.time() - 100_000
    os.utime(folder / entry_a, (then, then))
    assert main(["prune", str(folder), "--max-age=2d", f"--max-size={2 * size}"]) == 0
    assert main(["prune", str(folder), "--max-age=1d", "--dry-run"]) == 0
    assert names(folder) == [entry_a, entry_b]
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 entry would be removed")
    assert main(["prune", str(folder), f"--max-size={2 * size - 1}"]) == 0
    assert names(folder) == [entry_b]
    assert main(["prune", str(folder), "--max-age", "0s"]) == 0
    assert names(folder) == []


def test_a_program_that_shares_weights_of_a_removed_one_goes_with_it_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cache.store.LEAST_SHARED", 0)
    monkeypatch.setattr("jitdelegate.program.write.LEAST_PAGES", 0)
    folder, model = tmp_path / "cache", tmp_path / "net.tflite"
    model.write_bytes(test_shared_weights.MODEL)
    with jitdelegate.load(str(model), serialization_dir=str(folder), target="cpu", num_threads=1) as loaded:
        inputs = {"x": test_shared_weights.X}
        before = {signature: loaded.run(inputs, signature) for signature in ("one", "two")}
        first, second = sorted(open_entries(str(folder)), key=lambda entry: entry.variant)
        assert (second.weight_sources, second.model_name) == ([first.name], "net.tflite")
        assert main(["rm", first.name, "--dir", str(folder)]) == 0
        assert names(folder) == [] and "2 entries removed" in capsys.readouterr().out
        for signature, outputs in before.items():
            after = loaded.run(inputs, signature)
            assert all(np.array_equal(after[name], outputs[name]) for name in outputs)


def test_show_finds_the_user_s_entries_by_what_ls_prints(capsys: pytest.CaptureFixture[str]) -> None:
    put(open_store(None), MODEL_A)
    assert main(["ls"]) == 0
    name = capsys.readouterr().out.split()[-1]
    assert main(["show", name]) == 0
    assert f"  model: {MODEL_A}" in capsys.readouterr().out


def test_rm_takes_entries_fingerprints_and_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember_model(open_cache_directory(str(folder)), MODEL_B, "net.tflite")
    assert main(["rm", MODEL_A[:8], "--dir", str(folder)]) == 0
    assert names(folder) == [key(MODEL_B).entry_name()]
    assert main(["rm", "other.tflite", MODEL_B[:7], "--dir", str(folder)]) == 2
    assert capsys.readouterr().err.count("there is no entry of") == 2
    assert main(["rm", "net.tflite", "--dir", str(folder)]) == 0
    assert names(folder) == []


def test_repair_removes_bad_entries_and_leftovers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_weights(folder, MODEL_A)
    stale, fresh = folder / ".x.tmp", folder / ".y.tmp"
    for path in (stale, fresh):
        path.touch()
    os.utime(stale, (0, 0))
    assert main(["repair", str(folder)]) == 0
    assert names(folder) == [key(MODEL_B).entry_name()]
    assert (stale.exists(), fresh.exists()) == (False, True)
    assert "hash of" in capsys.readouterr().out


class Failing:
    """A function that fails for some arguments."""

    def __init__(self, real: Callable[..., Any], error: BaseException, meant: Callable[..., bool]) -> None:
        self._real, self._error, self._meant = real, error, meant

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._meant(*arguments):
            raise self._error
        return self._real(*arguments, **named)


def is_entry(name: Any, *_: Any) -> bool:
    return str(name).endswith((".jitd", ".tuned"))


ERRORS = [
    *(OSError(number, os.strerror(number)) for number in (errno.EIO, errno.EMFILE, errno.ENOMEM, errno.EACCES)),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("call", ["open", "preadv", "stat"])
def test_repair_keeps_what_cannot_be_read_for_a_moment(
    call: str, error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sm_90-132.tuned").write_bytes(table_content({}))
    before = sorted(path.name for path in folder.iterdir())
    failing = Failing(getattr(os, call), error, lambda found, *_: call == "preadv" or is_entry(found))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        assert main(["repair", "--dir", str(folder)]) == 1
    assert sorted(path.name for path in folder.iterdir()) == before
    output = capsys.readouterr()
    assert "0 entries removed" in output.out and output.err
    assert main(["repair", "--dir", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == before


def test_repair_with_few_descriptors_removes_nothing(folder: Path) -> None:
    command = [sys.executable, "-m", "cache_tools", "repair", str(folder)]
    for most in (5, 6):
        script = f"ulimit -n {most}; exec " + " ".join(map(shlex.quote, command))
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert names(folder) == [key(model).entry_name() for model in (MODEL_A, MODEL_B)], (most, done.stderr)


def test_weights_that_change_while_they_are_hashed_are_not_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, program = tmp_path / "programs", full_program()
    program.key, program.weights = key().parts, bytes(2 * LEAST_SHARED)
    assert open_store(str(path)).put(key(), write(program)) == ""
    file = path / key().entry_name()
    time.sleep(0.05)  # a change right after the write would have the same time stamp
    shared = []

    def disturbed(found: Program) -> None:
        shared.append(shared_file(found.weights))
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        overwrite(file, content)
        verify_weights(found)

    monkeypatch.setattr("cache_tools.entries.verify_weights", disturbed)
    (entry,) = open_entries(str(path), verify=True)
    if shared == [None]:
        pytest.skip("this file system does not tell of changes")
    assert entry.verdict == "unread" and "while they were hashed" in entry.trouble
    monkeypatch.undo()
    (entry,) = open_entries(str(path), verify=True)
    assert entry.verdict == "bad"


def test_prune_keeps_what_it_knows_nothing_about(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = Failing(os.stat, OSError(errno.EIO, "Input/output error"), is_entry)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing)
        assert main(["prune", "--max-age=1d", "--max-size=0", "--dir", str(folder)]) == 1
    assert len(names(folder)) == 2
    assert capsys.readouterr().err.count("stays: cannot be read") == 2


@pytest.mark.parametrize(
    "command", [["rm", "--all"], ["prune", "--max-age=0s"], ["repair"]], ids=lambda command: command[0]
)
def test_what_cannot_be_removed_is_not_called_removed(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_weights(folder, MODEL_A)
    entry_a, entry_b = (key(model).entry_name() for model in (MODEL_A, MODEL_B))
    failing = Failing(os.unlink, OSError(errno.EROFS, os.strerror(errno.EROFS)), lambda name: name == entry_a)
    monkeypatch.setattr(os, "unlink", failing)
    assert main([*command, "--json", "--dir", str(folder)]) == 1
    output = capsys.readouterr()
    assert output.err == f"{entry_a} is still there: Read-only file system\n"
    found = {each["name"]: each["removed"] for each in json.loads(output.out)}
    assert found == ({entry_a: False} if command == ["repair"] else {entry_a: False, entry_b: True})
    assert names(folder) == ([entry_a, entry_b] if command == ["repair"] else [entry_a])
    main([*command, "--dir", str(folder)])
    assert "0 entries removed, 0 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["rm", "--all"], ["repair"], ["prune", "--max-age=0s"]])
def test_a_directory_named_like_an_entry_stays_and_is_told(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.jitd").mkdir()
    assert main([*command, "--dir", str(folder)]) == 1
    assert "x.jitd is still there: " in capsys.readouterr().err and (folder / "x.jitd").is_dir()


def test_repair_leaves_an_entry_that_was_replaced_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_weights(folder, MODEL_A)
    good = write(full_program_of(MODEL_A))

    def replaced(directory: CacheDirectory) -> dict[str, str]:
        directory.write(key(MODEL_A).entry_name(), good)
        return sweep(directory)

    monkeypatch.setattr("cache_tools.commands.sweep", replaced)
    assert main(["repair", str(folder)]) == 1
    assert "it was written again meanwhile" in capsys.readouterr().err
    assert main(["verify", str(folder)]) == 0


def test_leftovers_that_cannot_be_removed_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / ".x.tmp").mkdir()
    os.utime(folder / ".x.tmp", (0, 0))
    assert main(["repair", str(folder)]) == 1
    assert ".x.tmp is still there: " in capsys.readouterr().err


ESCAPES = "\x1b]0;mine\x07\x9b31m\u202e"


def test_no_command_prints_control_characters_of_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = full_program()
    program.key = (*key("c" * 32, token=f"t{ESCAPES}").parts, (f"part{ESCAPES}", ESCAPES))
    for port in (*program.inputs, *program.outputs):
        port.name = ESCAPES
    name = "evil.jitd"
    open_cache_directory(str(folder)).write(name, write(program))
    remember_model(open_cache_directory(str(folder)), "c" * 32, f"model{ESCAPES}.tflite")
    where, other = ["--dir", str(folder)], key(MODEL_A).entry_name()
    commands = [["ls"], ["show", name], ["verify"], ["verify", name], ["explain", name, other], ["stats"], ["repair"]]
    commands += [["rm", f"no{ESCAPES}"], ["show", f"no{ESCAPES}"], ["prune", "--max-age=1d"], ["rm", name]]
    for command in commands:
        for json_too in ([], ["--json"]):
            main([*command, *json_too, *where])
            output = capsys.readouterr()
            for line in [*output.out.split("\n"), *output.err.split("\n")]:
                assert line.isprintable(), (command, line)
    assert main(["show", f"no{ESCAPES}", *where]) == 2


def full_program_of(model: str) -> Program:
    program = full_program()
    program.key = key(model).parts
    return program


@pytest.mark.parametrize(
    "command",
    [["ls"], ["stats"], ["verify"], ["repair"], ["prune", "--max-age=1d"], ["rm", "--all", "--dry-run"], ["show"]],
)
def test_every_command_takes_the_folder_the_same_way(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = [key(MODEL_A).entry_name()] if command == ["show"] else []
    assert main([*command, *entry, "--dir", str(folder), "--json"]) == 0
    capsys.readouterr()
    assert main([*command, *entry, "--dir", "/nowhere/at/all"]) == 2
    assert capsys.readouterr().err


def test_names_are_looked_up_in_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (key(model).digest()[:12] for model in (MODEL_A, MODEL_B))
    assert main(["verify", first, "--dir", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{key(MODEL_A).entry_name()}  good"]
    assert main(["explain", first, second, "--dir", str(folder)]) == 0
    assert capsys.readouterr().out == f"model: {MODEL_A} | {MODEL_B}\n"
    assert main(["ls", str(folder), "--dir", str(folder)]) == 2
    assert "two directories are named" in capsys.readouterr().err


def test_stats_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overwrite(folder / key(MODEL_A).entry_name(), b"nonsense")
    assert main(["stats", str(folder), "--json"]) == 1
    known = json.loads(capsys.readouterr().out)
    nbytes = (folder / key(MODEL_B).entry_name()).stat().st_size
    assert (known["entries"], known["models"], known["bad"], known["bytes"]) == (2, 1, 1, nbytes + 8)
    assert known["targets"] == {"cpu x86-64-v3": {"entries": 1, "bytes": nbytes}}
    main(["stats", str(folder)])
    assert "entries    2 of 1 models, 1 of them bad" in capsys.readouterr().out


def test_stats_tell_hits_and_misses_by_their_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(str(folder))
    for each in (MODEL_A, MODEL_B, MODEL_B, "c" * 32):
        store.get(key(each))
    overwrite(folder / key(MODEL_A).entry_name(), b"nonsense")
    store.get(key(MODEL_A))
    main(["stats", str(folder), "--json"])
    known = json.loads(capsys.readouterr().out)
    assert (known["hits"], known["misses"]) == (3, {"absent": 1, "damaged": 1})
    main(["stats", str(folder)])
    out = capsys.readouterr().out
    assert "counted    3 hits, 2 misses (absent 1, damaged 1), 0 evictions since 20" in out


def test_a_use_that_only_the_log_knows_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in folder.glob("*.jitd"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    append(open_cache_directory(str(folder)), Log(uses={key(MODEL_A).entry_name(): time.time()}))
    assert main(["prune", str(folder), "--max-age", "1d"]) == 0
    assert names(folder) == [key(MODEL_A).entry_name()]


def test_an_interruption_is_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cache_tools.commands.open_entries", interrupt)
    assert main(["ls", str(folder)]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_the_users_cache_directory_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    put(open_store(None), MODEL_A)
    assert main(["ls"]) == 0
    assert MODEL_A in capsys.readouterr().out


def test_looking_makes_no_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    assert capsys.readouterr().out == ""
    assert not Path(os.environ["XDG_CACHE_HOME"]).exists()


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "cache_tools", "ls", str(folder)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_commands_import_no_compiler(folder: Path) -> None:
    answer_of(imports.the_cache_tools, "verify", folder)
