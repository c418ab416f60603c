"""Outdated entries: those of other compilers, or of other versions of this package, that nobody has used for long.

Looked for after a program was stored. Entries of the tool chain that stored it stay, however old they are.
"""

from __future__ import annotations

import time

from jitdelegate.errors import CacheError, ProgramError
from jitdelegate.runtime.cache.key import FORMAT, GENERATORS, SUFFIX, TARGET, TOOLCHAIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.cache.key import Key

    OpenFront = Callable[[CacheDirectory, str], Program]

UNUSED = 30 * 86400.0
"""Seconds after which nobody is expected to come back to an older compiler."""


def remove_outdated(directory: CacheDirectory, key: Key, uses: Mapping[str, float], open_front: OpenFront) -> int:
    """Remove entries that were not used for UNUSED seconds, and that the tool chain of `key` replaces or cannot read;
    returns how many.

    Args:
        uses: name of an entry to the time of its last use; the file system may not keep it.
        open_front: reads the program of an entry, as far as its key.
    Raises:
        OSError: the directory cannot be read.
    """
    oldest, looking = time.time() - UNUSED, directory.looking()
    old = [name for name in directory.names() if name.endswith(SUFFIX) and _used(directory, name, uses) < oldest]
    return sum(_is_outdated(looking, name, key, open_front) and not directory.remove(name) for name in old)


def _used(directory: CacheDirectory, name: str, uses: Mapping[str, float]) -> float:
    """Time of the last use, in seconds; infinity for a file that cannot be looked at."""
    try:
        file = directory.stat(name)
    except OSError:
        return float("inf")
    return max(file.st_atime, file.st_mtime, uses.get(name, 0.0))


def _is_outdated(looking: CacheDirectory, name: str, key: Key, open_front: OpenFront) -> bool:
    try:
        program = open_front(looking, name)
    except ProgramError:
        return True  # of another format, or damaged
    except (OSError, ValueError, OverflowError, CacheError):
        return False
    if any(program.part(each) != key.part(each) for each in (FORMAT, GENERATORS)):
        return True
    return program.part(TARGET) == key.part(TARGET) and program.part(TOOLCHAIN) != key.part(TOOLCHAIN)
