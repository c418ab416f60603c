"""Stored fingerprints of large models, in the cache directory."""

from __future__ import annotations

import os
import struct
import time

from jitdelegate.runtime.cache.key import hash_file
from jitdelegate.runtime.cache.records import Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.cache.directory import CacheDirectory

_SETTLED_NANOSECONDS = 60_000_000_000
"""Least age of a file's last change for remembering it. The system has written such a file back by itself, so that
flushing is quick, and a later change gets another time stamp however coarse the file system's clock is."""


def _can_be_remembered(descriptor: int, status: os.stat_result) -> bool:
    """Whether every change from now on moves the file's time stamps away from those of `status`.

    A write through a mapping moves them only if the page was clean, so all pages are flushed. A page that is dirty
    again after that has moved them already.
    """
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) <= _SETTLED_NANOSECONDS:
        return False
    try:
        from jitdelegate.runtime.shared_file import tells_changes  # not before: few models are so large

        if not tells_changes(descriptor):
            return False
        os.fdatasync(descriptor)
    except (ImportError, OSError):
        return False
    return True


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Memo:
    """Fingerprints of large files by device, inode, size and both time stamps, in one small file beside the entries.

    `cp -p`, `touch` and `rsync -t` cannot set the time of the last status change, so a swapped file is detected. Damage
    and every failure read as "not known"; a wrong fingerprint is forgotten.
    """

    __slots__ = ("_records",)

    NAME = ".fingerprints"
    LARGEST = 256
    _MAGIC = b"JITDFPR2"
    _RECORD = struct.Struct("<QQQqq16s")

    def __init__(self, directory: CacheDirectory) -> None:
        self._records = Records(directory, self.NAME, self._MAGIC, self._RECORD.size, self.LARGEST)

    def fingerprint(self, descriptor: int) -> str:
        """The fingerprint of an open file, hashed and remembered where it is not known; raises OSError if it cannot be
        read."""
        before = os.fstat(descriptor)  # first: later writes change the time stamps, or prevent remembering
        known = self.get(before)
        if known:
            return known
        may_be_remembered = _can_be_remembered(descriptor, before)
        value = hash_file(descriptor)
        if may_be_remembered and _identity(os.fstat(descriptor)) == _identity(before):
            self.put(before, value)
        return value

    def get(self, status: os.stat_result) -> str:
        """The fingerprint of the file; "" where it is not known."""
        return self._load().get(_identity(status), b"").hex()

    def put(self, status: os.stat_result, value: str) -> None:
        """Remember a fingerprint, and forget the oldest of more than LARGEST."""
        identity = _identity(status)
        known = self._load()
        known.pop(identity, None)
        known[identity] = bytes.fromhex(value)
        self._store(known)

    def forget(self, status: os.stat_result) -> None:
        """Forget the fingerprint of a file, which was wrong."""
        known = self._load()
        kept = {identity: value for identity, value in known.items() if identity[:2] != _identity(status)[:2]}
        if len(kept) < len(known):
            self._store(kept)

    def _store(self, known: dict[tuple[int, ...], bytes]) -> None:
        try:
            records = b"".join(self._RECORD.pack(*key, value) for key, value in known.items())
        except struct.error:
            return  # the next start hashes the file again
        self._records.write(records)

    def _load(self) -> dict[tuple[int, ...], bytes]:
        return {tuple(record[:-1]): record[-1] for record in self._RECORD.iter_unpack(self._records.read())}
