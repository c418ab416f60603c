"""Entries in one tar file, to carry them to another machine's directory.

A signed one begins with a manifest and its signature. Whoever checks it stores nothing that the manifest does not list.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext

from cache_tools.bundle import LONGEST_NAME, MANIFEST, SIGNATURE, Bundle
from cache_tools.entries import Entry
from cache_tools.signer import Signer
from cache_tools.versions import alone, refuse_downgrade, remember_version
from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import READ_ONLY_FILE, TEMPORARY_SUFFIX, CacheDirectory, close_quietly
from jitdelegate.runtime.cache.key import SUFFIX, stored_key
from jitdelegate.runtime.cache.model_names import LARGEST_FILE as LARGEST_NAMES
from jitdelegate.runtime.cache.model_names import NAME, model_names, names_content, parse_names, remember_model
from jitdelegate.runtime.cache.public_key import PublicKey
from jitdelegate.runtime.cache.staging import Staging
from jitdelegate.runtime.cache.statements import BUNDLE, Member, Statement, verified

_PLAIN_NAME = re.compile(r"[\w-]+" + re.escape(SUFFIX), re.ASCII)


def export_entries(
    entries: Sequence[Entry],
    directory: CacheDirectory,
    path: str,
    signer: Signer | None = None,
    version: int | None = None,
) -> None:
    """Write the entries and the names of their models to a tar file, which holds equal bytes for equal entries.

    Args:
        signer: signs them.
        version: of the signed archive; None is the time of the newest entry's write, in seconds since 1970.
    Raises:
        OSError: a file cannot be read or written; there is no archive then.
        FileExistsError: there is a file at `path`.
        CacheError: an entry is not trusted, or was written again meanwhile.
    """
    if os.path.lexists(path):
        raise FileExistsError(f"{path}: there is a file already")
    temporary = f"{path}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
    models = {entry.fingerprint for entry in entries}
    names = names_content({key: name for key, name in model_names(directory).items() if key in models})
    try:
        with tarfile.open(temporary, "x") as archive:
            if signer is not None:
                newest = int(max(entry.written for entry in entries))
                members = [listed(entry, directory) for entry in entries]
                members.append(Member(NAME, len(names), hashlib.sha256(names).hexdigest()))
                manifest = Statement(BUNDLE, tuple(members), newest if version is None else version).content()
                _add(archive, MANIFEST, manifest)
                _add(archive, SIGNATURE, signer.sign(manifest).content())
            _write(entries, directory, archive)
            _add(archive, NAME, names)
        if signer is not None:
            _check_whole(temporary)
        os.replace(temporary, path)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def _write(entries: Sequence[Entry], directory: CacheDirectory, archive: tarfile.TarFile) -> None:
    for entry in entries:
        descriptor = directory.open(entry.name)
        try:
            with open(descriptor, "rb", closefd=False) as file:
                known = tarfile.TarInfo(entry.name)
                known.size, known.mode = os.fstat(descriptor).st_size, READ_ONLY_FILE
                archive.addfile(known, file)
        finally:
            close_quietly(descriptor)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    known = tarfile.TarInfo(name)
    known.size = len(content)
    archive.addfile(known, io.BytesIO(content))


def listed(entry: Entry, directory: CacheDirectory) -> Member:
    """A good entry as a statement lists it; raises as `CacheDirectory.open`."""
    return Member(entry.name, *_digest(directory, entry.name), dict(entry.program.key) if entry.program else {})


def _digest(directory: CacheDirectory, name: str) -> tuple[int, str]:
    """Bytes and SHA-256 of a file; raises as `CacheDirectory.open`."""
    descriptor = directory.open(name)
    with open(descriptor, "rb") as file:
        return os.fstat(descriptor).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _check_whole(path: str) -> None:
    """
    Raises:
        CacheError: entries were written again between their hashes and their copies.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        bundle = Bundle(descriptor, exact=True)
        for member, at in bundle.listed_members(bundle.statement()):
            _read_all(verified(bundle.content(at, member.size), member))
    finally:
        close_quietly(descriptor)


