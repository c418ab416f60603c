"""Signed statements about entries: which files there are, how long they are, and their SHA-256.

The hashes inside an entry find damage, not forgery. A statement is a line of JSON, and its signature another one; both
have one way to be written, so that no other bytes mean the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import LARGEST_FILE

BUNDLE, ENTRY = "jitdelegate bundle", "jitdelegate entry"
"""Kinds of statements: a signature for one kind is none for the other."""
LARGEST_STATEMENT = 1 << 24
LARGEST_SIGNATURE = 1 << 10
LARGEST_VERSION = (1 << 63) - 1
_FORMAT = 1
_DIGEST = re.compile("[0-9a-f]{64}")
_SIGNATURE = re.compile("[0-9a-f]{128}")


@dataclass(frozen=True, slots=True)
class Member:
    """One file.

    Attributes:
        size: in bytes.
        sha256: of the content, 64 hex digits.
        key: the parts of the program's key, for people; empty for a file that is no entry.
    """

    name: str
    size: int
    sha256: str
    key: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statement:
    """What is signed.

    Attributes:
        kind: BUNDLE or ENTRY.
        members: in the order of the files.
        version: of a bundle; a signer's later ones have larger numbers.
    """

    kind: str
    members: tuple[Member, ...]
    version: int = 0

    def content(self) -> bytes:
        """The bytes to sign."""
        members = [
            {"key": member.key, "name": member.name, "sha256": member.sha256, "size": member.size}
            for member in self.members
        ]
        return _line({"format": _FORMAT, "kind": self.kind, "members": members, "version": self.version})


@dataclass(frozen=True, slots=True)
class Signature:
    """Ed25519's signature of a statement.

    Attributes:
        key_id: whose it is said to be: SHA-256 of the public key (DER of its SubjectPublicKeyInfo), 64 hex digits.
        value: 64 bytes.
    """

    key_id: str
    value: bytes

    def content(self) -> bytes:
        """The bytes of the file."""
        return _line({"algorithm": "ed25519", "key": self.key_id, "signature": self.value.hex()})


def parse_statement(content: bytes, kind: str) -> Statement:
    """The statement of this kind in bytes whose signature was checked, or that are only shown.

    Raises:
        CacheError: they are no such statement.
    """
    try:
        known = json.loads(content)
        members = tuple(map(_member, known["members"]))
        statement = Statement(known["kind"], members, _whole(known["version"], LARGEST_VERSION))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CacheError(f"the statement cannot be read: {error}") from error
    if statement.kind != kind or statement.content() != content:
        raise CacheError(f"the statement is no {kind} of format {_FORMAT}")
    return statement


def parse_signature(content: bytes) -> Signature:
    """The signature in a file.

    Raises:
        CacheError: it is none.
    """
    try:
        known = json.loads(content)
        signature = Signature(_text(known["key"], _DIGEST), bytes.fromhex(_text(known["signature"], _SIGNATURE)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CacheError("the signature cannot be read") from error
    if signature.content() != content:
        raise CacheError("the signature cannot be read")
    return signature


def verified(pieces: Iterable[bytes], member: Member) -> Iterator[bytes]:
    """The pieces of a file, as they come.

    Raises:
        CacheError: after the last piece: together they are not what was signed. As soon as there are more bytes, too.
    """
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        if size > member.size:
            break
        yield piece
    if size != member.size or digest.hexdigest() != member.sha256:
        raise CacheError(f"{member.name} has another content than the signed one")


def _member(known: dict[str, Any]) -> Member:
    name, key = known["name"], known["key"]
    is_text = isinstance(name, str) and isinstance(key, dict) and all(isinstance(one, str) for one in key.values())
    if not is_text:
        raise TypeError("names and keys are no texts")
    return Member(name, _whole(known["size"], LARGEST_FILE), _text(known["sha256"], _DIGEST), key)


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"a text is {str(value)[:80]!r}, expected {pattern.pattern}")
    return value


def _whole(value: object, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"a number is {str(value)[:20]}, expected one from 0 to {largest}")
    return value


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
