"""Entries of a remote: fetched once, checked before they get a name, and never a reason for an error."""

from __future__ import annotations

import http.server
import os
import random
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import jitdelegate
from cache_tools.__main__ import main
from cache_tools.signer import read_signer
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import timed_start
from jitdelegate.commands.measurement.starts import _plain as measured_options
from jitdelegate.errors import CacheWarning
from jitdelegate.program.program import Program
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cache import remote, remote_files, trouble
from jitdelegate.runtime.cache.directory import CacheDirectory
from jitdelegate.runtime.cache.key import Key
from jitdelegate.runtime.cache.remote import SIGNATURE_SUFFIX, entry_statement, signature_file
from jitdelegate.runtime.cache.statements import BUNDLE, ENTRY, Member, Statement
from jitdelegate.runtime.cache.store import Lookup, Store, counts, open_store
from tests.api import small_models, test_shared_weights
from tests.runtime.cache.programs import MODEL_A, MODEL_B, Compiler, content, key
from tests.signing_keys import Keys, write_keys

pytest.importorskip("cryptography", reason="remotes need the extra `remote`")
fsspec: Any = pytest.importorskip("fsspec", reason="remotes need the extra `remote`")


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_told", set())
    monkeypatch.setattr(remote, "_resting", {})


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return write_keys(tmp_path, "ours", 1)


@pytest.fixture
def there(tmp_path: Path, keys: Keys) -> Path:
    """A folder with the signed entries of two models."""
    store, path = open_store(str(tmp_path / "elsewhere")), tmp_path / "remote"
    for model in (MODEL_A, MODEL_B):
        assert store.put(key(model), content(key(model), bytes(30_000))) == ""
    assert push(tmp_path / "elsewhere", str(path), keys) == 0
    return path


def push(folder: Path, url: str, keys: Keys) -> int:
    return main(["push", url, "--sign", keys.private, "--dir", str(folder)])


def here(tmp_path: Path, url: object, public: str) -> Store:
    """A store in another folder with a remote."""
    return open_store(str(tmp_path / "here"), remote=(str(url), public))


def left(folder: Path) -> list[str]:
    """Entries and temporary files, not the small files about a directory, such as `.models`."""
    return sorted(name for name in os.listdir(folder) if not re.fullmatch(r"\.\w+", name))


def fetched(store: Store, for_key: Key | None = None) -> tuple[Lookup, Compiler]:
    """The answer for a key, and who would have compiled."""
    compiler = Compiler(for_key or key(), bytes(30_000))
    return store.fetch(for_key or key(), compiler), compiler


def assert_compiled(tmp_path: Path, url: object, public: str, told: str, capture: pytest.WarningsRecorder) -> None:
    """Nothing of the remote is taken, its trouble is told once, and the program is compiled."""
    store = here(tmp_path, url, public)
    lookup, compiler = fetched(store)
    assert (lookup.hit, lookup.remote, compiler.calls, counts.remote_hits) == (False, "", 1, 0)
    assert lookup.program is not None and write(lookup.program) == compiler.content
    assert left(tmp_path / "here") == [key().entry_name()]
    for name in left(tmp_path / "here"):
        (tmp_path / "here" / name).unlink()
    fetched(store)
    (warning,) = [str(each.message) for each in capture.list if each.category is CacheWarning]
    assert told in warning and warning.endswith("; programs that are missing here are compiled.")