def import_entries(
    path: str, directory: CacheDirectory, key: PublicKey | None = None, *, allow_downgrade: bool = False
) -> list[Entry]:
    """Store the entries of a tar file: all of them, or none. Entries that are there and good stay.

    They are written to temporary files beside the others, every byte is checked, and only then they get their names.
    Entries are machine code: import only what you would run.

    Args:
        key: the signer's. Only an archive that it signed is imported; its entries replace others of their names.
        allow_downgrade: import also one that is older than what was imported before.
    Returns:
        The new entries. If one of them has trouble, none was stored.
    Raises:
        FileNotFoundError: there is no file at `path`.
        CacheError: it is no archive of entries, or none that was signed so, or a file cannot be read or written;
            nothing was stored.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    staging = Staging(directory)
    try:
        with alone(directory) if key else nullcontext():
            return _import(Bundle(descriptor, exact=key is not None), staging, key, allow_downgrade)
    except CacheError as error:
        if key:
            raise CacheError(f"{path} is refused: {error}") from error
        raise CacheError(f"{path} is no archive of entries: {error}") from error
    except OSError as error:
        raise CacheError(f"nothing was imported: {error}") from error
    finally:
        staging.clear()
        close_quietly(descriptor)


def _import(bundle: Bundle, staging: Staging, key: PublicKey | None, allow_downgrade: bool) -> list[Entry]:
    statement = bundle.verified_statement(key) if key else None
    names = [member.name for member in statement.members if member.name != NAME] if statement else []
    if key and statement and not allow_downgrade:
        refuse_downgrade(staging, key.key_id, names, statement.version)
    models = _stage(bundle, staging, statement)
    entries = [_checked(Entry(staging, name, verify=True)) for name in staging.temporary]
    if not any(entry.trouble for entry in entries):
        if key and statement:
            remember_version(staging, key.key_id, names, statement.version)
        staging.commit()
        _remember(models, entries, staging)
    return entries


def _stage(bundle: Bundle, staging: Staging, statement: Statement | None) -> dict[str, str]:
    """Write the archive's entries to temporary files, but those that are there and good; the names of models."""
    models, seen = dict[str, str](), set[str]()
    for name, at, nbytes, signed in _members(bundle, statement):
        is_entry = len(name) <= LONGEST_NAME and _PLAIN_NAME.fullmatch(name)
        if name in seen or not (is_entry or (name == NAME and nbytes <= LARGEST_NAMES)):
            raise CacheError(f"the archive holds {name[:LONGEST_NAME]!r}, expected entries only, each once")
        seen.add(name)
        pieces = verified(bundle.content(at, nbytes), signed) if signed else bundle.content(at, nbytes)
        if name == NAME:
            models = parse_names(b"".join(pieces))
        elif not _is_there(staging, name, signed):
            staging.temporary[name] = staging.write_beside(name, pieces, mode=READ_ONLY_FILE)
        elif signed:
            _read_all(pieces)
    return models


def _members(bundle: Bundle, statement: Statement | None) -> Iterator[tuple[str, int, int, Member | None]]:
    """Name, first byte and bytes of each member, and what is signed about it."""
    if statement is None:
        yield from ((*member, None) for member in bundle.members())
    else:
        yield from ((signed.name, at, signed.size, signed) for signed, at in bundle.listed_members(statement))


def _is_there(directory: CacheDirectory, name: str, signed: Member | None) -> bool:
    """Whether the directory has the entry: the signed one, or any good one."""
    if signed is None:
        return not Entry(directory, name, verify=True).trouble
    try:
        return _digest(directory, name) == (signed.size, signed.sha256)
    except (OSError, CacheError):
        return False


def _read_all(pieces: Iterable[bytes]) -> None:
    for _ in pieces:
        pass


def _checked(entry: Entry) -> Entry:
    """The entry, with trouble if its name is not that of its key."""
    if entry.program is not None and stored_key(entry.program.key).entry_name() != entry.name:
        entry.trouble = "its name is not that of its key"
    return entry


def _remember(models: dict[str, str], entries: Sequence[Entry], directory: CacheDirectory) -> None:
    known = {entry.fingerprint for entry in entries}
    for fingerprint, name in models.items():
        if fingerprint in known:
            remember_model(directory, fingerprint, name)
