"""What names a model: the hash of its content, and a memory of the hashes of files that have not changed."""

from __future__ import annotations

import os
import struct
import time

from xxhash import xxh3_128, xxh3_128_digest, xxh3_128_hexdigest

from jitdelegate.errors import CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from jitdelegate.cache.place import Place

    PathOrBytes = str | os.PathLike[str] | ReadableBuffer

_PIECE = 1 << 18
# A file may change once more within the clock tick of its time stamp; only stamps this old tell all changes apart.
_SETTLED_NANOSECONDS = 2_000_000_000


def fingerprint(path_or_bytes: PathOrBytes, *, memo: Memo | None = None) -> str:
    """xxh3-128 of the content as 32 hex digits; equal contents have equal fingerprints, wherever they come from.

    Args:
        path_or_bytes: a file, read piece by piece, or the content itself.
        memo: answers for a file that has not changed since its fingerprint was taken.
    Raises:
        OSError: the file cannot be read.
        ValueError: the path has a null character.
        TypeError: it is neither a path nor bytes.
    """
    if not isinstance(path_or_bytes, (str, os.PathLike)):
        return xxh3_128_hexdigest(path_or_bytes)
    descriptor = os.open(path_or_bytes, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _of_file(descriptor, memo)
    finally:
        os.close(descriptor)


def _of_file(descriptor: int, memo: Memo | None) -> str:
    before = os.fstat(descriptor)
    known = memo.get(before) if memo else ""
    if known:
        return known
    started = time.time_ns()
    found = _hash(descriptor)
    # A change while it is read moves the file's time stamp on, so what is remembered here is never asked for again.
    if memo and _settled(before, started):
        memo.put(before, found)
    return found


def _hash(descriptor: int) -> str:
    """Through a small buffer, which stays in the CPU's cache and takes no harm from a file that shrinks meanwhile."""
    state, piece = xxh3_128(), bytearray(_PIECE)
    view = memoryview(piece)
    while count := os.readv(descriptor, [piece]):
        state.update(view[:count])
    return state.hexdigest()


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _settled(found: os.stat_result, now: int) -> bool:
    return now - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED_NANOSECONDS


class Memo:
    """Fingerprints of files by device, inode, size and both time stamps, in one small file beside the entries.

    The time of the last status change cannot be set by `cp -p`, `touch` or `rsync -t`, so a swapped file is told apart.
    Damage and every failure read as "not known".
    """

    __slots__ = ("_place",)

    NAME = ".fingerprints"
    LARGEST = 256
    _MAGIC = b"JITDFPR1"
    _RECORD = struct.Struct("<QQQqq16s")
    _HASH_BYTES = 16

    def __init__(self, place: Place) -> None:
        self._place = place

    def get(self, found: os.stat_result) -> str:
        """The fingerprint of the file, "" where it is not known."""
        return self._load().get(_identity(found), b"").hex()

    def put(self, found: os.stat_result, value: str) -> None:
        """Remember it, and forget the oldest of more than LARGEST."""
        identity = _identity(found)
        known = self._load()
        known.pop(identity, None)
        known[identity] = bytes.fromhex(value)
        try:
            records = b"".join(self._RECORD.pack(*key, value) for key, value in [*known.items()][-self.LARGEST :])
            self._place.write(self.NAME, self._MAGIC + xxh3_128_digest(records) + records, flush=False)
        except (OSError, struct.error):
            pass  # the next start hashes the file again

    def _load(self) -> dict[tuple[int, ...], bytes]:
        records = self._read()
        if len(records) % self._RECORD.size:
            return {}
        return {tuple(record[:-1]): record[-1] for record in self._RECORD.iter_unpack(records)}

    def _read(self) -> bytes:
        start = len(self._MAGIC) + self._HASH_BYTES
        try:
            descriptor = self._place.open(self.NAME)
        except (OSError, CacheError):
            return b""
        try:
            content = os.read(descriptor, start + self.LARGEST * self._RECORD.size)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
        records = content[start:]
        whole = content[:start] == self._MAGIC + xxh3_128_digest(records)
        return records if whole else b""
