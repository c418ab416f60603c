"""Entries as the commands see them: opened with every check that the cache makes, or the reason why not."""

from __future__ import annotations

import os
from typing import Any

from jitdelegate.cache.entry import open_entry
from jitdelegate.cache.key import SUFFIX
from jitdelegate.cache.place import Place, open_place, user_directory
from jitdelegate.errors import JitDelegateError
from jitdelegate.program.program import Port, Program
from jitdelegate.program.read import verify_weights


class Entry:
    """One entry, good or bad.

    Attributes:
        path: of the file.
        size: in bytes, 0 where there is no such file.
        program: what it holds, without weights; None for a bad entry.
        weights_bytes: how long its weights are.
        trouble: what is wrong with it, "" for a good one.
    """

    def __init__(self, place: Place, name: str, *, verify: bool) -> None:
        self.path = os.path.join(place.path, name)
        self.size = 0
        self.program: Program | None = None
        self.weights_bytes = 0
        self.trouble = ""
        try:
            self.size = place.stat(name).st_size
            program = _checked(open_entry(place, name, verify_code=verify), verify)
        except (JitDelegateError, OSError, ValueError, OverflowError, MemoryError) as error:
            self.trouble = str(error) or "there is no memory for it"
            return
        # let go at once: a directory may hold more than a process can map
        self.weights_bytes, program.weights = len(program.weights), b""
        self.program = program

    @property
    def name(self) -> str:
        """The file's name."""
        return os.path.basename(self.path)

    def summary(self) -> dict[str, Any]:
        """One line's worth, as plain data."""
        known: dict[str, Any] = {"name": self.name, "bytes": self.size, "trouble": self.trouble}
        if self.program is not None:
            known |= {
                "target": self.program.target,
                "features": self.program.features,
                "model": self.program.part("model"),
                "token": self.program.part("token"),
                "delegated": self.program.delegated,
                "operators": len(self.program.operators),
            }
        return known

    def details(self) -> dict[str, Any]:
        """Everything but the segments' bytes, as plain data."""
        known = self.summary() | {"path": self.path}
        if self.program is not None:
            known |= _details(self.program, self.weights_bytes)
        return known


def open_entries(path: str | None, *, verify: bool = False) -> list[Entry]:
    """The entries of a directory, sorted by name, or the one at `path`; None is the user's cache directory.

    Makes no directory: a user without one has no entries.

    Raises:
        CacheError: the directory cannot be used.
        FileNotFoundError: there is nothing at `path`.
    """
    if path is None:
        path = user_directory()
        if not os.path.lexists(path):
            return []
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path}: there is no such file or directory")
    if os.path.isdir(path):
        place = open_place(path)
        return [Entry(place, name, verify=verify) for name in place.names() if name.endswith(SUFFIX)]
    place = open_place(os.path.dirname(path) or ".")
    return [Entry(place, os.path.basename(path), verify=verify)]


def _checked(program: Program, verify: bool) -> Program:
    """The program with its later fields read, and its weights hashed if asked for."""
    assert program.operators is not None and program.kernels is not None
    if verify:
        verify_weights(program)
    return program


def _details(program: Program, weights_bytes: int) -> dict[str, Any]:
    return {
        "key": dict(program.key),
        "loader": program.loader,
        "inputs": [_port(port) for port in program.inputs],
        "outputs": [_port(port) for port in program.outputs],
        "operators": [_fields(operator) for operator in program.operators],
        "kernels": [_fields(kernel) for kernel in program.kernels],
        "launches": [_fields(launch) for launch in program.launches],
        "partitions": [_fields(partition) for partition in program.partitions],
        "segments": {"code": len(program.code), "weights": weights_bytes},
        "memory": {
            "arena": program.arena_bytes,
            "scratch per thread": program.scratch_bytes,
            "sync": program.sync_bytes,
        },
        "weights_hash": program.weights_hash,
    }


def _port(port: Port) -> dict[str, Any]:
    return _fields(port) | {"shape": list(port.shape)}


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}
