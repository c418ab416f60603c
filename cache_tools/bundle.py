"""An archive of entries that is read: its members, and the statement and signature before them if it is signed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import chain, zip_longest

from cache_tools.tar_members import Member, content, members
from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import close_quietly
from jitdelegate.runtime.cache.public_key import PublicKey
from jitdelegate.runtime.cache.statements import (
    BUNDLE,
    LARGEST_SIGNATURE,
    LARGEST_STATEMENT,
    Signature,
    Statement,
    parse_signature,
    parse_statement,
)
from jitdelegate.runtime.cache.statements import Member as Signed

MANIFEST, SIGNATURE = ".manifest", ".signature"
"""The first members of a signed archive."""
LONGEST_NAME = 128
PIECE = 1 << 20
"""Bytes that are copied at once."""


class Bundle:
    """An archive in an open file.

    Attributes:
        manifest: the bytes that are signed; b"" where nothing is.
        signature: of them, which nobody has checked; None where there is none.
    """

    def __init__(self, descriptor: int, *, exact: bool = False) -> None:
        """
        Args:
            exact: refuse an archive that `export` would write in another way, as `members` does.
        Raises:
            OSError: the file cannot be read.
            CacheError: it is no regular file, or begins like no archive.
        """
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CacheError(f"it is no regular file (mode {stat.filemode(status.st_mode)})")
        self._descriptor = descriptor
        self._members = members(descriptor, status.st_size, exact=exact)
        self.manifest = b""
        self.signature: Signature | None = None
        self._read_signature()

    def members(self) -> Iterator[Member]:
        """The members behind the signature, once; raises as `tar_members.members`."""
        return self._members

    def content(self, at: int, nbytes: int) -> Iterator[bytes]:
        """A member's bytes, in pieces."""
        return content(self._descriptor, at, nbytes, PIECE)

    def statement(self) -> Statement:
        """What the manifest says, whoever wrote it.

        Raises:
            CacheError: there is none.
        """
        return parse_statement(self.manifest, BUNDLE)

    def verified_statement(self, key: PublicKey) -> Statement:
        """What the manifest says, if the key's owner signed it.

        Raises:
            CacheError: it is not signed so.
        """
        if self.signature is None:
            raise CacheError(f"it is not signed, expected a signature by the key {key.key_id}")
        key.check(self.manifest, self.signature)
        return self.statement()

    def listed_members(self, statement: Statement) -> Iterator[tuple[Signed, int]]:
        """The members behind the signature with the offsets of their content, once, if they are those of a statement.

        Raises:
            CacheError: there are others, or they are in another order.
        """
        for found, member in zip_longest(self._members, statement.members):
            name, at, nbytes = found or ("", 0, 0)
            if member is None or (name, nbytes) != (member.name, member.size):
                what = f"{name[:LONGEST_NAME]!r} of {nbytes} bytes" if found else "nothing more"
                listed = f"{member.name!r} of {member.size} bytes" if member else "nothing more"
                raise CacheError(f"the archive holds {what} where its manifest has {listed}")
            yield member, at

    def _read_signature(self) -> None:
        first = next(self._members, None)
        if first is None or first[0] != MANIFEST:
            self._members = chain([first] if first else [], self._members)
            return
        second = next(self._members, ("", 0, 0))
        if second[0] != SIGNATURE or first[2] > LARGEST_STATEMENT or second[2] > LARGEST_SIGNATURE:
            raise CacheError(f"it begins with {MANIFEST}, but no signature follows, or one of them is too large")
        self.manifest = b"".join(self.content(*first[1:]))
        self.signature = parse_signature(b"".join(self.content(*second[1:])))


def signer_of(path: str) -> str:
    """The key id that an archive's signature names, unchecked; "" where there is none to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        signature = Bundle(descriptor).signature
    except (CacheError, OSError):
        return ""
    finally:
        close_quietly(descriptor)
    return signature.key_id if signature else ""
