"""Eviction: of a model's programs for other shapes, or values of shape inputs, a directory keeps those used last.

Asked only after one was stored, so that a warm start pays nothing. Other processes may read, store and evict at the
same time: a removed entry is a miss, and processes that run it keep its pages.
"""

from __future__ import annotations

import os

from jitdelegate.errors import CacheError, ProgramError
from jitdelegate.runtime.cache.key import NODES, SHAPES, SUFFIX, VALUES, stored_key
from jitdelegate.runtime.cache.lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.cache.key import Key

    Kind = tuple[str, str]
    OpenFront = Callable[[CacheDirectory, str], Program]

MOST_STORED = 32
"""Most shapes, and values of shape inputs, whose programs a directory keeps beside one program of a model.
`engine.executable.MOST_SHAPES` of them stay in memory."""


class _Stored:
    """An entry of a further program.

    Attributes:
        kind: its shapes and values, as key parts.
        used: seconds since 1970 of its last use, as far as it is known.
    """

    __slots__ = ("file", "kind", "name", "used")

    def __init__(self, name: str, kind: Kind, file: os.stat_result, used: float) -> None:
        self.name = name
        self.kind = kind
        self.file = file
        self.used = used


def evict(directory: CacheDirectory, key: Key, uses: Mapping[str, float], open_front: OpenFront) -> int:
    """Remove the least recently used further programs beside that for `key`, beyond MOST_STORED; returns how many.

    The program for the file's shapes, and programs of other subgraphs, options and devices, do not count. An entry that
    another process is making, or looks up after it did, is left.

    Args:
        uses: name of an entry to the time of its last use by this process; the file system may not keep it.
        open_front: reads the program of an entry, as far as its key.
    Raises:
        OSError: the directory cannot be read.
    """
    beginning = f"{key.entry_name().rpartition('-')[0]}-"
    names = [name for name in directory.names() if name.startswith(beginning) and name.endswith(SUFFIX)]
    if len(names) <= MOST_STORED:
        return 0
    stored = _stored(directory.looking(), names, key, uses, open_front)
    latest = dict[tuple[str, str], float]()
    for program in stored:
        latest[program.kind] = max(latest.get(program.kind, 0.0), program.used)
    latest.pop(_kind(key), None)
    left = sorted(latest, key=lambda kind: latest[kind])[: max(0, len(latest) - (MOST_STORED - 1))]
    return sum(_remove(directory, program) for program in stored if program.kind in left)


def _stored(
    directory: CacheDirectory, names: Sequence[str], key: Key, uses: Mapping[str, float], open_front: OpenFront
) -> list[_Stored]:
    """The further programs of the same program as `key`'s."""
    base, stored = key.without(*_FURTHER).entry_name(), []
    for name in names:
        try:
            file = directory.stat(name)
            other = stored_key(open_front(directory, name).key)
        except (OSError, ValueError, OverflowError, CacheError, ProgramError):
            continue  # whoever looks for it finds out
        kind = _kind(other)
        if any(kind) and other.without(*_FURTHER).entry_name() == base:
            used = max(file.st_atime, file.st_mtime, uses.get(name, 0.0))
            stored.append(_Stored(name, kind, file, used))
    return stored


_FURTHER = (SHAPES, VALUES, NODES)


def _kind(key: Key) -> Kind:
    return key.part(SHAPES), key.part(VALUES)


def _remove(directory: CacheDirectory, stored: _Stored) -> bool:
    """Remove an entry that is still the one that was looked at, and that nobody is making."""
    lock = Lock(directory, stored.name)
    lock.acquire(0.0)
    try:
        if lock.timed_out or not os.path.samestat(directory.stat(stored.name), stored.file):
            return False
        directory.remove(stored.name)
        return True
    except OSError:
        return False
    finally:
        lock.release()
