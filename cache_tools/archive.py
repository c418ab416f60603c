"""Entries in one tar file, to carry them to another machine's directory."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Sequence

from cache_tools.entries import Entry
from jitdelegate.cache.key import SUFFIX, stored_key
from jitdelegate.cache.model_names import NAME, model_names, names_content, parse_names, remember_model
from jitdelegate.cache.place import LARGEST_FILE, READ_ONLY_FILE, Place, close_quietly
from jitdelegate.errors import CacheError

_PLAIN_NAME = re.compile(r"[\w-]+" + re.escape(SUFFIX), re.ASCII)


def export_entries(entries: Sequence[Entry], place: Place, path: str) -> None:
    """Write the entries and the names of their models to a tar file, which holds equal bytes for equal entries.

    Raises:
        OSError: a file cannot be read or written.
        CacheError: an entry is not trusted.
    """
    with tarfile.open(path, "x") as archive:
        for entry in entries:
            descriptor = place.open(entry.name)
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    known = tarfile.TarInfo(entry.name)
                    known.size, known.mode = os.fstat(descriptor).st_size, READ_ONLY_FILE
                    archive.addfile(known, file)
            finally:
                close_quietly(descriptor)
        models = {entry.fingerprint for entry in entries}
        content = names_content({key: name for key, name in model_names(place).items() if key in models})
        known = tarfile.TarInfo(NAME)
        known.size = len(content)
        archive.addfile(known, io.BytesIO(content))


def import_entries(path: str, place: Place) -> list[Entry]:
    """Store the entries of a tar file, all bytes of which are checked; entries that are there and good stay.

    Entries are machine code: import only what you would run.

    Returns:
        The entries that were imported; bad ones, with the trouble, are not stored.
    Raises:
        OSError: a file cannot be read or written.
        CacheError: it is no archive of entries.
    """
    names, models = [], dict[str, str]()
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                content = _content(archive, member)
                if member.name == NAME:
                    models = parse_names(content)
                elif not _is_good(place, member.name):
                    place.write(member.name, content, mode=READ_ONLY_FILE)
                    names.append(member.name)
    except tarfile.TarError as error:
        raise CacheError(f"{path} is no archive of entries: {error}") from error
    for fingerprint, name in models.items():
        remember_model(place, fingerprint, name)
    entries = [Entry(place, name, verify=True) for name in names]
    for entry in entries:
        if entry.program is not None and stored_key(entry.program.key).entry_name() != entry.name:
            entry.trouble = "its name is not that of its key"
        if entry.trouble:
            place.remove(entry.name)
    return entries


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """
    Raises:
        CacheError: the member is no entry.
    """
    file = archive.extractfile(member) if member.isfile() and member.size <= LARGEST_FILE else None
    if file is None or not (member.name == NAME or _PLAIN_NAME.fullmatch(member.name)):
        raise CacheError(f"the archive holds {member.name!r}, expected entries only")
    return file.read()


def _is_good(place: Place, name: str) -> bool:
    return not Entry(place, name, verify=True).trouble
