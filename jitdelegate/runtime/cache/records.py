"""A small file of records of equal size beside the entries, written by whoever learns something. Damage and every failure
read as an empty file, or as if nothing had been written."""

from __future__ import annotations

import os

from xxhash import xxh3_128_digest

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import close_quietly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.cache.directory import CacheDirectory

_HASH_BYTES = 16


class Records:
    """The file `name` of a cache directory: a magic number, a hash, and at most `largest` records of `size` bytes."""

    __slots__ = ("_directory", "_largest", "_magic", "_name", "_size")

    def __init__(self, directory: CacheDirectory, name: str, magic: bytes, size: int, largest: int) -> None:
        self._directory = directory
        self._name = name
        self._magic = magic
        self._size = size
        self._largest = largest

    def read(self) -> list[bytes]:
        """All records, in the order in which they were written."""
        content = self._content()
        return [content[at : at + self._size] for at in range(0, len(content), self._size)]

    def write(self, records: list[bytes]) -> None:
        """Replace the file by these records; the first of too many are left out."""
        content = b"".join(records[-self._largest :])
        try:
            self._directory.write(self._name, self._magic + xxh3_128_digest(content) + content, flush=False)
        except (OSError, MemoryError):
            pass  # the next process finds it out again

    def _content(self) -> bytes:
        start = len(self._magic) + _HASH_BYTES
        try:
            descriptor = self._directory.open(self._name)
        except (OSError, CacheError):
            return b""
        try:
            content = os.read(descriptor, start + self._largest * self._size)
        except (OSError, MemoryError):
            return b""
        finally:
            close_quietly(descriptor)
        records = content[start:]
        is_whole = content[:start] == self._magic + xxh3_128_digest(records) and len(records) % self._size == 0
        return records if is_whole else b""
