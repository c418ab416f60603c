"""Listed wheels are trusted, others probed once, and what the probe said is remembered."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

import ai_edge_litert
import pytest
from ai_edge_litert.interpreter import Interpreter

from jitdelegate.engine.litert_delegate import callbacks, check, delegation, trust
from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.litert_layout import LAYOUT, Layout, Structure
from tests.engine.litert_delegate.clients import NumpyClient, chain, delegated, expected, numbers, run, same

DEADLY = LAYOUT.altered(
    context=Structure(
        0,
        {**LAYOUT.context.fields, "GetNodeAndRegistration": (64, 8), "ReplaceNodeSubsetsWithDelegateKernels": (56, 8)},
    )
)
"""Calls the wrong function: nothing can be noticed before it is too late."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Nothing is remembered in this process."""
    trust.forget()


@pytest.fixture
def directory(tmp_path: Path) -> CacheDirectory:
    return open_cache_directory(str(tmp_path / "cache"))


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the installed wheel were a later one."""
    monkeypatch.setattr(trust, "VERIFIED", ("1.0.0",))


def asked(directory: CacheDirectory | None, layout: Layout = LAYOUT) -> tuple[str, int]:
    """The answer of a process that knows nothing yet, and how many probes it took."""
    trust.forget()
    before = trust.probes
    return trust.refusal(directory, layout), trust.probes - before


def test_a_listed_wheel_needs_no_probe(directory: CacheDirectory) -> None:
    assert asked(directory) == ("", 0)
    assert directory.names() == []


def test_an_unlisted_wheel_is_probed_once(directory: CacheDirectory, unlisted: None) -> None:
    assert asked(directory) == ("", 1)
    (name,) = directory.names()
    assert stat.S_IMODE(directory.stat(name).st_mode) == 0o600
    assert asked(directory) == ("", 0)


def test_without_a_cache_a_process_probes_once(unlisted: None) -> None:
    assert asked(None) == ("", 1)
    before = trust.probes
    assert (trust.refusal(None), trust.probes) == ("", before)
    assert asked(None) == ("", 1)


def test_a_refusal_is_remembered_with_its_reason(directory: CacheDirectory) -> None:
    reason = "the probe of LiteRT's structures died of signal 11"
    assert asked(directory, DEADLY) == (reason, 1)
    assert asked(directory, DEADLY) == (reason, 0)
    assert asked(directory) == ("", 0)


def test_a_change_that_a_check_notices_says_which(directory: CacheDirectory) -> None:
    wider = LAYOUT.altered(tensor=Structure(120, LAYOUT.tensor.fields))
    reason, probes = asked(directory, wider)
    assert probes == 1 and "the probe of LiteRT's structures answered: " in reason and "tensor" in reason


@pytest.mark.parametrize("damage", [b"", b"\0", b"accepted", b"0" * 32 + b"\n"])
def test_a_damaged_verdict_is_asked_for_again(directory: CacheDirectory, unlisted: None, damage: bytes) -> None:
    asked(directory)
    directory.write(directory.names()[0], damage)
    assert asked(directory) == ("", 1)
    assert asked(directory) == ("", 0)


def test_a_verdict_that_others_may_write_is_asked_for_again(directory: CacheDirectory, unlisted: None) -> None:
    asked(directory)
    os.chmod(Path(directory.path) / directory.names()[0], 0o666)
    assert asked(directory) == ("", 1)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder with small files in the place of LiteRT's libraries, and the wheel's record of them."""
    folder = tmp_path / "ai_edge_litert"
    folder.mkdir()
    (folder / "libpywrap_litert_common.so").write_bytes(b"1234")
    (tmp_path / "ai_edge_litert-2.3.0.dist-info").mkdir()
    record = "ai_edge_litert/libpywrap_litert_common.so,sha256=x,4\nai_edge_litert/__init__.py,sha256=y,9\n"
    (tmp_path / "ai_edge_litert-2.3.0.dist-info" / "RECORD").write_text(record)
    monkeypatch.setattr(ai_edge_litert, "__path__", [str(folder)])
    monkeypatch.setattr(trust, "probe", lambda folder, layout: ("probed", True))
    return folder / "libpywrap_litert_common.so"


def test_a_library_that_is_not_the_wheel_s_is_probed(copied: Path) -> None:
    assert asked(None)[0] == ""
    copied.write_bytes(b"12345")
    assert asked(None)[0] == "probed"


def test_a_wheel_without_record_is_probed(copied: Path) -> None:
    shutil.rmtree(copied.parents[1] / "ai_edge_litert-2.3.0.dist-info")
    assert asked(None)[0] == "probed"


