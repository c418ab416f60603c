"""Entries in an archive as `ls` sees them: what the beginning of each says. Nothing is stored, and nobody vouches for
it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from cache_tools.bundle import Bundle
from cache_tools.entries import UNUSABLE, Entry, trouble_of
from jitdelegate.errors import CacheError, ProgramError
from jitdelegate.program.program import HEADER_BYTES
from jitdelegate.program.read import read_front, weights_start
from jitdelegate.runtime.cache.directory import close_quietly
from jitdelegate.runtime.cache.key import SUFFIX
from jitdelegate.runtime.cache.model_names import LARGEST_FILE as LARGEST_NAMES
from jitdelegate.runtime.cache.model_names import NAME, parse_names

_LARGEST_FRONT = 1 << 28
"""Bytes of a program before its weights that are read to show it."""


class Packed(Entry):
    """One entry of an archive."""

    def __init__(self, name: str, bundle: Bundle, at: int, nbytes: int) -> None:
        self.name, self.size, self.path, self.model_name = name, nbytes, "", ""
        self.written = self.used = 0.0
        self.stamp = self.program = None
        self.weights_bytes = 0
        self.trouble, self.is_unread = "", False
        try:
            start = weights_start(b"".join(bundle.content(at, min(nbytes, HEADER_BYTES))), nbytes)
            if start > min(nbytes, _LARGEST_FRONT):
                raise ProgramError(f"weights are at {start} of {nbytes} bytes")
            self.program = read_front(b"".join(bundle.content(at, start)), nbytes, verify_code=False)
        except UNUSABLE as error:
            self.trouble, self.is_unread = trouble_of(error)


class Archive:
    """What is in a tar file of entries.

    Attributes:
        entries: in the order of the file.
        signer: the key id that the signature names, unchecked; "" for an archive without a signature.
        version: of a signed archive, unchecked; 0 for another one.
    """

    def __init__(self, path: str) -> None:
        """
        Raises:
            CacheError: it is no archive of entries.
            OSError: it cannot be read.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            bundle = Bundle(descriptor)
            self.signer = bundle.signature.key_id if bundle.signature else ""
            self.version = bundle.statement().version if bundle.signature else 0
            self.entries, models = list[Packed](), dict[str, str]()
            for name, at, nbytes in bundle.members():
                if name.endswith(SUFFIX):
                    self.entries.append(Packed(name, bundle, at, nbytes))
                elif name == NAME and nbytes <= LARGEST_NAMES:
                    models = parse_names(b"".join(bundle.content(at, nbytes)))
                else:
                    raise CacheError(f"the archive holds {name[:80]!r}, expected entries only")
        except CacheError as error:
            raise CacheError(f"{path} is no archive of entries: {error}") from error
        finally:
            close_quietly(descriptor)
        for entry in self.entries:
            entry.model_name = models.get(entry.fingerprint, "")

    def summary(self) -> dict[str, Any]:
        """All of it, as plain data."""
        entries = [entry.summary() for entry in self.entries]
        return {"signer": self.signer, "version": self.version, "verified": False, "entries": entries}

    def lines(self) -> Iterable[str]:
        """What `ls` prints below the entries."""
        if self.signer:
            yield f"version {self.version}, signed by the key {self.signer}, as it says: import --verify checks that"
        else:
            yield "not signed"
