"""Files of a remote: each comes within a bounded time and size, or is an error.

fsspec opens what the URL names: S3, GCS, HTTP, files. It may wait for ever for a server, so it works in a thread of its
own, which is left behind when it takes too long.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from jitdelegate.errors import CacheError

LONGEST_ANSWER = 10.0
"""Seconds for a small file, and for each part of a large one."""
SLOWEST = 1 << 20
"""Bytes per second of a remote that is worth its while."""
_PIECE = 1 << 20
_MOST_PIECES = 4
"""Pieces that wait to be written."""


class RemoteError(OSError):
    """The remote did not give a file, for whatever reason."""


def small_file(url: str, largest: int) -> bytes:
    """The content of a file.

    Args:
        largest: bytes.
    Raises:
        FileNotFoundError: there is none.
        CacheError: it is larger.
        RemoteError: it does not come.
    """
    content = bytearray()
    for piece in pieces(url, 0):
        content += piece
        if len(content) > largest:
            raise CacheError(f"a file of more than {largest} bytes was found, expected a signature")
    return bytes(content)


def pieces(url: str, nbytes: int) -> Iterator[bytes]:
    """The content of a file, as it comes.

    Args:
        nbytes: how long it should be; it gets time for that.
    Raises:
        FileNotFoundError, RemoteError: as `small_file`.
    """
    deadline, reading = time.monotonic() + LONGEST_ANSWER + nbytes / SLOWEST, _Reading(url)
    try:
        reading.start()
    except RuntimeError as error:
        raise RemoteError(str(error)) from error  # there are too many threads
    try:
        while True:
            try:
                found = reading.found.get(timeout=max(0.0, min(LONGEST_ANSWER, deadline - time.monotonic())))
            except queue.Empty:
                raise RemoteError(f"it did not answer within {LONGEST_ANSWER:.0f} seconds") from None
            if isinstance(found, FileNotFoundError):
                raise found
            if isinstance(found, BaseException):
                raise RemoteError(_words(found)) from found
            if not found:
                return
            yield found
            reading.room.release()
    finally:
        reading.is_over = True
        reading.room.release()


class _Reading(threading.Thread):
    """One file that is read.

    Attributes:
        found: pieces of it; b"" after the last, or the error that ended it.
        room: for pieces that are not taken yet.
        is_over: nobody wants more.
    """

    def __init__(self, url: str) -> None:
        super().__init__(name="jitdelegate remote", daemon=True)
        self._url = url
        self.found: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()
        self.room = threading.Semaphore(_MOST_PIECES)
        self.is_over = False

    def run(self) -> None:
        try:
            from fsspec.core import url_to_fs  # here: even the import may take long

            system, path = url_to_fs(self._url)
            in_one_stream = {"block_size": 0, "size": 1} if "http" in system.protocol else {}
            with system.open(path, "rb", **in_one_stream) as file:
                while not self.is_over and (piece := file.read(_PIECE)):
                    self.found.put(piece)
                    self.room.acquire()
            self.found.put(b"")
        except BaseException as error:  # noqa: BLE001  # whatever a library of some store raises, it is one for us
            self.found.put(error)


def _words(error: BaseException) -> str:
    if isinstance(error, ImportError) and (error.name or "").startswith("fsspec"):
        return "remotes need the package fsspec, which is not installed: the extra 'remote'"
    return " ".join(str(error).split())[:300] or type(error).__name__
