"""A remote: entries that other machines compiled, fetched into the directory after a miss there.

NAME.sig, beside the entries, has a statement about the entry for a key of that name, and its signature, a line each.
Nothing of a remote gets a name in the directory before every byte of it is checked. Whatever is wrong with a remote is
told once; then the program is compiled, as if there were none.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Protocol
from urllib.parse import unquote, urlsplit

from jitdelegate.errors import CacheError, ProgramError
from jitdelegate.program.program import Program
from jitdelegate.program.read import verify_weights
from jitdelegate.runtime.cache.directory import READ_ONLY_FILE, CacheDirectory, close_quietly, open_cache_directory
from jitdelegate.runtime.cache.key import SETTLED, SUFFIX, TUNED, Key, stored_key
from jitdelegate.runtime.cache.public_key import PublicKey, read_public_key
from jitdelegate.runtime.cache.remote_files import RemoteError, pieces, small_file
from jitdelegate.runtime.cache.staging import Staging
from jitdelegate.runtime.cache.statements import (
    ENTRY,
    LARGEST_SIGNATURE,
    Member,
    Statement,
    parse_signature,
    parse_statement,
    verified,
)
from jitdelegate.runtime.cache.trouble import tell_remote

OpenProgram = Callable[[CacheDirectory, str], Program]
SIGNATURE_SUFFIX = ".sig"
PAUSE = 60.0
"""Seconds for which a remote that did not answer is left alone."""
_LARGEST_FILE = 1 << 16
"""Bytes of a statement about one entry with its signature."""
_PIECE = 1 << 20
_PLAIN_NAME = re.compile(r"[\w-]{1,120}" + re.escape(SUFFIX), re.ASCII)
_resting: dict[str, float] = {}
"""URL -> when it is asked again, by the monotonic clock."""


class Source(Protocol):
    """Where entries come from."""

    def find(self, name: str) -> tuple[str, Iterator[bytes]]:
        """The entry for the keys of a name: its own name, and its bytes, which whoever took them to the end may trust.

        Here and for the bytes:

        Raises:
            FileNotFoundError: there is no such entry.
            CacheError: nobody who is trusted vouches for it.
            RemoteError: it does not come.
        """
        ...


class SignedSource:
    """Entries of a URL, whose signatures are checked."""

    def __init__(self, url: str, key: PublicKey) -> None:
        self._url = url
        self._key = key

    def find(self, name: str) -> tuple[str, Iterator[bytes]]:
        folder = self._url.rstrip("/")
        member = signed_member(small_file(f"{folder}/{name}{SIGNATURE_SUFFIX}", _LARGEST_FILE), name, self._key)
        return member.name, verified(pieces(f"{folder}/{member.name}", member.size), member)


class OwnFolder:
    """A folder of this machine that only the user and root can write, as a cache directory."""

    def __init__(self, path: str) -> None:
        """
        Raises:
            CacheError: there is no such folder, or others could write it.
        """
        if not os.path.isdir(path):
            raise CacheError(f"there is no folder {path}")
        self._directory = open_cache_directory(path)

    def find(self, name: str) -> tuple[str, Iterator[bytes]]:
        beginning, names = name.removesuffix(SUFFIX), self._names()
        found = [each for each in names if each.startswith(beginning) and each.endswith(SUFFIX)]
        name = name if name in names or not found else found[0]  # machines without a compiler take any one's
        return name, self._content(name)

    def _names(self) -> list[str]:
        try:
            return self._directory.names()
        except OSError as error:
            raise RemoteError(str(error)) from error

    def _content(self, name: str) -> Iterator[bytes]:
        try:
            descriptor = self._directory.open(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RemoteError(str(error)) from error
        try:
            while piece := os.read(descriptor, _PIECE):
                yield piece
        except OSError as error:
            raise RemoteError(str(error)) from error
        finally:
            close_quietly(descriptor)


def signature_file(statement: bytes, signature: bytes) -> bytes:
    """The file beside an entry."""
    return statement + b"\n" + signature


def signed_member(content: bytes, name: str, key: PublicKey) -> Member:
    """The entry that a signature's file is about, if the key's owner signed that.

    Raises:
        CacheError: it is signed by somebody else, or about something else than one entry.
    """
    statement, _, signature = content.partition(b"\n")
    if not signature or len(signature) > LARGEST_SIGNATURE:
        raise CacheError(f"{name}{SIGNATURE_SUFFIX} is no signature")
    key.check(statement, parse_signature(signature))
    members = parse_statement(statement, ENTRY).members
    if len(members) != 1 or not _PLAIN_NAME.fullmatch(members[0].name):
        raise CacheError(f"{name}{SIGNATURE_SUFFIX} is about no entry")
    return members[0]


def entry_statement(member: Member) -> bytes:
    """What is signed about an entry at a remote."""
    return Statement(ENTRY, (member,)).content()


def source_at(url: str, key_path: str) -> Source:
    """The entries at a URL.

    Args:
        key_path: the signer's public key; "" for none, where only a folder of this machine is trusted.
    Raises:
        CacheError: it cannot be trusted, or the key cannot be read.
    """
    if key_path:
        try:
            return SignedSource(url, read_public_key(key_path))
        except OSError as error:
            raise CacheError(f"the key {key_path} cannot be read: {error.strerror}") from error
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise CacheError(f"it is no URL: {error}") from error
    if parts.scheme in ("", "file") and not parts.netloc:
        return OwnFolder(unquote(parts.path) if parts.scheme else url)
    raise CacheError(
        "no key says whose programs, which are machine code, can be trusted; expected the option remote_key, or a "
        "folder of this machine that others cannot write"
    )


def pull(
    directory: CacheDirectory, url: str, key_path: str, key: Key, open_front: OpenProgram, open_entry: OpenProgram
) -> bool:
    """Fetch the entry for `key` into the directory, with the entries that have parts of its weights; whether that was
    done. Nothing is raised.

    Args:
        key_path: as of `source_at`.
        open_front, open_entry: those of the store.
    """
    if time.monotonic() < _resting.get(url, 0.0):
        return False
    staging = Staging(directory)
    try:
        _stage(source_at(url, key_path), staging, key, open_front)
        for name in staging.temporary:
            verify_weights(open_entry(staging, name))
        staging.commit()
    except RemoteError as error:
        _resting[url] = time.monotonic() + PAUSE
        tell_remote(shown(url), shown(str(error)))
        return False
    except (CacheError, ProgramError) as error:
        tell_remote(shown(url), shown(str(error)))
        return False
    except (_OtherProgramError, OSError, ValueError, MemoryError):
        return False  # there is no such entry, or the directory takes none, which is told when the program is compiled
    finally:
        staging.clear()
    return True


class _OtherProgramError(Exception):
    """The remote's entry is of no use here: another compiler made it, or one that failed there."""


