"""Statistics of a directory: what is there, and how it was used."""

from __future__ import annotations

import os

from jitdelegate.runtime.cache.directory import open_cache_directory, user_directory
from jitdelegate.runtime.cache.key import SUFFIX
from jitdelegate.runtime.cache.store import whole_log
from jitdelegate.runtime.cache.use_log import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from jitdelegate.runtime.cache.directory import CacheDirectory


def cache_stats(serialization_dir: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Numbers about a directory of programs, as plain data.

    Other processes count when they end, or after they stored a program; those that are killed do not.

    Args:
        serialization_dir: the directory; None is the user's cache directory. It is not made.
    Returns:
        `directory`, its path. `limit`, in bytes, of the last process that had one; None where none had. `entries`, and
        their `bytes`. When entries were written: `oldest`, `newest`, and used: `last_used`, in seconds since 1970, None
        without entries. `hits`, `misses` by the kind of reason and `evictions`, counted since the time `counted_since`,
        None where nothing was counted.
    Raises:
        CacheError: the directory cannot be used.
        OSError: it cannot be read.
    """
    path = user_directory() if serialization_dir is None else os.fspath(serialization_dir)
    log, files = Log(), dict[str, os.stat_result]()
    if os.path.lexists(path):
        directory = open_cache_directory(path)
        log, files = whole_log(directory), dict(_entries(directory))
    written = [file.st_mtime for file in files.values()]
    used = [max(file.st_mtime, file.st_atime, log.uses.get(name, 0.0)) for name, file in files.items()]
    return {
        "directory": path,
        "limit": log.limit,
        "entries": len(files),
        "bytes": sum(file.st_size for file in files.values()),
        "oldest": min(written, default=None),
        "newest": max(written, default=None),
        "last_used": max(used, default=None),
        "hits": log.hits,
        "misses": log.misses,
        "evictions": log.evictions,
        "counted_since": log.since,
    }


def _entries(directory: CacheDirectory) -> Iterator[tuple[str, os.stat_result]]:
    for name in directory.names():
        try:
            if name.endswith(SUFFIX):
                yield name, directory.stat(name)
        except FileNotFoundError:
            continue  # it was removed meanwhile
