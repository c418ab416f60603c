"""A small file of records of equal size beside the entries. Damage and every failure read as an empty file, or as if
nothing had been written."""

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

    def write(self, content: bytes) -> None:
        """Replace the file by these records; the first of too many are left out."""
        content = content[-self._largest * self._size :]
        try:  # noqa: SIM105 - contextlib is not imported on the load path
            self._directory.write(self._name, self._magic + xxh3_128_digest(content) + content, flush=False)
        except (OSError, MemoryError):
            pass  # the next process finds it out again

    def read(self) -> bytes:
        """All records, in the order in which they were written."""
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