@pytest.mark.parametrize("change", ["size", "time", "inode"])
def test_another_library_is_another_question(
    directory: CacheDirectory, copied: Path, unlisted: None, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    assert asked(directory)[0] == "probed"
    monkeypatch.setattr(trust, "probe", lambda folder, layout: ("probed again", True))
    assert asked(directory)[0] == "probed"
    found = copied.stat()
    if change == "size":
        copied.write_bytes(b"12345")
        os.utime(copied, ns=(found.st_mtime_ns, found.st_mtime_ns))
    elif change == "time":
        os.utime(copied, ns=(found.st_mtime_ns + 1, found.st_mtime_ns + 1))
    else:
        other = copied.with_name("other")
        other.write_bytes(b"1234")
        os.utime(other, ns=(found.st_mtime_ns, found.st_mtime_ns))
        other.replace(copied)
    assert asked(directory)[0] == "probed again"


def python(tmp_path: Path, body: str) -> str:
    """A program in Python's place."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o700)
    return str(program)


ENDINGS = {
    "exec sleep 60": "did not end within 0.5 s",
    "kill -9 $$": "died of signal 9",
    "exit 3": "answered: nothing, and status 3",
    "echo accepted; exit 1": "answered: accepted",
    "echo accepted; echo no": "answered: no",
}


@pytest.mark.parametrize("body", ENDINGS)
def test_every_other_end_of_the_probe_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unlisted: None, directory: CacheDirectory, body: str
) -> None:
    monkeypatch.setattr(trust, "LONGEST_PROBE", 0.5)
    monkeypatch.setattr(sys, "executable", python(tmp_path, body))
    reason, probes = asked(directory)
    assert ENDINGS[body] in reason and probes == 1
    passing = "sleep" in body or "kill" in body  # a busy machine does the same
    assert asked(directory)[1] == passing


@pytest.mark.parametrize("executable", ["", "/nonexistent/python"])
def test_without_python_there_is_no_probe(
    monkeypatch: pytest.MonkeyPatch, unlisted: None, directory: CacheDirectory, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert "the probe of LiteRT's structures" in asked(directory)[0]
    assert directory.names() == []


class Uname:
    """What os.uname answers elsewhere."""

    machine = "riscv64"


ELSEWHERE = {
    "darwin on ": lambda patch: patch.setattr(sys, "platform", "darwin"),
    "linux on riscv64": lambda patch: patch.setattr(os, "uname", lambda: Uname),
    "with pypy": lambda patch: patch.setattr(sys.implementation, "name", "pypy"),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_other_platforms_are_refused(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    ELSEWHERE[what](monkeypatch)
    reason, probes = asked(None)
    assert what in reason and "64-bit Linux on x86_64 and aarch64" in reason and probes == 0


@pytest.mark.parametrize("what", ELSEWHERE)
def test_on_other_platforms_no_machine_code_is_made(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """LiteRT calls `Prepare` before the delegate can refuse anything, so that must be no other processor's code."""
    content, x = chain(2), numbers((2, 3))
    client = NumpyClient(content)
    monkeypatch.setattr(callbacks, "_callbacks", {})
    monkeypatch.setattr(callbacks, "load", lambda *routines: pytest.fail("machine code"))
    with monkeypatch.context() as patch:
        ELSEWHERE[what](patch)
        delegate = NativeDelegate(client)
    interpreter = Interpreter(model_content=content, experimental_delegates=[delegate])
    same(run(interpreter, x), expected(content, x))
    (warning,) = client.warnings
    assert warning.startswith("jitdelegate stays out of this interpreter: LiteRT's structures are known on 64-bit")
    assert what in warning and not client.opened


def test_without_litert_the_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    assert "LiteRT's libraries cannot be found" in asked(None)[0]


def test_a_refused_litert_runs_without_the_delegate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation, "refusal", lambda directory, layout: "a reason")
    content, x = chain(2), numbers((2, 3))
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    same(run(interpreter, x), expected(content, x))
    assert client.warnings == ["jitdelegate stays out of this interpreter: a reason"] and not client.opened


def test_an_interpreter_of_another_library_runs_without_the_delegate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation, "libraries", lambda folder: ("/opt/ai_edge_litert/libpywrap_litert_common.so",))
    content, x = chain(2), numbers((2, 3))
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    same(run(interpreter, x), expected(content, x))
    assert len(client.warnings) == 1 and not client.opened
    assert "expected one of the installed ai_edge_litert" in client.warnings[0]


def test_a_context_that_is_not_there_is_a_doubt() -> None:
    with pytest.raises(check.Doubt, match="TfLiteContext cannot be read"):
        check.check_functions(64, LAYOUT, ())
    with pytest.raises(check.Doubt, match="None tensors"):
        check.read_tensors(64, LAYOUT)
