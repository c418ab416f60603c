"""Entries as the commands see them: opened with every check that the cache makes, or the reason why not."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from jitdelegate.base.options import environment_folders
from jitdelegate.base.progress import progress
from jitdelegate.errors import CacheError, IncompleteError, JitDelegateError, ProgramError
from jitdelegate.program.program import Port, Program
from jitdelegate.program.read import verify_weights
from jitdelegate.runtime.cache.directory import (
    CacheDirectory,
    open_cache_directory,
    open_prebuilt_folder,
    user_directory,
)
from jitdelegate.runtime.cache.key import MODEL, SUFFIX, TOKEN, VARIANTS, stored_key
from jitdelegate.runtime.cache.model_names import model_names
from jitdelegate.runtime.cache.store import open_entry
from jitdelegate.runtime.cache.use_log import read_log

Stamp = tuple[int, int, int, int]

LEAST_DIGITS = 8
"""Of the beginning of a fingerprint or digest."""


class Kept:
    """A file of the directory, good or bad: an entry, or a table.

    Attributes:
        name: of the file.
        size: in bytes, 0 where there is no such file.
        written, used: seconds since 1970 of the write, and of the last read that the file system or the log remembers.
        trouble: what is wrong with it, "" for a good one.
        is_unread: whether it could not be read, so that nobody knows whether it is good; `trouble` says why.
        stamp: what another file of this name would change; None where it could not be read either.
    """

    def __init__(self, directory: CacheDirectory, name: str, read: Callable[[], None]) -> None:
        """
        Args:
            read: reads the file's content; where it fails, its error is the file's trouble.
        """
        self.name = name
        self.size = 0
        self.written = self.used = 0.0
        self.trouble = ""
        self.is_unread = False
        self.stamp: Stamp | None = None
        try:
            known = directory.stat(name)
            self.stamp, self.size, self.written = stamp(known), known.st_size, known.st_mtime
            self.used = max(known.st_atime, known.st_mtime)
            read()
        except UNUSABLE as error:
            self.trouble, self.is_unread = trouble_of(error)

    @property
    def verdict(self) -> str:
        """Good, bad or unread."""
        return ("unread" if self.is_unread else "bad") if self.trouble else "good"

    def summary(self) -> dict[str, Any]:
        """One line's worth, as plain data."""
        return {
            "name": self.name,
            "bytes": self.size,
            "written": self.written,
            "trouble": self.trouble,
            "verdict": self.verdict,
        }


class Entry(Kept):
    """One entry.

    Attributes:
        path: of the file.
        model_name: the file name of the model; "" where it is not known.
        program: what it holds, without weights; None for a bad entry.
        weights_bytes: how long its weights are.
    """

    def __init__(self, directory: CacheDirectory, name: str, *, verify: bool) -> None:
        self.path = os.path.join(directory.path, name)
        self.model_name = ""
        self.program: Program | None = None
        self.weights_bytes = 0
        super().__init__(directory, name, lambda: self._read(directory, verify))

    def _read(self, directory: CacheDirectory, verify: bool) -> None:
        program = _checked(
            open_entry(directory, self.name, verify_code=verify, open_source=partial(_open_source, directory)), verify
        )
        # let go at once: a directory may hold more than a process can map
        self.weights_bytes, program.weights = len(program.weights), b""
        self.program = program

    @property
    def fingerprint(self) -> str:
        """Of the model; "" for a bad entry."""
        return self.program.part(MODEL) if self.program else ""

    @property
    def digest(self) -> str:
        """The last part of the name: of all that the program depends on, in hex digits."""
        return self.name.removesuffix(SUFFIX).rpartition("-")[2]

    @property
    def target(self) -> str:
        """What it runs on, "" for a bad entry."""
        return " ".join(filter(None, (self.program.target, self.program.features))) if self.program else ""

    @property
    def variant(self) -> str:
        """What a further program of a model is for; "" for its main program."""
        parts = dict(self.program.key) if self.program else {}
        return " ".join(f"{name} {parts[name].rstrip(';')}" for name in VARIANTS if parts.get(name))

    @property
    def weight_sources(self) -> list[str]:
        """Names of the entries that hold a part of its weights."""
        if self.program is None or not self.program.shared:
            return []
        names = [key.entry_name() for key in stored_key(self.program.key).weight_sources]
        return [names[number] for number in dict.fromkeys(run[1] for run in self.program.shared)]

    def is_called(self, name: str) -> bool:
        """Whether a name of the command line means this entry."""
        is_path = os.path.basename(name) == self.name and os.path.dirname(name) in ("", os.path.dirname(self.path))
        is_number = len(name) >= LEAST_DIGITS and (self.fingerprint.startswith(name) or self.digest.startswith(name))
        token = self.program.part(TOKEN) if self.program else ""
        return is_path or is_number or bool(name and name in (self.model_name, token))

    def summary(self) -> dict[str, Any]:
        """One line's worth, as plain data."""
        known = super().summary() | {"used": self.used}
        if self.program is not None:
            known |= {
                "target": self.program.target,
                "features": self.program.features,
                "model": self.fingerprint,
                "model_name": self.model_name,
                "token": self.program.part(TOKEN),
                "variant": self.variant,
                "delegated": self.program.delegated,
                "operators": len(self.program.operators),
            }
        return known

    def details(self) -> dict[str, Any]:
        """Everything but the segments' bytes, as plain data."""
        known = self.summary() | {"path": self.path}
        if self.program is not None:
            known |= {"operators_count": len(self.program.operators), **_details(self.program, self.weights_bytes)}
        return known


