"""Members of a tar file that is not trusted: only plain files, as `export` and the common tools write them.

Headers are read in pieces of a fixed size, and every offset is checked against the file's length, so no number in the
file decides how much memory or disk is taken. The standard library's reader trusts such numbers.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator

from jitdelegate.errors import CacheError

Member = tuple[str, int, int]
"""Name, offset of the first byte, length in bytes."""
_BLOCK = 512
_LONGEST_RECORDS = 1 << 16
"""Bytes of a PAX header or GNU's long name, which are about the next member."""
_RECORD = 20 * _BLOCK
"""Bytes of which a whole file is a multiple."""
_LONGEST_NUMBER = 20
_NAME, _SIZE, _CHECKSUM, _KIND = slice(0, 100), slice(124, 136), slice(148, 156), slice(156, 157)
_MAGIC, _PREFIX = slice(257, 262), slice(345, 500)
_MODES = (0o400, 0o644)
"""Of members that `export` writes."""
_PLAIN_FILES, _PAX, _LONG_NAME = (b"0", b"\0"), b"x", b"L"


def members(descriptor: int, nbytes: int, *, exact: bool = False) -> Iterator[Member]:
    """The members of an open tar file of `nbytes` bytes, all of which lie in it.

    Args:
        exact: refuse a file that `export` would write in another way, also where nobody reads it.
    Raises:
        CacheError: it is damaged, cut short, compressed, or holds anything but plain files.
        OSError: it cannot be read.
    """
    at, first, records = 0, 0, dict[bytes, bytes]()
    while any(header := _bytes_at(descriptor, at, _BLOCK)):
        size = _size_of(header, at)
        kind, at = header[_KIND], at + _BLOCK
        if kind in (_PAX, _LONG_NAME) and not records and size <= _LONGEST_RECORDS:
            text = _bytes_at(descriptor, at, size)
            records = _records(text, at) if kind == _PAX else {b"path": text.rstrip(b"\0")}
        elif kind in _PLAIN_FILES:
            size = _number(records.get(b"size", b"%d" % size), 10, at)
            name = records.get(b"path", _name_of(header)).decode("utf-8", "backslashreplace")
            if any(key.startswith(b"GNU.sparse") for key in records):
                raise CacheError(f"{name!r} is a sparse file, expected a plain one")
            if size > nbytes - at:
                raise CacheError(f"{name!r} has {size} bytes, but only {nbytes - at} are left of the file")
            if exact and _bytes_at(descriptor, first, at - first) not in _headers(name, size):
                raise CacheError(f"the header at byte {first} is not as it was written")
            yield name, at, size
            records = {}
        else:
            raise CacheError(f"the member at byte {at - _BLOCK} is of kind {kind!r}, expected a plain file")
        end = at + size
        at += -(-size // _BLOCK) * _BLOCK
        if not records:
            first = at
            if exact:
                _check_zeros(descriptor, end, at)
    if records:
        raise CacheError("the last member is missing")
    if exact:
        if nbytes != -(-(at + 2 * _BLOCK) // _RECORD) * _RECORD:
            raise CacheError(f"it has {nbytes} bytes, but its last member ends at byte {at}")
        _check_zeros(descriptor, at, nbytes)


def content(descriptor: int, at: int, nbytes: int, piece: int) -> Iterator[bytes]:
    """A member's bytes in pieces of at most `piece` bytes; raises as `members`."""
    for start in range(at, at + nbytes, piece):
        yield _bytes_at(descriptor, start, min(piece, at + nbytes - start))


def _headers(name: str, size: int) -> list[bytes]:
    """What `export` may write before a member's bytes."""
    known = [tarfile.TarInfo(name) for _ in _MODES]
    for member, mode in zip(known, _MODES, strict=True):
        member.size, member.mode = size, mode
    return [member.tobuf(tarfile.PAX_FORMAT) for member in known]


def _check_zeros(descriptor: int, start: int, end: int) -> None:
    for at in range(start, end, _RECORD):
        if any(_bytes_at(descriptor, at, min(_RECORD, end - at))):
            raise CacheError(f"there are bytes between {start} and {end}, where no member is")


def _bytes_at(descriptor: int, at: int, nbytes: int) -> bytes:
    found = os.pread(descriptor, nbytes, at)
    if len(found) < nbytes:
        raise CacheError(f"it ends at byte {at + len(found)}, expected {nbytes} bytes from {at} on")
    return found


def _size_of(header: bytes, at: int) -> int:
    """The length in a header, whose checksum is right."""
    if header[_MAGIC] != b"ustar" or _number(header[_CHECKSUM], 8, at) != _checksum(header):
        hint = "" if at else ", where a tar file that is not compressed has one"
        raise CacheError(f"there is no header at byte {at}{hint}")
    return _number(header[_SIZE], 8, at)


def _checksum(header: bytes) -> int:
    return sum(header[: _CHECKSUM.start] + b" " * 8 + header[_CHECKSUM.stop :])


def _number(text: bytes, base: int, at: int) -> int:
    digits = text.strip(b" \0")
    if len(digits) > _LONGEST_NUMBER or not digits.isdigit():
        raise CacheError(f"the header at byte {at} has the number {text[:_LONGEST_NUMBER]!r}")
    try:
        return int(digits, base)
    except ValueError as error:
        raise CacheError(f"the header at byte {at} has the number {text!r}") from error


def _name_of(header: bytes) -> bytes:
    name, prefix = (header[field].partition(b"\0")[0] for field in (_NAME, _PREFIX))
    return prefix + b"/" + name if prefix else name


def _records(content: bytes, at: int) -> dict[bytes, bytes]:
    """The records "length key=value\\n" of a PAX header."""
    found, start = dict[bytes, bytes](), 0
    while start < len(content):
        space = content.find(b" ", start, start + _LONGEST_NUMBER)
        end = start + _number(content[start : max(space, start)], 10, at)
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if end > len(content) or not equals or content[end - 1 : end] != b"\n":
            raise CacheError(f"the PAX header at byte {at} is damaged")
        found[key] = value
        start = end
    return found
