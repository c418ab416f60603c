"""Entries that are written to a remote, where `jitdelegate` finds them by the option `remote`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from cache_tools.archive import listed
from cache_tools.bundle import PIECE
from cache_tools.entries import Entry
from cache_tools.signer import Signer
from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import CacheDirectory, close_quietly
from jitdelegate.runtime.cache.key import TOOLCHAIN, stored_key
from jitdelegate.runtime.cache.remote import SIGNATURE_SUFFIX, entry_statement, shown, signature_file


def push_entries(entries: Sequence[Entry], directory: CacheDirectory, url: str, signer: Signer) -> list[Entry]:
    """Write entries and their signatures to a URL, but those that are there already.

    A signature is removed before its entry is written, and written after it, so that nobody takes a half of one.

    Returns:
        The entries that were written.
    Raises:
        CacheError: fsspec is missing, or the remote cannot be written.
        OSError: an entry cannot be read.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise CacheError("a remote needs the package fsspec: the extra 'remote'") from error
    written = []
    entries = [one for one in entries if one.program is None or not one.program.failure]  # failures are this machine's
    for entry in sorted(entries, key=lambda entry: len(entry.weight_sources)):  # one is whole as soon as it is there
        statement = entry_statement(listed(entry, directory))
        signature = signature_file(statement, signer.sign(statement).content())
        try:
            system, folder = url_to_fs(url)
            system.makedirs(folder, exist_ok=True)
            place = f"{folder.rstrip('/')}/{entry.name}"
            own, anyones = (f"{folder.rstrip('/')}/{name}{SIGNATURE_SUFFIX}" for name in _asked_names(entry))
            is_there = _content(system, own) == signature and system.exists(place)
            if is_there and _content(system, anyones):  # of any compiler's programs, one serves those without
                continue
            signatures = list(dict.fromkeys((own, anyones)))
            _write(system, place, signatures, signature, directory, entry.name)
        except CacheError:
            raise
        except Exception as error:  # whatever a library of some store raises
            words = " ".join(str(error).split()) or type(error).__name__
            raise CacheError(f"{shown(url)} cannot be written: {shown(words)}") from error
        written.append(entry)
    return written


def _content(system: Any, place: str) -> bytes:
    try:
        content: bytes = system.cat_file(place)
    except FileNotFoundError:
        return b""
    return content


def _asked_names(entry: Entry) -> tuple[str, str]:
    """The names by which machines ask for an entry: its own, and that of those without a compiler, which take any
    compiler's."""
    assert entry.program is not None
    anyones = stored_key(entry.program.key).changed(TOOLCHAIN, "").entry_name()
    return entry.name, anyones


def _write(
    system: Any, place: str, signatures: Sequence[str], signature: bytes, directory: CacheDirectory, name: str
) -> None:
    for one in signatures:
        if system.exists(one):
            system.rm_file(one)
    descriptor = directory.open(name)
    try:
        with system.open(place, "wb") as file:
            while piece := os.read(descriptor, PIECE):
                file.write(piece)
    finally:
        close_quietly(descriptor)
    for one in signatures:
        system.pipe_file(one, signature)
