"""Entries in one tar file, to carry them to another machine's directory."""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
from collections.abc import Sequence

from cache_tools.entries import Entry
from cache_tools.tar_members import content, members
from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import READ_ONLY_FILE, TEMPORARY_SUFFIX, CacheDirectory, close_quietly
from jitdelegate.runtime.cache.key import SUFFIX, stored_key
from jitdelegate.runtime.cache.model_names import LARGEST_FILE as LARGEST_NAMES
from jitdelegate.runtime.cache.model_names import NAME, model_names, names_content, parse_names, remember_model
from jitdelegate.runtime.cache.staging import Staging

_PLAIN_NAME = re.compile(r"[\w-]+" + re.escape(SUFFIX), re.ASCII)
_LONGEST_NAME = 128
_PIECE = 1 << 20
"""Bytes that are copied at once."""


def export_entries(entries: Sequence[Entry], directory: CacheDirectory, path: str) -> None:
    """Write the entries and the names of their models to a tar file, which holds equal bytes for equal entries.

    Raises:
        OSError: a file cannot be read or written; there is no archive then.
        FileExistsError: there is a file at `path`.
        CacheError: an entry is not trusted.
    """
    if os.path.lexists(path):
        raise FileExistsError(f"{path}: there is a file already")
    temporary = f"{path}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
    try:
        with tarfile.open(temporary, "x") as archive:
            _write(entries, directory, archive)
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
    models = {entry.fingerprint for entry in entries}
    names = names_content({key: name for key, name in model_names(directory).items() if key in models})
    known = tarfile.TarInfo(NAME)
    known.size = len(names)
    archive.addfile(known, io.BytesIO(names))


def import_entries(path: str, directory: CacheDirectory) -> list[Entry]:
    """Store the entries of a tar file: all of them, or none. Entries that are there and good stay.

    They are written to temporary files beside the others, every byte is checked, and only then they get their names.
    Entries are machine code: import only what you would run.

    Returns:
        The new entries. If one of them has trouble, none was stored.
    Raises:
        FileNotFoundError: there is no file at `path`.
        CacheError: it is no archive of entries, or a file cannot be read or written; nothing was stored.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    staging = Staging(directory)
    try:
        models = _stage(descriptor, staging)
        entries = [_checked(Entry(staging, name, verify=True)) for name in staging.temporary]
        if not any(entry.trouble for entry in entries):
            staging.commit()
            _remember(models, entries, directory)
        return entries
    except CacheError as error:
        raise CacheError(f"{path} is no archive of entries: {error}") from error
    except OSError as error:
        raise CacheError(f"nothing was imported: {error}") from error
    finally:
        staging.clear()
        close_quietly(descriptor)


def _stage(descriptor: int, staging: Staging) -> dict[str, str]:
    """Write the archive's entries to temporary files, but those that are there and good; the names of models."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise CacheError(f"it is no regular file (mode {stat.filemode(status.st_mode)})")
    models, seen = dict[str, str](), set[str]()
    for name, at, nbytes in members(descriptor, status.st_size):
        is_entry = len(name) <= _LONGEST_NAME and _PLAIN_NAME.fullmatch(name)
        if name in seen or not (is_entry or (name == NAME and nbytes <= LARGEST_NAMES)):
            raise CacheError(f"the archive holds {name[:_LONGEST_NAME]!r}, expected entries only, each once")
        seen.add(name)
        if name == NAME:
            models = parse_names(b"".join(content(descriptor, at, nbytes, _PIECE)))
        elif Entry(staging, name, verify=True).trouble:
            parts = content(descriptor, at, nbytes, _PIECE)
            staging.temporary[name] = staging.write_beside(name, parts, mode=READ_ONLY_FILE)
    return models


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
