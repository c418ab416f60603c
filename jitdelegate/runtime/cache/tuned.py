"""Tables of tuned kernels: for each problem that was measured, the fastest candidate. One file per kind of GPU.

The user's tables lie beside the entries, the package's own in the CUDA target's folder; both have the same format. The
first line has a hash of the rest, so that damage is found. Each other line has five fields, separated by tabs: the
problem, the candidate, the effort, and the microseconds of that candidate and of the one that the cost model takes.
Damage and every failure read as an empty table, which is counted.
"""

from __future__ import annotations

import os

from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import CacheDirectory, close_quietly
from jitdelegate.runtime.cache.lock import Lock
from jitdelegate.runtime.cache.store import DAMAGED, UNREADABLE, UNTRUSTED, counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIX = ".tuned"
EFFORTS = ("fast", "full")
"""How many candidates were measured, the fewest first."""
LARGEST_FILE = 1 << 24
LONGEST_WAIT = 10.0
"""Seconds to wait for another process that writes a table."""
_HEAD = "jitdelegate tuned kernels 1 "
_FIELDS = 5


class Winner:
    """What was found for a problem.

    Attributes:
        candidate: the fastest one.
        effort: how it was found: one of EFFORTS.
        microseconds: its time.
        before: the time of the candidate that the cost model takes.
    """

    __slots__ = ("before", "candidate", "effort", "microseconds")

    def __init__(self, candidate: str, effort: str, microseconds: float, before: float) -> None:
        self.candidate = candidate
        self.effort = effort
        self.microseconds = microseconds
        self.before = before

    def serves(self, effort: str) -> bool:
        """Whether measuring by this effort would find nothing else."""
        return EFFORTS.index(self.effort) >= EFFORTS.index(effort)


def table_name(kind: str) -> str:
    """The file of a kind of GPU: "sm_90-132.tuned" of "sm_90:132"."""
    return kind.replace(":", "-") + SUFFIX


def table_content(winners: Mapping[str, Winner]) -> bytes:
    """The file of a table; equal tables have equal bytes."""
    lines = "".join(
        f"{problem}\t{winner.candidate}\t{winner.effort}\t{winner.microseconds:.3f}\t{winner.before:.3f}\n"
        for problem, winner in sorted(winners.items())
    )
    return f"{_HEAD}{xxh3_128_hexdigest(lines.encode())}\n{lines}".encode()


def parse_table(content: bytes) -> dict[str, Winner]:
    """The table in a file.

    Raises:
        ValueError: it is damaged, or no table.
    """
    head, _, lines = content.decode().partition("\n")
    if head != f"{_HEAD}{xxh3_128_hexdigest(lines.encode())}":
        raise ValueError("its first line does not fit the others")
    winners = {}
    for line in lines.splitlines():
        fields = line.split("\t")
        if len(fields) != _FIELDS or fields[2] not in EFFORTS:
            raise ValueError(f"{line[:80]!r} is no line of a table")
        winners[fields[0]] = Winner(fields[1], fields[2], float(fields[3]), float(fields[4]))
    return winners


def read_table(directory: CacheDirectory | None, kind: str) -> dict[str, Winner]:
    """The user's table for a kind of GPU; empty where there is none. A bad one counts as a miss."""
    try:
        return _read(directory, kind) if directory is not None else {}
    except (OSError, MemoryError):
        counts.miss(UNREADABLE)
        return {}


def _read(directory: CacheDirectory, kind: str) -> dict[str, Winner]:
    """As `read_table`.

    Raises:
        OSError, MemoryError: the table could not be read, and may be good.
    """
    try:
        descriptor = directory.open(table_name(kind))
    except FileNotFoundError:
        return {}
    except CacheError:
        counts.miss(UNTRUSTED)
        return {}
    try:
        return parse_table(os.read(descriptor, LARGEST_FILE))
    except ValueError:
        counts.miss(DAMAGED)
        return {}
    finally:
        close_quietly(descriptor)


def add_to_table(directory: CacheDirectory | None, kind: str, winners: Mapping[str, Winner]) -> None:
    """Add to the user's table, over what it has for the same problems. What other processes added meanwhile stays; a
    failure means that the next start measures again."""
    if directory is None or not winners:
        return
    lock = Lock(directory, table_name(kind))
    lock.acquire(LONGEST_WAIT)
    try:
        directory.write(table_name(kind), table_content({**_read(directory, kind), **winners}))
        counts.writes += 1
    except (OSError, MemoryError):
        counts.write_failures += 1
    finally:
        lock.release()


def tuned_digest(used: Mapping[str, str]) -> str:
    """The digest of the candidates that a compilation took from tables, by problem."""
    return xxh3_128_hexdigest("".join(f"{problem}\t{name}\n" for problem, name in sorted(used.items())).encode())