def _stage(source: Source, staging: Staging, key: Key, open_front: OpenProgram) -> str:
    """Write the entry to a temporary file, and before it those that have parts of its weights and are missing; its
    name."""
    name, content = source.find(key.entry_name())
    staging.temporary[name] = staging.write_beside(name, content, mode=READ_ONLY_FILE)
    program = open_front(staging, name)
    own, difference = stored_key(program.key), key.difference(program.key)
    if program.failure or (difference and difference[0] in SETTLED):
        raise _OtherProgramError
    if difference or own.entry_name() != name:
        raise CacheError(f"what is there for {key.entry_name()} is another entry, {own.entry_name()}")
    sources = [source.changed(TUNED, "") for source in own.weight_sources]  # theirs are other kernels
    for number in dict.fromkeys(run[1] for run in program.shared):
        if number < len(sources) and not _is_there(staging, sources[number], open_front):
            _stage(source, staging, sources[number], open_front)
    staging.temporary[name] = staging.temporary.pop(name)  # it gets its name after them
    return name


def _is_there(directory: CacheDirectory, key: Key, open_front: OpenProgram) -> bool:
    try:
        return not key.difference(open_front(directory, key.entry_name()).key)
    except (OSError, CacheError, ProgramError):
        return False


def shown(text: str) -> str:
    """A text with a URL without the user's name and password, and without what follows a question mark."""
    return re.sub(r"\?\S*", "", re.sub(r"//[^/\s]*@", "//", text))