def open_entries(path: str | None, *, verify: bool = False) -> list[Entry]:
    """The entries of a directory, sorted by name, or the one at `path`; None is the user's cache directory.

    Makes no directory: a user without one has no entries.

    Raises:
        CacheError: the directory cannot be used.
        FileNotFoundError: there is nothing at `path`.
    """
    if path is None or os.path.isdir(path):
        directory = open_directory(path)
        names = [name for name in directory.names() if name.endswith(SUFFIX)] if directory else []
    elif os.path.lexists(path):
        directory, names = open_directory(os.path.dirname(path) or "."), [os.path.basename(path)]
    else:
        raise FileNotFoundError(f"{path}: there is no such file or directory")
    if directory is None:
        return []
    models, uses, entries = model_names(directory), read_log(directory).uses, []
    with progress(len(names)) as bar:
        for name in names:
            bar.begin(name)
            entries.append(Entry(directory, name, verify=verify))
            bar.done()
    entries = [entry for entry in entries if not (entry.is_unread and _is_gone(directory, entry.name))]
    for entry in entries:
        entry.model_name = models.get(entry.fingerprint, "")
        entry.used = max(entry.used, uses.get(entry.name, 0.0))
    return entries


def _is_gone(directory: CacheDirectory, name: str) -> bool:
    """Whether somebody removed the file meanwhile."""
    try:
        directory.stat(name)
    except (OSError, MemoryError) as error:
        return isinstance(error, FileNotFoundError)
    return False


def open_directory(path: str | None) -> CacheDirectory | None:
    """A directory of entries, None for the user's cache directory; None where that does not exist.

    Raises:
        CacheError: the directory cannot be used.
        FileNotFoundError: there is nothing at `path`.
    """
    wanted = user_directory() if path is None else path
    if not os.path.lexists(wanted):
        if path is None:
            return None
        raise FileNotFoundError(f"{path}: there is no such file or directory")
    directory = open_cache_directory(wanted)
    directory.unseen = True  # looking is no use
    return directory


def _open_source(directory: CacheDirectory, name: str) -> int:
    """A descriptor of an entry that has weights of others: in a directory, or in the environment's prebuilt folders.

    Raises:
        OSError, CacheError: as `CacheDirectory.open`.
    """
    try:
        return directory.open(name)
    except FileNotFoundError:
        for folder in environment_folders():
            try:
                return open_prebuilt_folder(folder).open(name)
            except (OSError, CacheError):
                continue
        raise


UNUSABLE = (JitDelegateError, OSError, ImportError, ValueError, OverflowError, MemoryError)
"""Errors about a file that stop no command."""


def trouble_of(error: BaseException) -> tuple[str, bool]:
    """What is wrong with a file, and whether it could not be read: then its content may be good.

    Only a check that failed proves it bad, of its own content or of another entry that has a part of its weights.
    """
    if isinstance(error, MemoryError):
        return "there is no memory for it", True
    cause = error.__cause__ if isinstance(error, IncompleteError) else None
    is_read = isinstance(error, (ProgramError, CacheError))
    is_unread = not is_read or (isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError))
    return (f"cannot be read: {error}" if not is_read else str(error)), is_unread


def stamp(status: os.stat_result) -> Stamp:
    """Of a file; another one, or another content, has another stamp."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _checked(program: Program, verify: bool) -> Program:
    """The program with its later fields read, and its weights hashed if asked for.

    Raises:
        OSError: mapped weights changed meanwhile, or could not be read: then zeros are in their place.
    """
    assert program.operators is not None and program.kernels is not None
    if not verify:
        return program
    file: Any = getattr(program.weights, "obj", None)
    try:
        verify_weights(program)
    except ProgramError as error:
        if getattr(file, "shared", False):
            file.look()
            if file.changes:
                raise OSError("its weights changed, or could not be read, while they were hashed") from error
        raise
    return program


def _details(program: Program, weights_bytes: int) -> dict[str, Any]:
    return {
        "key": dict(program.key),
        "loader": program.loader,
        "inputs": [_port(port) for port in program.inputs],
        "outputs": [_port(port) for port in program.outputs],
        "operators": [operator.contents() for operator in program.operators],
        "kernels": [kernel.contents() for kernel in program.kernels],
        "launches": [launch.contents() for launch in program.launches],
        "partitions": [partition.contents() for partition in program.partitions],
        "segments": {"code": len(program.code), "weights": weights_bytes},
        "memory": {
            "arena": program.arena_bytes,
            "scratch per thread": program.scratch_bytes,
            "sync": program.sync_bytes,
        },
        "weights_hash": program.weights_hash,
        "failure": program.failure,
        "notes": list(program.notes),
    }


def _port(port: Port) -> dict[str, Any]:
    return port.contents() | {"shape": list(port.shape)}
