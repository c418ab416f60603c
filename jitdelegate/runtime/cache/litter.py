"""Litter: temporary and lock files of processes that died while they wrote or compiled.

A start looks for it if the directory has changed since it was swept, which the directory's own status tells, and again
once it has stored a program. So it costs a warm start nothing.
"""

from __future__ import annotations

import os
import time

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import LOCK_SUFFIX, STAGED_SUFFIX, TEMPORARY_SUFFIX, close_quietly

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.cache.directory import CacheDirectory

STALE_AFTER = 3600.0
"""Seconds after which a file that no lock tells about is litter."""
LOCKED_AFTER = 2.0
"""Seconds, more than its writer needs from making a temporary file to locking it."""


def sweep_changed(directory: CacheDirectory) -> None:
    """Remove the litter of a directory, and mark it as swept, unless something is left.

    Raises:
        OSError, MemoryError: the directory cannot be read or written.
    """
    before = directory.own_stat()
    if not sweep(directory):
        directory.mark_swept(before)


def sweep(directory: CacheDirectory) -> dict[str, str]:
    """Remove the litter of a directory.

    Returns:
        The names of temporary and lock files that are still there: "" for one that a living process may use, else why
        it could not be removed.
    Raises:
        OSError: the directory cannot be read.
    """
    passing = (TEMPORARY_SUFFIX, STAGED_SUFFIX, LOCK_SUFFIX)
    names = [name for name in directory.names() if name.startswith(".") and name.endswith(passing)]
    found = {name: _swept(directory, name) for name in names}
    return {name: why for name, why in found.items() if why is not None}


def _swept(directory: CacheDirectory, name: str) -> str | None:
    """None if the file is gone; else as `sweep`."""
    try:
        descriptor = directory.open(name)
    except FileNotFoundError:
        return None
    except (OSError, CacheError) as error:
        return str(error)
    try:
        return (directory.remove(name) or None) if _is_litter(directory, name, descriptor) else ""
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    finally:
        close_quietly(descriptor)


def _is_litter(directory: CacheDirectory, name: str, descriptor: int) -> bool:
    """Whether a file has no living writer or holder; then its lock is held until the descriptor is closed.

    Raises:
        OSError: its status cannot be read.
    """
    status = os.fstat(descriptor)
    age = time.time() - status.st_mtime
    if fcntl is None or name.endswith(STAGED_SUFFIX):
        return age > STALE_AFTER
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # there are no locks
        return age > STALE_AFTER
    is_free = name.endswith(LOCK_SUFFIX) or age > LOCKED_AFTER
    return is_free and os.path.samestat(directory.stat(name), status)