@pytest.mark.parametrize("scheme", ["memory://remote/programs", "file://{}/pushed", "{}/pushed"])
def test_an_entry_is_fetched_and_is_here_from_then_on(
    scheme: str, tmp_path: Path, there: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    url = scheme.format(tmp_path)
    capsys.readouterr()
    assert [push(tmp_path / "elsewhere", url, keys) for _ in range(2)] == [0, 0]
    assert capsys.readouterr().out.splitlines() == [
        "2 entries written, 0 were there",
        "0 entries written, 2 were there",
    ]
    lookup, compiler = fetched(here(tmp_path, url, keys.public))
    assert (lookup.hit, lookup.remote, compiler.calls) == (True, url, 0)
    assert (tmp_path / "here" / key().entry_name()).read_bytes() == compiler.content
    assert (tmp_path / "here" / key().entry_name()).stat().st_mode & 0o777 == 0o400
    assert left(tmp_path / "here") == [key().entry_name()]
    assert (counts.hits, counts.misses, counts.remote_hits) == (1, {"absent": 1}, 1)
    lookup, _ = fetched(here(tmp_path, "memory://nowhere", keys.public))
    assert (lookup.hit, lookup.remote, counts.remote_hits) == (True, "", 1)


def test_an_entry_that_nobody_pushed_is_compiled(tmp_path: Path, there: Path, keys: Keys) -> None:
    lookup, compiler = fetched(here(tmp_path, there, keys.public), key("c" * 32))
    assert (lookup.hit, compiler.calls, counts.remote_hits) == (False, 1, 0)
    assert trouble._told == set()


class Server:
    """Serves a folder by HTTP on this machine.

    Attributes:
        url: where.
        asked: the paths of requests.
        pause: seconds before an answer.
        drops: seconds between the bytes of an answer.
    """

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        self.pause = self.drops = 0.0
        self.status, self.endless = 200, False
        server = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                time.sleep(server.pause)
                if server.status != 200:
                    self.send_error(server.status)
                elif server.endless:
                    self.send_response(200)
                    self.end_headers()
                    while True:
                        self.wfile.write(b"x" * 65536)
                elif server.drops:
                    self.send_response(200)
                    self.end_headers()
                    for _ in range(100):
                        self.wfile.write(b"x")
                        time.sleep(server.drops)
                else:
                    super().do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the client has gone
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def served(there: Path) -> Iterator[Server]:
    pytest.importorskip("aiohttp", reason="remotes by HTTP need the extra `remote`")
    served = Server(there)
    thread = threading.Thread(target=served.server.serve_forever, daemon=True)
    thread.start()
    yield served
    served.server.shutdown()
    served.server.server_close()
    thread.join()


def test_entries_come_by_http(tmp_path: Path, served: Server, keys: Keys) -> None:
    lookup, compiler = fetched(here(tmp_path, served.url, keys.public))
    assert (lookup.hit, lookup.remote, compiler.calls) == (True, served.url, 0)
    name = key().entry_name()
    assert served.asked == [f"/{name}{SIGNATURE_SUFFIX}", f"/{name}"]


def test_starts_at_the_same_time_download_an_entry_once(tmp_path: Path, served: Server, keys: Keys) -> None:
    served.pause, found = 0.05, []
    starts = [
        threading.Thread(target=lambda: found.append(fetched(here(tmp_path, served.url, keys.public))[0].hit))
        for _ in range(8)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert found == [True] * 8 and len(served.asked) == 2 and counts.remote_hits == 1


def test_a_server_that_hangs_is_left_alone_for_a_while(
    tmp_path: Path, served: Server, keys: Keys, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(remote_files, "LONGEST_ANSWER", 0.2)
    served.pause = 1.0
    assert_compiled(tmp_path, served.url, keys.public, "it did not answer within 0 seconds", recwarn)
    assert len(served.asked) <= 1
    served.pause = 0.0
    fetched(here(tmp_path, served.url, keys.public), key(MODEL_B))
    assert len(served.asked) <= 1
    monkeypatch.setattr(remote, "_resting", {})
    (tmp_path / "here" / key(MODEL_B).entry_name()).unlink()
    lookup, _ = fetched(here(tmp_path, served.url, keys.public), key(MODEL_B))
    assert lookup.remote == served.url


@pytest.mark.parametrize(
    ("fault", "told"),
    [("drops", "it did not answer within"), ("endless", "a file of more than 65536 bytes"), ("status", "500")],
)
def test_a_bad_server_costs_a_bounded_time(
    fault: str,
    told: str,
    tmp_path: Path,
    served: Server,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    if fault == "drops":
        monkeypatch.setattr(remote_files, "LONGEST_ANSWER", 0.3)
    setattr(served, fault, {"drops": 0.05, "endless": True, "status": 500}[fault])
    assert_compiled(tmp_path, served.url, keys.public, told, recwarn)


def test_a_server_that_is_down_is_told(tmp_path: Path, keys: Keys, recwarn: pytest.WarningsRecorder) -> None:
    pytest.importorskip("aiohttp", reason="remotes by HTTP need the extra `remote`")
    assert_compiled(tmp_path, "http://me:secret@127.0.0.1:9", keys.public, "cannot be used: Cannot connect", recwarn)
    assert "secret" not in str(recwarn.list[-1].message)


def forged(statement: bytes, private: str) -> bytes:
    return signature_file(statement, read_signer(private).sign(statement).content())


def listed(data: bytes, name: str = "") -> Member:
    import hashlib

    return Member(name or key().entry_name(), len(data), hashlib.sha256(data).hexdigest())


TOLD = {
    "table": "has another content than the signed one",
    "truncated": "has another content than the signed one",
    "longer": "has another content than the signed one",
    "signature of another entry": "is another entry",
    "signature of two entries": "is about no entry",
    "signature of a path": "is about no entry",
    "another signer": "it is signed by the key",
    "a bundle's statement": "the statement is no jitdelegate entry",
    "no signature line": "is no signature",
    "garbage": "is no signature",
    "garbage in two lines": "the signature cannot be read",
    "large": "a file of more than 65536 bytes",
    "signed garbage": "not a program",
    "a program of another key": "is another entry",
}


@pytest.mark.parametrize("kind", TOLD)
def test_what_was_not_signed_so_is_not_taken(
    kind: str, tmp_path: Path, there: Path, keys: Keys, recwarn: pytest.WarningsRecorder
) -> None:
    entry, signature = there / key().entry_name(), there / f"{key().entry_name()}{SIGNATURE_SUFFIX}"
    if kind == "table":
        program = read(entry.read_bytes())
        program.arena_bytes += 64
        entry.write_bytes(write(program))
    elif kind in ("truncated", "longer"):
        entry.write_bytes(entry.read_bytes()[:-1] if kind == "truncated" else entry.read_bytes() + b"x")
    elif kind == "signature of another entry":
        signature.write_bytes((there / f"{key(MODEL_B).entry_name()}{SIGNATURE_SUFFIX}").read_bytes())
    elif kind.startswith("signature of"):
        name = "../x.jitd" if kind.endswith("path") else ""
        members = (listed(entry.read_bytes(), name),) * (2 if kind.endswith("two entries") else 1)
        signature.write_bytes(forged(Statement(ENTRY, members).content(), keys.private))
    elif kind == "another signer":
        theirs = write_keys(tmp_path, "theirs", 2)
        signature.write_bytes(forged(entry_statement(listed(entry.read_bytes())), theirs.private))
    elif kind == "a bundle's statement":
        statement = Statement(BUNDLE, (listed(entry.read_bytes()),)).content()
        signature.write_bytes(forged(statement, keys.private))
    elif kind == "no signature line":
        signature.write_bytes(signature.read_bytes().partition(b"\n")[0])
    elif kind == "garbage":
        signature.write_bytes(os.urandom(300).replace(b"\n", b""))
    elif kind == "garbage in two lines":
        signature.write_bytes(b"{}\n{}")
    elif kind == "large":
        signature.write_bytes(bytes(1 << 17))
    elif kind == "signed garbage":
        entry.write_bytes(b"hello" * 100)
        signature.write_bytes(forged(entry_statement(listed(entry.read_bytes())), keys.private))
    else:
        entry.write_bytes(content(key("c" * 32)))
        signature.write_bytes(forged(entry_statement(listed(entry.read_bytes())), keys.private))
    assert_compiled(tmp_path, there, keys.public, TOLD[kind], recwarn)


def fuzz(there: Path, folder: Path, keys: Keys, rounds: int, seed: int) -> int:
    """How many damages to a signature or an entry were refused; nothing but the signed entry ever came."""
    draw, good = random.Random(seed), {path: path.read_bytes() for path in there.glob(f"{key().entry_name()}*")}
    refused = 0
    for _ in range(rounds):
        path = draw.choice(sorted(good))
        damaged = bytearray(good[path])
        at = draw.randrange(len(damaged))
        if draw.randrange(3):
            damaged[at] ^= 1 << draw.randrange(8)
        else:
            del damaged[at:]
        path.write_bytes(damaged)
        lookup, compiler = fetched(open_store(str(folder), remote=(str(there), keys.public)))
        assert lookup.program is not None and write(lookup.program) == compiler.content
        assert left(folder) == [key().entry_name()]
        refused += not lookup.remote
        (folder / key().entry_name()).unlink()
        path.write_bytes(good[path])
    return refused


def test_every_damage_at_a_remote_is_found(tmp_path: Path, there: Path, keys: Keys) -> None:
    assert fuzz(there, tmp_path / "here", keys, rounds=60, seed=7) == 60
    assert fetched(here(tmp_path, there, keys.public))[0].remote == str(there)


def test_a_signature_without_its_entry_is_none(tmp_path: Path, there: Path, keys: Keys) -> None:
    (there / key().entry_name()).unlink()
    lookup, compiler = fetched(here(tmp_path, there, keys.public))
    assert (lookup.hit, compiler.calls) == (False, 1) and left(tmp_path / "here") == [key().entry_name()]


def test_another_compilers_program_is_not_taken(tmp_path: Path, there: Path, keys: Keys) -> None:
    wanted, program = key(toolchain="llvmlite 2"), (there / key().entry_name()).read_bytes()
    (there / wanted.entry_name()).write_bytes(program)
    statement = entry_statement(listed(program, wanted.entry_name()))
    (there / f"{wanted.entry_name()}{SIGNATURE_SUFFIX}").write_bytes(forged(statement, keys.private))
    with pytest.raises(ZeroDivisionError):
        here(tmp_path, there, keys.public).fetch(wanted, lambda: (bytes(1 // 0),))
    assert left(tmp_path / "here") == []
    lookup, compiler = fetched(here(tmp_path, there, keys.public), wanted)
    assert (lookup.hit, compiler.calls, counts.remote_hits) == (False, 1, 0)
    assert trouble._told == set()


def test_a_signature_may_lead_to_an_entry_of_another_name(
    tmp_path: Path, there: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for machines that take the program of any compiler, where names tell compilers apart."""
    monkeypatch.setattr(Key, "entry_name", lambda self: f"x-{self.part('toolchain').replace(' ', '_')}.jitd")
    entry = key().entry_name()
    (there / entry).write_bytes(content(key(), bytes(30_000)))
    assert open_store(str(tmp_path / "third")).put(key(), content(key(), bytes(30_000))) == ""
    assert push(tmp_path / "third", str(there), keys) == 0
    assert {entry, f"{entry}.sig", "x-.jitd.sig"} <= set(os.listdir(there)) and not (there / "x-.jitd").exists()
    anyones = key(toolchain="")
    with pytest.raises(ZeroDivisionError):  # this store finds entries by one name only
        here(tmp_path, there, keys.public).fetch(anyones, lambda: (bytes(1 // 0),))
    assert left(tmp_path / "here") == [entry]


def test_without_a_key_only_a_folder_of_ours_is_taken(
    tmp_path: Path, there: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for url in (f"file://{there}", str(there)):
        there.chmod(0o755)
        (tmp_path / "here" / key().entry_name()).unlink(missing_ok=True)
        (there / key().entry_name()).chmod(0o644)
        lookup, _ = fetched(here(tmp_path, url, ""))
        assert (lookup.hit, lookup.remote) == (True, url)
    (tmp_path / "here" / key().entry_name()).unlink()
    counts.reset()
    there.chmod(0o777)
    assert_compiled(tmp_path, there, "", "has mode 0777, expected one that others cannot write", recwarn)


def test_a_folder_that_cannot_be_read_is_told(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    there.chmod(0o755)
    (there / key().entry_name()).chmod(0o644)
    with monkeypatch.context() as patched:
        patched.setattr(remote.os, "read", fail)
        assert_compiled(tmp_path, there, "", "Input/output error", recwarn)


def test_a_directory_that_takes_nothing_is_no_trouble_of_the_remote(
    tmp_path: Path, there: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    store = here(tmp_path, there, keys.public)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fail)
        lookup, compiler = fetched(store)
    assert (lookup.hit, compiler.calls) == (False, 1) and trouble._told == {str(tmp_path / "here")}
    assert fetched(store)[0].remote == str(there)


def test_an_entry_that_may_not_be_read_is_told(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    real = CacheDirectory.open

    def refuse(self: CacheDirectory, name: str) -> int:
        if self.path == str(there):
            raise PermissionError(13, "Permission denied")
        return real(self, name)

    there.chmod(0o755)
    monkeypatch.setattr(CacheDirectory, "open", refuse)
    assert_compiled(tmp_path, there, "", "Permission denied", recwarn)


def test_an_entry_that_others_may_write_is_not_taken(
    tmp_path: Path, there: Path, recwarn: pytest.WarningsRecorder
) -> None:
    there.chmod(0o755)
    (there / key().entry_name()).chmod(0o666)
    assert_compiled(tmp_path, there, "", "has mode 0666, expected one that others cannot write", recwarn)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("memory://remote", "no key says whose programs, which are machine code, can be trusted"),
        ("https://127.0.0.1:9/x", "no key says whose programs"),
        ("file://elsewhere/programs", "no key says whose programs"),
        ("/no/such/folder", "there is no folder /no/such/folder"),
        ("http://[::1", "it is no URL: Invalid IPv6 URL"),
    ],
)
def test_a_place_without_a_key_is_refused(
    url: str, told: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    assert_compiled(tmp_path, url, "", told, recwarn)


def test_a_missing_key_is_told(tmp_path: Path, there: Path, recwarn: pytest.WarningsRecorder) -> None:
    assert_compiled(tmp_path, there, str(tmp_path / "missing"), "missing cannot be read: No such file", recwarn)


@pytest.mark.parametrize("package", ["fsspec.core", "cryptography.exceptions"])
def test_a_missing_package_is_told(
    package: str,
    tmp_path: Path,
    there: Path,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert_compiled(tmp_path, there, keys.public, "the extra '", recwarn)


def test_an_unknown_protocol_is_told(tmp_path: Path, keys: Keys, recwarn: pytest.WarningsRecorder) -> None:
    assert_compiled(tmp_path, "ftpx://there", keys.public, "Protocol not known: ftpx", recwarn)


def test_a_directory_that_takes_nothing_costs_no_download(
    tmp_path: Path, there: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(remote, "small_file", lambda *arguments: asked.append(arguments))
    compiler = Compiler(key())
    assert open_store(False, remote=(str(there), keys.public)).fetch(key(), compiler).kind == "off"
    assert asked == [] and compiler.calls == 1


@pytest.mark.parametrize("call", ["write", "replace", "fsync", "open"])
def test_a_failure_meanwhile_leaves_nothing(
    call: str, tmp_path: Path, there: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, calls = here(tmp_path, there, keys.public), getattr(os, call), [0]

    def fail(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2 and threading.current_thread() is threading.main_thread():
            raise OSError(28, "No space left on device")
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        lookup, compiler = fetched(store)
    assert lookup.program is not None and write(lookup.program) == compiler.content
    assert set(left(tmp_path / "here")) <= {key().entry_name()}


def test_programs_come_with_those_whose_weights_they_share(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cache.store.LEAST_SHARED", 0)
    url = str(tmp_path / "pushed")

    def answers(folder: Path, **options: Any) -> list[Any]:
        with jitdelegate.load(
            test_shared_weights.MODEL, serialization_dir=str(folder), target="cpu", num_threads=1, **options
        ) as loaded:
            found = [loaded.run({"x": test_shared_weights.X}, signature) for signature in ("one", "two")]
            return [bytes(array) for outputs in found for array in outputs.values()] + [loaded.report().cache.remote]

    *expected, _ = answers(tmp_path / "elsewhere")
    assert push(tmp_path / "elsewhere", url, keys) == 0
    counts.reset()
    *found, origin = answers(tmp_path / "here", remote=url, remote_key=keys.public)
    assert found == expected and origin == url
    assert counts.remote_hits > 1 and counts.writes == 0
    dependent = next(entry for entry in _entries(tmp_path / "here") if entry.weight_sources)
    for entry in _entries(tmp_path / "here"):
        (tmp_path / "here" / entry.name).unlink()
    lookup = here(tmp_path, url, keys.public).fetch(_key_of(dependent), lambda: pytest.fail("it is compiled"))
    assert lookup.hit and {dependent.name, *dependent.weight_sources} == set(left(tmp_path / "here")) - {".models"}


def _entries(folder: Path) -> Any:
    from cache_tools.entries import open_entries

    return open_entries(str(folder))


def _key_of(entry: Any) -> Key:
    from jitdelegate.runtime.cache.key import stored_key

    return stored_key(entry.program.key)


def test_a_model_starts_from_the_remote_of_the_environment(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, url = tmp_path / "net.tflite", str(tmp_path / "pushed")
    path.write_bytes(small_models.convolution())
    jitdelegate.load(path, serialization_dir=tmp_path / "elsewhere", target="cpu").close()
    assert push(tmp_path / "elsewhere", url, keys) == 0
    monkeypatch.setenv("JITDELEGATE_REMOTE", url)
    monkeypatch.setenv("JITDELEGATE_REMOTE_KEY", keys.public)
    for remote_option, origin in ((False, ""), (None, url)):
        options: Any = {"serialization_dir": tmp_path / "here" / str(remote_option), "target": "cpu"}
        with jitdelegate.load(path, remote=remote_option, **options) as loaded:
            report = loaded.report().cache
            assert (report.hit, report.remote) == (bool(origin), origin)
            assert (f"from {url}" in str(loaded.report())) == bool(origin)
    (entry,) = _entries(tmp_path / "here" / "None")
    assert entry.model_name == "net.tflite"


def test_a_fetched_entry_keeps_the_limit_of_the_directory(tmp_path: Path, there: Path, keys: Keys) -> None:
    size = (there / key().entry_name()).stat().st_size
    for limit, left_over in ((size, [key(MODEL_B).entry_name()]), (size - 1, [])):
        shutil.rmtree(tmp_path / "here", ignore_errors=True)
        store = open_store(str(tmp_path / "here"), most_bytes=limit, remote=(str(there), keys.public))
        for each in (key(), key(MODEL_B)):
            lookup, compiler = fetched(store, each)
            assert lookup.program is not None and write(lookup.program) == compiler.content
            assert compiler.calls == 0
        assert left(tmp_path / "here") == left_over


def test_measured_starts_ask_no_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITDELEGATE_REMOTE", "memory://programs")  # which would be told: there is no key
    path = tmp_path / "net.tflite"
    path.write_bytes(small_models.convolution())
    (tmp_path / "input-0.bin").write_bytes(bytes(768))
    timed_start.main(["jitdelegate", str(path), str(tmp_path / "here"), str(tmp_path), "1", "1"])
    assert trouble._told == set() and counts.writes
    assert measured_options(DelegateOptions(), "here")["remote"] is False


def test_a_push_that_ends_early_leaves_nothing_to_take(
    tmp_path: Path, there: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fsspec.implementations.local import LocalFileSystem

    store = open_store(str(tmp_path / "elsewhere"))
    assert store.put(key(), content(key(), bytes(40_000))) == ""

    def fail(*_: object) -> None:
        raise OSError("the connection is gone")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "pipe_file", fail)
        assert push(tmp_path / "elsewhere", str(there), keys) == 1
    assert "cannot be written: the connection is gone" in capsys.readouterr().err
    lookup, compiler = fetched(here(tmp_path, there, keys.public))
    assert (lookup.hit, compiler.calls) == (False, 1) and trouble._told == set()
    assert push(tmp_path / "elsewhere", str(there), keys) == 0
    (tmp_path / "here" / key().entry_name()).unlink()
    assert fetched(here(tmp_path, there, keys.public))[0].remote == str(there)


def test_programs_of_two_compilers_are_pushed_once(tmp_path: Path, there: Path, keys: Keys) -> None:
    store = open_store(str(tmp_path / "elsewhere"))
    for toolchain in ("llvmlite 8", "llvmlite 9"):
        assert store.put(key(toolchain=toolchain), content(key(toolchain=toolchain))) == ""
    assert push(tmp_path / "elsewhere", str(there), keys) == 0
    before = {path: path.stat().st_mtime_ns for path in there.iterdir()}
    assert push(tmp_path / "elsewhere", str(there), keys) == 0
    assert {path: path.stat().st_mtime_ns for path in there.iterdir()} == before


def test_a_failure_of_another_machine_is_not_fetched(tmp_path: Path, there: Path, keys: Keys) -> None:
    failed = Program(key=key("e" * 32).parts, target="litert", failure="no memory there")
    assert open_store(str(tmp_path / "elsewhere")).put(key("e" * 32), write(failed)) == ""
    assert push(tmp_path / "elsewhere", str(there), keys) == 0
    assert not list(there.glob(f"{'e' * 32}*"))


def test_a_folder_without_a_key_serves_machines_without_a_compiler(tmp_path: Path) -> None:
    there, without = tmp_path / "there", key(toolchain="")
    assert open_store(str(there)).put(key(), content(key())) == ""
    lookup, compiler = fetched(open_store(str(tmp_path / "here"), remote=(f"file://{there}", "")), without)
    assert (lookup.hit, compiler.calls) == (True, 0)


def test_what_cannot_be_pushed_is_one_clear_error(
    tmp_path: Path, there: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        (str(tmp_path / "elsewhere"), "ftpx://x", 1),
        (str(tmp_path / "elsewhere"), f"{there}/{key().entry_name()}", 1),
    ]
    for folder, url, status in cases:
        capsys.readouterr()
        assert main(["push", url, "--sign", keys.private, "--dir", folder]) == status
        (line,) = capsys.readouterr().err.splitlines()
        assert "cannot be written" in line
    assert main(["push", str(there), "nobody", "--sign", keys.private, "--dir", str(tmp_path / "elsewhere")]) == 2
    assert "there is no entry of 'nobody'" in capsys.readouterr().err
