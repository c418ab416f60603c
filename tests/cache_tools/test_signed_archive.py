"""Signed archives: what was signed is imported; anything else is refused in one sentence, and nothing is stored."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import tarfile
from pathlib import Path

import pytest

from cache_tools.__main__ import main
from cache_tools.bundle import MANIFEST, SIGNATURE
from cache_tools.versions import NAME as VERSIONS
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.statements import BUNDLE, ENTRY, Member, Signature, Statement
from jitdelegate.runtime.cache.store import open_store
from tests.cache_tools.test_archive import END, damaged, header, members_of, program_file
from tests.cache_tools.test_commands import folder, full_program, names
from tests.runtime.cache.programs import MODEL_A, MODEL_B, key
from tests.signing_keys import Keys, write_keys

pytest.importorskip("cryptography", reason="signatures need the extra `signed`")

__all__ = ["folder"]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return write_keys(tmp_path, "ours", 1)


@pytest.fixture
def signed(folder: Path, tmp_path: Path, keys: Keys) -> Path:
    """An archive of two entries, version 5."""
    path = tmp_path / "entries.tar"
    assert main(["export", str(path), "--dir", str(folder), "--sign", keys.private, "--bundle-version", "5"]) == 0
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another directory."""
    return Path(open_cache_directory(str(tmp_path / "other")).path)


def imported(path: Path, into: Path, keys: Keys, *further: str) -> int:
    return main(["import", str(path), "--dir", str(into), "--verify", keys.public, *further])


def refusal(path: Path, into: Path, keys: Keys, capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence in which an archive is refused; the directory is as it was."""
    before = {each.name: each.read_bytes() for each in into.iterdir()}
    capsys.readouterr()
    assert imported(path, into, keys) == 1
    output = capsys.readouterr()
    assert {each.name: each.read_bytes() for each in into.iterdir()} == before
    (line,) = output.err.splitlines()
    assert output.out == "" and line.isprintable()
    return line


def packed(path: Path, found: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for member, content in found:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_signed_archive_is_imported(signed: Path, folder: Path, other: Path, keys: Keys) -> None:
    assert [member.name for member, _ in members_of(signed)] == [MANIFEST, SIGNATURE, *names(folder), ".models"]
    assert imported(signed, other, keys) == 0
    assert names(other) == names(folder)
    assert all((other / name).read_bytes() == (folder / name).read_bytes() for name in names(folder))
    assert imported(signed, other, keys) == 0


def test_equal_entries_give_equal_bytes(signed: Path, folder: Path, tmp_path: Path, keys: Keys) -> None:
    again = tmp_path / "again.tar"
    assert main(["export", str(again), "--dir", str(folder), "--sign", keys.private, "--bundle-version", "5"]) == 0
    assert again.read_bytes() == signed.read_bytes()
    unnamed = [tmp_path / f"{number}.tar" for number in range(2)]
    for path in unnamed:
        assert main(["export", str(path), "--dir", str(folder), "--sign", keys.private]) == 0
    assert unnamed[0].read_bytes() == unnamed[1].read_bytes()


def test_the_manifest_says_what_is_in_the_archive(signed: Path, folder: Path) -> None:
    manifest = json.loads(members_of(signed)[0][1])
    assert (manifest["kind"], manifest["version"]) == (BUNDLE, 5)
    assert [member["name"] for member in manifest["members"]] == [*names(folder), ".models"]
    assert [member["key"].get("model") for member in manifest["members"]] == [MODEL_A, MODEL_B, None]
    assert manifest["members"][0]["key"]["toolchain"] == "llvmlite 1"


@pytest.mark.parametrize("at", ["code", "table", "weights"])
def test_an_entry_forged_with_right_hashes_is_refused(
    at: str, signed: Path, other: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    found = members_of(signed)
    member, content = found[2]
    forged = forge(content, at)
    assert len(forged) == len(content) and forged != content and read(forged).key == read(content).key
    found[2] = (member, forged)
    assert main(["import", str(packed(signed, found)), "--dir", str(other)]) == 0  # its own hashes are right
    assert (other / member.name).read_bytes() == forged
    (other / member.name).unlink()
    assert "has another content than the signed one" in refusal(signed, other, keys, capsys)


def forge(content: bytes, at: str) -> bytes:
    """A program's file with another code, table or weights, and the hashes of these."""
    program = read(content)
    if at == "code":
        program.code = bytes(len(program.code))
    elif at == "weights":
        program.weights = bytes(len(program.weights))
    else:
        program.arena_bytes += 64
    return write(program)


def test_another_signers_archive_is_refused(
    signed: Path, folder: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "it is signed by the key" in refusal(signed, other, write_keys(tmp_path, "theirs", 2), capsys)


def test_a_signature_under_our_name_by_another_key_is_refused(
    signed: Path, other: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    found = members_of(signed)
    claimed = json.loads(found[1][1])["key"]
    found[1] = (found[1][0], Signature(claimed, bytes(64)).content())
    assert "does not fit it" in refusal(packed(signed, found), other, keys, capsys)


def test_an_archive_without_a_signature_is_refused(
    folder: Path, other: Path, tmp_path: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "unsigned.tar"
    assert main(["export", str(path), "--dir", str(folder)]) == 0
    assert "it is not signed" in refusal(path, other, keys, capsys)


def test_a_signature_of_another_kind_is_none(
    signed: Path, other: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    from cache_tools.signer import read_signer

    found, listed = members_of(signed), json.loads(members_of(signed)[0][1])["members"]
    statement = Statement(ENTRY, tuple(Member(**member) for member in listed), 5).content()
    found[0] = (found[0][0], statement)
    found[1] = (found[1][0], read_signer(keys.private).sign(statement).content())
    assert "the statement is no jitdelegate bundle" in refusal(packed(signed, found), other, keys, capsys)


@pytest.mark.parametrize("change", ["left out", "added", "twice", "swapped", "renamed", "longer"])
def test_other_members_than_the_signed_ones_are_refused(
    change: str, signed: Path, other: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    found = members_of(signed)
    if change == "left out":
        del found[3]
    elif change in ("added", "twice"):
        more = key(MODEL_A if change == "twice" else "c" * 32)
        found.insert(4, (tarfile.TarInfo(more.entry_name()), program_file(more)))
    elif change == "swapped":
        found[2], found[3] = found[3], found[2]
    elif change == "renamed":
        found[2][0].name = key("c" * 32).entry_name()
    else:
        found[2] = (found[2][0], found[2][1] + b"x")
    assert "where its manifest has" in refusal(packed(signed, found), other, keys, capsys)


BOMBS = {
    "compressed": lambda content: gzip.compress(content),
    "compressed zeros": lambda content: gzip.compress(bytes(1 << 26)),
    "a manifest of 60 GiB": lambda content: header(MANIFEST, 60 << 30) + END,
    "a manifest of 20 MB": lambda content: header(MANIFEST, 20 << 20) + bytes(20 << 20) + header(SIGNATURE) + END,
    "a sparse manifest": lambda content: header(MANIFEST, 512, tarfile.GNUTYPE_SPARSE) + bytes(512) + END,
    "a manifest of nested lists": lambda content: (
        header(MANIFEST, 1 << 16) + b"[" * (1 << 16) + content[members_end(content, 1) : members_end(content, 2)] + END
    ),
    "no signature": lambda content: content[: members_end(content, 1)] + END,
    "many members": lambda content: content[: members_end(content, 2)] + header("x.jitd") * 100_000 + END,
    "bytes behind the end": lambda content: content[:-1] + b"x",
    "more zeros": lambda content: content + bytes(10240),
}


def members_end(content: bytes, number: int) -> int:
    """Where the member of a number begins, in bytes."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return archive.getmembers()[number].offset


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_are_refused(
    kind: str, signed: Path, other: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    signed.write_bytes(BOMBS[kind](signed.read_bytes()))
    assert "is refused: " in refusal(signed, other, keys, capsys)


def test_every_truncation_is_refused(signed: Path, other: Path, keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    content = signed.read_bytes()
    for length in [*range(0, len(content), 512), len(content) - 1]:
        signed.write_bytes(content[:length])
        assert "is refused: " in refusal(signed, other, keys, capsys)


def fuzz(content: bytes, into: Path, path: Path, keys: Keys, rounds: int, seed: int) -> list[bytes]:
    """The damaged archives that were not refused, of so many; even from these, only what was signed was stored."""
    draw, taken = random.Random(seed), []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        signed = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    while rounds:
        changed = bytearray(content)
        if rounds % 2:
            changed[:] = damaged(content, draw)
        else:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        if changed == content:
            continue
        rounds -= 1
        path.write_bytes(changed)
        status = imported(path, into, keys)
        stored = {each.name: each.read_bytes() for each in into.iterdir() if each.name != VERSIONS}
        assert status in (0, 1) and stored.items() <= signed.items() and (status == 0 or not stored)
        if not status:
            taken.append(bytes(changed))
        for each in into.iterdir():
            each.unlink()
    return taken


def test_damaged_archives_are_refused(
    signed: Path, other: Path, tmp_path: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzz(signed.read_bytes(), other, tmp_path / "damaged.tar", keys, rounds=60, seed=4) == []
    assert "Traceback" not in capsys.readouterr().err


def test_an_older_version_is_refused_until_it_is_allowed(
    signed: Path, folder: Path, other: Path, tmp_path: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = tmp_path / "newer.tar"
    assert main(["export", str(newer), "--dir", str(folder), "--sign", keys.private, "--bundle-version", "6"]) == 0
    assert imported(newer, other, keys) == 0
    for name in names(other):
        (other / name).unlink()
    assert "version 6 of its entries was imported before" in refusal(signed, other, keys, capsys)
    assert imported(newer, other, keys) == 0
    assert imported(signed, other, keys, "--allow-downgrade") == 0
    assert imported(signed, other, keys) == 0  # the version to compare with is this one now


def test_versions_of_other_signers_and_other_entries_do_not_matter(
    signed: Path, folder: Path, other: Path, tmp_path: Path, keys: Keys
) -> None:
    third, older, theirs = key("c" * 32), tmp_path / "older.tar", write_keys(tmp_path, "theirs", 2)
    assert imported(signed, other, keys) == 0
    program = full_program()
    program.key = third.parts
    assert open_store(str(folder)).put(third, write(program)) == ""
    command = ["export", str(older), third.entry_name(), "--dir", str(folder), "--bundle-version", "1", "--sign"]
    assert main([*command, keys.private]) == 0 and imported(older, other, keys) == 0
    older.unlink()
    command[2] = key(MODEL_A).entry_name()
    assert main([*command, theirs.private]) == 0 and imported(older, other, theirs) == 0


def test_damaged_versions_allow_nothing(
    signed: Path, other: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(signed, other, keys) == 0
    for content in (
        b"",
        b"{}",
        b"[" * 99999,
        b'{"format":1,"signers":{"x":{"y":-1}}}',
        b'{"format":1,"signers":{"x":3}}',
    ):
        (other / VERSIONS).write_bytes(content)
        assert "--allow-downgrade begins anew" in refusal(signed, other, keys, capsys)
    assert imported(signed, other, keys, "--allow-downgrade") == 0 and imported(signed, other, keys) == 0


def test_a_signed_entry_replaces_another_good_one_of_its_name(signed: Path, folder: Path, keys: Keys) -> None:
    entry = folder / key().entry_name()
    before, program = entry.read_bytes(), read(entry.read_bytes())
    program.arena_bytes += 64
    assert open_store(str(folder)).put(key(), write(program)) == ""
    assert main(["import", str(signed), "--dir", str(folder)]) == 0
    assert entry.read_bytes() == write(program) != before
    assert imported(signed, folder, keys) == 0
    assert entry.read_bytes() == before


def test_an_import_that_is_not_verified_says_so(
    signed: Path, folder: Path, other: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["import", str(signed), "--dir", str(other)]) == 0
    assert "which was not checked: --verify does" in capsys.readouterr().err
    assert names(other) == names(folder)


def test_whoever_has_no_key_sees_what_is_in_an_archive(
    signed: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["ls", str(signed)]) == 0
    heading, _, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "model"
    assert MODEL_A in lines[0] and "cpu x86-64-v3" in lines[0] and key(MODEL_B).digest()[:12] in lines[1]
    key_id = json.loads(members_of(signed)[1][1])["key"]
    assert lines[2] == f"version 5, signed by the key {key_id}, as it says: import --verify checks that"
    assert main(["ls", str(signed), "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert (known["signer"], known["version"], known["verified"]) == (key_id, 5, False)
    assert [entry["name"] for entry in known["entries"]] == names(folder)


def test_a_manifest_of_other_types_is_one_clear_error(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = members_of(signed)
    member, content = found[0]
    found[0] = (member, re.sub(rb'"key":\{[^}]*\}', b'"key":[[1,"a"],["b","c"]]', content, count=1))
    assert found[0][1] != content
    assert main(["ls", str(packed(signed, found))]) == 2
    assert "the statement cannot be read" in capsys.readouterr().err


def test_an_entry_of_an_archive_that_is_no_program_is_named(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = members_of(signed)
    found[2] = (found[2][0], b"hello")
    assert main(["ls", str(packed(signed, found))]) == 1
    assert "bad: " in capsys.readouterr().out


def test_keys_of_other_forms_are_taken(
    folder: Path, other: Path, tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITDELEGATE_KEY_PASSPHRASE", "open sesame")
    forms = [
        write_keys(tmp_path, "openssh", 1, openssh=True),
        write_keys(tmp_path, "locked", 1, passphrase="open sesame"),
    ]
    for number, form in enumerate(forms):
        path = tmp_path / f"{number}.tar"
        assert main(["export", str(path), "--dir", str(folder), "--sign", form.private]) == 0
        assert imported(path, other, form) == 0 and imported(path, other, keys) == 0  # it is the same key


def test_what_is_no_key_is_one_clear_error(
    folder: Path, signed: Path, tmp_path: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    curve, locked = generate_private_key(SECP256R1()), write_keys(tmp_path, "locked", 1, passphrase="open sesame")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    (tmp_path / "ec").write_bytes(curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "ec.public").write_bytes(public)
    cases = [
        ("--sign", str(tmp_path / "missing"), "could not open"),
        ("--sign", str(tmp_path / "text"), "holds no private key that can be read"),
        ("--sign", str(tmp_path / "large"), "is too large for a key"),
        ("--sign", str(tmp_path / "ec"), "expected a key of Ed25519"),
        ("--sign", locked.private, "needs a passphrase; set JITDELEGATE_KEY_PASSPHRASE"),
        ("--sign", keys.public, "holds no private key"),
        ("--verify", str(tmp_path / "text"), "holds no public key"),
        ("--verify", str(tmp_path / "ec.public"), "expected a key of Ed25519"),
        ("--verify", keys.private, "holds a private key, expected the public one"),
    ]
    for option, path, expected in cases:
        command = ["export", str(tmp_path / "x.tar")] if option == "--sign" else ["import", str(signed)]
        capsys.readouterr()
        assert main([*command, "--dir", str(folder), option, path]) in (1, 2)
        (line,) = capsys.readouterr().err.splitlines()
        assert expected in line
    assert not (tmp_path / "x.tar").exists()


def test_without_the_package_the_error_says_what_to_install(
    folder: Path, tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    assert main(["export", str(tmp_path / "x.tar"), "--dir", str(folder), "--sign", keys.private]) == 2
    assert "the extra 'signed'" in capsys.readouterr().err


def test_versions_and_downgrades_are_about_signed_archives(
    signed: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path / "x.tar"), "--dir", str(folder), "--bundle-version", "1"]) == 2
    assert main(["import", str(signed), "--dir", str(folder), "--allow-downgrade"]) == 2
    for number in ("-1", "x", str(1 << 64), "9" * 9999):
        assert main(["export", str(tmp_path / "x.tar"), f"--bundle-version={number}"]) == 2
    assert "expected a whole number up to" in capsys.readouterr().err
