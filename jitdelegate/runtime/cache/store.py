"""Entries: found, opened, checked, written and replaced, without ever failing a model.

Any problem with an entry or its directory is a counted miss with a reason; the model is compiled again and the next
`put` replaces the entry. Of an opened file, what says how to run is read into private memory, large weights are shared.
Weights that it lacks lie in entries of other programs of the model (`Key.weight_sources`); they are mapped to their
addresses among the program's own, so that programs share pages on disk and in memory.
"""

from __future__ import annotations

import atexit
import errno
import mmap
import os
import time

from jitdelegate.errors import CacheError, IncompleteError, ProgramError
from jitdelegate.program.read import complete, read_front, verify_weights, weights_start
from jitdelegate.runtime.cache.directory import (
    READ_ONLY_FILE,
    CacheDirectory,
    close_quietly,
    open_cache_directory,
    read_pieces,
)
from jitdelegate.runtime.cache.key import SHAPES, SUFFIX, TOOLCHAIN, VALUES, hash_file, stored_key
from jitdelegate.runtime.cache.key import fingerprint as hash_content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _typeshed import ReadableBuffer

    from jitdelegate.program.program import FileParts, Program
    from jitdelegate.runtime.cache.key import Key, PathOrBytes
    from jitdelegate.runtime.cache.use_log import Log

    Piece = tuple[int, int, int]

LONGEST_WAIT = 3600.0
"""Seconds to wait for another process that compiles the same program."""
LONGEST_SILENCE = 15.0
"""Seconds to wait for a sign that it still computes."""
LEAST_SHARED = 2 << 20
"""Smallest weights to share, in bytes. Reading smaller ones takes no longer than mapping and watching them, and runs
need not look whether the file has changed, which takes some microseconds."""
_HEAD_BYTES = 1 << 17
"""Bytes that hold header, table and code of nearly all programs."""

HIT, ABSENT, UNREADABLE, UNTRUSTED, DAMAGED = "hit", "absent", "unreadable", "untrusted", "damaged"
INCOMPLETE = "incomplete"
OFF, NO_DIRECTORY = "off", "directory"
NO_REMOTE = "", ""


class Counts:
    """Running totals.

    Attributes:
        hits: entries that were used.
        misses: by the kind of reason (`Lookup.kind`).
        writes: entries that were written.
        write_failures: entries that could not be written.
        lock_timeouts: compilations that did not wait for another process any longer.
        evictions: entries that were removed because there were too many for other shapes or values, or for the limit,
            or because they were outdated.
        remote_hits: those of the hits whose entries came from a remote at this start.
    """

    __slots__ = ("evictions", "hits", "lock_timeouts", "misses", "remote_hits", "write_failures", "writes")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """All to zero."""
        self.hits = 0
        self.misses: dict[str, int] = {}
        self.writes = 0
        self.write_failures = 0
        self.lock_timeouts = 0
        self.evictions = 0
        self.remote_hits = 0

    def miss(self, kind: str) -> None:
        """Count one miss."""
        self.misses[kind] = self.misses.get(kind, 0) + 1


counts = Counts()
_MOST_USES = 1024


class Tally(Counts):
    """What a process did in one directory, and has not written into the directory's log yet.

    Attributes:
        process: its number; one that was forked begins anew.
        limit: that of its stores; None for none.
        uses: names of entries to the time of their last use, in order.
    """

    __slots__ = ("limit", "process", "uses")

    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()
        self.limit: int | None = None

    def reset(self) -> None:
        super().reset()
        self.uses: dict[str, float] = {}

    def use(self, name: str) -> None:
        """Note the use of an entry."""
        self.uses.pop(name, None)
        self.uses[name] = time.time()
        if len(self.uses) > _MOST_USES:
            self.uses.pop(next(iter(self.uses)), None)


_tallies: dict[str, Tally] = {}
"""By the directory's path."""


def tally_of(path: str) -> Tally:
    """The tally of this process for a directory."""
    path = path if path[:1] == "/" else os.path.abspath(path)
    tally = _tallies.get(path)
    if tally is None or tally.process != os.getpid():
        tally = _tallies[path] = Tally()
    return tally


class Lookup:
    """Answer of the cache.

    Attributes:
        hit: whether a usable entry was found.
        kind: "hit", or the kind of miss: "absent", "off" (by the user), "directory" (unusable), "unreadable",
            "untrusted" (others may have written the entry), "damaged", "incomplete" (another entry, which has a part of
            the weights, is missing or bad), or the name of the key part that differs ("model", "toolchain", ...).
        reason: one sentence for the user; "" for a hit.
        path: the entry's file, also for a miss; None without a directory.
        program: the program, read and checked; for a miss only after `fetch` compiled it.
        write_failure: why a compiled program was not stored; "" if it was.
        remote: the URL that the entry came from just now; "" where it was here, or was compiled.
    """

    __slots__ = ("hit", "kind", "path", "program", "reason", "remote", "write_failure")

    def __init__(self, kind: str, reason: str = "", path: str | None = None, program: Program | None = None) -> None:
        self.hit = kind == HIT
        self.kind = kind
        self.reason = reason
        self.path = path
        self.program = program
        self.remote = ""
        self.write_failure = ""


class Store:
    """The entries of one directory.

    Attributes:
        trouble: why there is no directory; else "".
        kind: the kind of every miss without a directory.
        private_weights: whether programs share no memory with the file.
        most_bytes: limit of the directory's programs; None for no limit.
        remote: URL of a remote, and path of the public key that its entries are signed with; "" for none of them.
    """

    __slots__ = ("_directory", "kind", "most_bytes", "private_weights", "remote", "trouble")

    def __init__(
        self,
        directory: CacheDirectory | None,
        trouble: str = "",
        kind: str = NO_DIRECTORY,
        *,
        private_weights: bool = False,
        most_bytes: int | None = None,
        remote: tuple[str, str] = NO_REMOTE,
    ) -> None:
        self._directory = directory
        self.most_bytes = most_bytes
        self.private_weights = private_weights
        self.remote = remote
        self.trouble = trouble
        self.kind = kind

    @property
    def directory(self) -> CacheDirectory | None:
        """The directory; None without a cache."""
        return self._directory

    @property
    def machine_notes(self) -> CacheDirectory | None:
        """Where this machine notes what is of no use on others, beside the entries; None where it notes nothing."""
        directory = self.directory
        return None if directory is None or directory.for_others else directory

    @property
    def open_notes(self) -> CacheDirectory | None:
        """The same, as far as it is open: to ask opens nothing."""
        return self.machine_notes

    def get(self, key: Key) -> Lookup:
        """The entry for `key`, checked and counted; its weights are not hashed yet."""
        lookup = self._look_up(key)
        self._count(lookup)
        return lookup

    def put(self, key: Key, *parts: ReadableBuffer) -> str:
        """Store a program's file, in parts, as the entry for `key`, over an existing one; "" or why not."""
        if self.directory is None:
            return self.trouble
        try:
            if self.most_bytes is None:
                self.directory.write(key.entry_name(), *parts, mode=READ_ONLY_FILE)
            else:
                self._write_within(self.directory, self.most_bytes, key, parts)
        except (ImportError, OSError, MemoryError, CacheError) as error:
            counts.write_failures += 1
            reason = f"{self.directory.path} does not take the program: {str(error) or 'no memory'}"
            _tell(self.directory.path, f"cache directory {reason}", _remedy(error))
            return reason
        counts.writes += 1
        return ""

    def _write_within(
        self, directory: CacheDirectory, most_bytes: int, key: Key, parts: Sequence[ReadableBuffer]
    ) -> None:
        """Write an entry, and keep the directory's limit; raises as `limit.write_within`."""
        from jitdelegate.runtime.cache.limit import write_within  # not before: most directories have none

        removed = write_within(directory, most_bytes, key, parts, lambda: whole_log(directory).uses, open_front)
        _count_evictions(directory, removed)

    def fetch(self, key: Key, compile: Callable[[], FileParts], *, longest_wait: float = LONGEST_WAIT) -> Lookup:
        """The entry for `key`; after a miss, the program that `compile` returns, in parts of its file, which is stored.

        Processes that miss the same entry at the same time compile it once. The result always has a program; `hit` and
        `reason` are those of the first look-up, unless another process compiled it meanwhile.

        Raises:
            ProgramError: `compile` did not return a program.
        """
        return self.fill(key, compile, self.get(key), longest_wait=longest_wait)

    def fill(
        self, key: Key, compile: Callable[[], FileParts], lookup: Lookup, *, longest_wait: float = LONGEST_WAIT
    ) -> Lookup:
        """As `fetch`, after the look-up."""
        if lookup.hit:
            return lookup
        if self.directory is None:
            return self._compile(key, compile, lookup)
        from jitdelegate.runtime.cache.lock import Lock  # not before: a hit needs none

        lock = Lock(self.directory, key.entry_name())
        lock.acquire(longest_wait, LONGEST_SILENCE)
        counts.lock_timeouts += lock.timed_out
        try:
            again = self._look_up(key)  # another process may have compiled it since the first look-up
            if again.hit:
                self._count(again)
                return again
            with lock.beating():
                return self._pull(key) or self._compile(key, compile, lookup)
        finally:
            lock.release()

    def verified(self, key: Key) -> Lookup:
        """The entry for `key` with all its bytes checked, for those that only look: nothing counts as used."""
        lookup = self._look_up(key)
        if lookup.hit and lookup.program is not None and not _is_whole(lookup.program):
            return Lookup(DAMAGED, f"{key.entry_name()} is damaged: its weights have another hash", lookup.path)
        return lookup

    def first(self, keys: Sequence[Key]) -> tuple[Key, Lookup] | None:
        """The first key with a usable entry, counted as a hit; None where there is none."""
        for key in keys:
            lookup = self._look_up(key)
            if lookup.hit:
                self._count(lookup)
                return key, lookup
        return None

    def weight_sources(self, key: Key) -> list[Program | None]:
        """The programs whose weights one for `key` may share, verified; None for each that is not usable."""
        from jitdelegate.program.shared_pages import unload  # not before: a hit needs none

        programs = [self._look_up(source).program for source in key.weight_sources] if self.directory else []
        sources = [program if program is not None and _is_whole(program) else None for program in programs]
        for source in sources:
            if source is not None:
                unload(memoryview(source.weights))
        return sources

    def remember_model(self, fingerprint: str, path: str) -> None:
        """Remember the file name of a model that was compiled, for `cache_tools`."""
        if self.directory is not None:
            from jitdelegate.runtime.cache.model_names import remember_model  # not before: a hit needs none

            remember_model(self.directory, fingerprint, path)

    def sweep(self) -> None:
        """Remove what dead processes left, and mark the directory as swept, if it has changed since the last time; a
        failure leaves it to the next start."""
        try:
            if self.directory is not None and not self.directory.is_swept() and self.directory.is_writable():
                from jitdelegate.runtime.cache.litter import sweep_changed  # not before: few starts follow a change

                sweep_changed(self.directory)
        except (ImportError, OSError, MemoryError):
            return

    def refuse(self, key: Key, reason: str) -> None:
        """Count and remove an entry that the runtime found damaged (`reason`)."""
        self._count(Lookup(DAMAGED, reason))
        if self.directory is not None:
            self.directory.remove(os.path.basename(self._look_up(key).path or key.entry_name()))

    def fingerprint(self, path_or_bytes: PathOrBytes) -> str:
        """The content's fingerprint, remembered beside the entries; raises OSError for a file that cannot be read."""
        return hash_content(path_or_bytes, large=self._remembered_fingerprint)

    def _remembered_fingerprint(self, descriptor: int) -> str:
        if self.machine_notes is None:
            return hash_file(descriptor)
        from jitdelegate.runtime.cache.memo import Memo  # not before: few models are so large

        return Memo(self.machine_notes).fingerprint(descriptor)

    def forget_fingerprint(self, path_or_bytes: PathOrBytes) -> None:
        """Forget the remembered fingerprint of a file, which differs from its content's."""
        if self.machine_notes is None or not isinstance(path_or_bytes, (str, os.PathLike)):
            return
        from jitdelegate.runtime.cache.memo import Memo  # not before: files rarely change while they are compiled

        try:
            Memo(self.machine_notes).forget(os.stat(path_or_bytes))
        except OSError:
            return  # without the file nobody asks again

    def _pull(self, key: Key) -> Lookup | None:
        """The entry from the remote, which the directory then has; None where there is none that can be used."""
        url, public_key = self.remote
        if self.directory is None or not url:
            return None
        try:
            from jitdelegate.runtime.cache.remote import pull, shown  # not before: few programs have a remote

            is_new = pull(self.directory, url, public_key, key, open_front, open_entry)
        except (ImportError, OSError, MemoryError):
            return None
        pulled = self._look_up(key)
        if not is_new or not pulled.hit:
            return None
        self._count(pulled)
        counts.remote_hits += 1
        pulled.remote = shown(url)
        self._evict(key if pulled.program is None else stored_key(pulled.program.key))
        self._keep_limit(self.directory, os.path.basename(pulled.path or ""))
        return pulled

    def _keep_limit(self, directory: CacheDirectory, name: str) -> None:
        """Remove entries beyond the limit after this one was fetched."""
        if self.most_bytes is None:
            return
        try:
            from jitdelegate.runtime.cache.limit import make_room  # not before: most directories have none

            removed = make_room(directory, self.most_bytes, name, lambda: whole_log(directory).uses, open_front)
            _count_evictions(directory, removed)
        except (ImportError, OSError, MemoryError, CacheError) as error:
            _tell(directory.path, f"cache directory {directory.path} does not keep the program: {error}", "")

    def _compile(self, key: Key, compile: Callable[[], FileParts], lookup: Lookup) -> Lookup:
        """The compiled program, from its file if it was stored: shared pages instead of a copy on the heap."""
        parts = compile()
        lookup.write_failure = self.put(key, *parts)
        if not lookup.write_failure:
            kept = self._look_up(key)
            if kept.hit:
                lookup.program = kept.program
                self._evict(key)
                self._write_down(key)
                return lookup
        try:
            lookup.program = self._unstored(key, b"".join(parts))
        except IncompleteError:  # a source went away meanwhile: without it, the program has all its weights
            lookup.program = self._unstored(key, b"".join(compile()))
        return lookup

    def _count(self, lookup: Lookup) -> None:
        """Count a look-up, for this process and for the directory's log."""
        tally = self._tally(lookup)
        for each in (counts, tally):
            if lookup.hit:
                each.hits += 1
            else:
                each.miss(lookup.kind)
        tally.limit = self.most_bytes
        if lookup.hit and lookup.path:
            tally.use(os.path.basename(lookup.path))

    def _tally(self, lookup: Lookup) -> Tally:
        """The tally of the directory that a look-up is counted for; one that nobody reads where none is kept."""
        directory = self.machine_notes
        return Tally() if directory is None else tally_of(directory.path)

    def _write_down(self, key: Key) -> None:
        """Append this process's tally to the directory's log, after a program was stored."""
        directory = self.machine_notes
        if directory is not None:
            tally = tally_of(directory.path)
            tally.use(key.entry_name())
            _append(directory, tally)

    def _evict(self, key: Key) -> None:
        """After the program for `key` was stored, remove others like it, if there are too many, and outdated ones; a
        failure leaves them to the next time."""
        if self.directory is None:
            return
        try:
            from jitdelegate.runtime.cache.outdated import remove_outdated  # not before: a hit removes nothing

            uses = whole_log(self.directory).uses
            # a folder for others has no log: nobody knows what they use
            removed = 0 if self.directory.for_others else remove_outdated(self.directory, key, uses, open_front)
            if _is_further(key):
                from jitdelegate.runtime.cache.eviction import evict  # not before: most programs are not further ones

                removed += evict(self.directory, key, uses, open_front)
            _count_evictions(self.directory, removed)
        except (ImportError, OSError, MemoryError):
            return

    def _unstored(self, key: Key, content: bytes) -> Program:
        """The program in a file that could not be written."""
        start = weights_start(content, len(content))
        program = read_front(content[:start], len(content))
        weights = memoryview(content)[start:]
        if program.shared:
            from jitdelegate.runtime.cache.shared_weights import (
                whole_weights,  # not before: most programs share nothing
            )

            weights = whole_weights(program, weights, self.weight_sources(key))
        return complete(program, weights)

    def _look_up(self, key: Key) -> Lookup:
        if self.directory is None:
            return Lookup(self.kind, self.trouble)
        return self._look_up_in(self.directory, key, self.directory.open)

    def _look_up_in(self, directory: CacheDirectory, key: Key, open_source: Callable[[str], int]) -> Lookup:
        """The entry of a directory for `key`, also that of another toolchain where it serves as well.

        Args:
            open_source: opens the entry that has a part of its weights.
        """
        lookup = self._open(directory, key, key.entry_name(), open_source)
        if lookup.kind != ABSENT:
            return lookup
        for name in _of_any_toolchain(directory, key):
            other = self._open(directory, key, name, open_source)
            if other.hit:
                return other
            if not key.part(TOOLCHAIN):
                lookup = other
            elif other.kind == TOOLCHAIN:
                lookup = Lookup(TOOLCHAIN, other.reason, lookup.path)
        return lookup

    def _open(self, directory: CacheDirectory, key: Key, name: str, open_source: Callable[[str], int]) -> Lookup:
        """What the entry of this name is for `key`."""
        path = os.path.join(directory.path, name)
        try:
            program = open_entry(directory, name, key=key, private=self.private_weights, open_source=open_source)
        except FileNotFoundError:
            return Lookup(ABSENT, "there is no entry for it yet", path)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            return Lookup(UNREADABLE, f"{name} cannot be read: {str(error) or 'no memory'}", path)
        except CacheError as error:
            return Lookup(UNTRUSTED, str(error), path)
        except IncompleteError as error:
            return Lookup(INCOMPLETE, f"{name} lacks weights: {error}", path)
        except ProgramError as error:
            return Lookup(DAMAGED, f"{name} is damaged: {error}", path)
        difference = key.difference(program.key)
        if difference:
            return Lookup(difference[0], _explain(*difference), path)
        return Lookup(HIT, "", path, program)


def open_store(
    serialization_dir: str | bool | None,
    *,
    private_weights: bool = False,
    most_bytes: int | None = None,
    remote: tuple[str, str] = NO_REMOTE,
) -> Store:
    """The store in a directory: a path, None for the user's cache directory, or False for none.

    A directory that is untrusted or cannot be made gives a store whose every look-up is a miss, with the reason.
    """
    if isinstance(serialization_dir, bool):
        return Store(None, "the cache is turned off", OFF)
    try:
        directory = open_cache_directory(serialization_dir)
    except CacheError as error:
        _tell(serialization_dir or "", str(error), error.remedy)
        return Store(None, str(error))
    store = Store(directory, private_weights=private_weights, most_bytes=most_bytes, remote=remote)
    store.sweep()
    return store


def _is_further(key: Key) -> bool:
    """Whether the key is that of a program for other shapes than the file's, or for values of shape inputs."""
    return bool(key.part(SHAPES) or key.part(VALUES))


def _count_evictions(directory: CacheDirectory, removed: int) -> None:
    for each in (counts, tally_of(directory.path)):
        each.evictions += removed


def whole_log(directory: CacheDirectory) -> Log:
    """The directory's log, with what this process has not written down."""
    from jitdelegate.runtime.cache.use_log import read_log  # not before: a hit does not look

    log = read_log(directory)
    log.add(_log(tally_of(directory.path)))
    return log


def _log(tally: Tally) -> Log:
    from jitdelegate.runtime.cache.use_log import Log  # not before: a hit has none

    since = time.time() if tally.hits or tally.misses else None
    return Log(since, tally.hits, tally.misses, tally.evictions, tally.limit, tally.uses)


def _append(directory: CacheDirectory, tally: Tally) -> None:
    """Append a tally to the directory's log, and empty it; a failure leaves it to the next time."""
    try:
        from jitdelegate.runtime.cache.use_log import append  # not before: no run waits for it

        append(directory, _log(tally))
        tally.reset()
    except (ImportError, OSError, MemoryError):
        return


def _append_all() -> None:
    """Append what this process has not written down, as it ends."""
    for path, tally in [*_tallies.items()]:
        is_empty = not (tally.hits or tally.misses or tally.uses)
        try:
            if is_empty or tally.process != os.getpid() or not os.path.isdir(path):
                continue
            store = Store(open_cache_directory(path))
            if store.directory is not None and store.directory.is_writable():
                _append(store.directory, tally)
                store.sweep()
        except (CacheError, OSError, MemoryError):
            continue


atexit.register(_append_all)


def _is_whole(program: Program) -> bool:
    try:
        verify_weights(program)
    except ProgramError:
        return False
    return True


def _tell(directory: str, reason: str, remedy: str) -> None:
    from jitdelegate.runtime.cache.trouble import tell  # not before: most caches work

    tell(directory, reason, remedy)


def _remedy(error: BaseException) -> str:
    """What helps after a failed write, besides another directory."""
    if isinstance(error, CacheError):
        return error.remedy
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "more space there" if full else ""


def _of_any_toolchain(directory: CacheDirectory, key: Key) -> list[str]:
    """Names of the entries that differ from `key` in what the compiler settles."""
    beginning = key.entry_beginning()
    try:
        return [name for name in directory.names() if name.startswith(beginning) and name.endswith(SUFFIX)]
    except (OSError, MemoryError):
        return []


def _explain(name: str, found: str, expected: str) -> str:
    if name == TOOLCHAIN:
        return f"the entry was compiled by {found or 'an unknown toolchain'}, {expected} is installed"
    return f"the entry's {name} is {found!r}, expected {expected!r}"


def open_entry(
    directory: CacheDirectory,
    name: str,
    *,
    key: Key | None = None,
    private: bool = False,
    verify_code: bool = True,
    open_source: Callable[[str], int] | None = None,
) -> Program:
    """The program in a trusted file.

    Args:
        key: the key that is looked for. A program of another one, which is of no use, gets no weights.
        private: read the weights too, so that no file is used any more.
        verify_code: as in `read_parts`.
        open_source: opens another entry that has a part of the weights, by its name, as `CacheDirectory.open`, which is
            asked where it is None.
    Raises:
        OSError, CacheError: as `CacheDirectory.open`.
        IncompleteError: a part of the weights lies in an entry that is missing or bad.
        ProgramError: as `read_parts`.
        MemoryError: out of memory.
    """
    descriptor = directory.open(name)
    opened = [descriptor]
    try:
        nbytes = os.fstat(descriptor).st_size
        head = _read([(descriptor, 0, nbytes if nbytes <= LEAST_SHARED else _HEAD_BYTES)])
        start = weights_start(head, nbytes)
        program = _front(descriptor, head, nbytes, verify_code=verify_code)
        if key is not None and key.difference(program.key):
            return program
        if nbytes == len(head) and not program.shared:
            return complete(program, head[start:])
        pieces = [(descriptor, start, nbytes - start)]
        if program.shared:
            from jitdelegate.runtime.cache.shared_weights import whole_pieces  # not before: most programs share nothing

            pieces = whole_pieces(open_source or directory.open, program, pieces[0], opened)
        return complete(program, _weights(pieces, private=private))
    finally:
        for file in opened:
            close_quietly(file)


def open_front(directory: CacheDirectory, name: str) -> Program:
    """The program in a trusted file, without its weights and with unverified code, to see what it is.

    Raises:
        OSError, CacheError, ProgramError, MemoryError: as `open_entry`.
    """
    descriptor = directory.open(name)
    try:
        nbytes = os.fstat(descriptor).st_size
        head = _read([(descriptor, 0, min(nbytes, _HEAD_BYTES))])
        return _front(descriptor, head, nbytes, verify_code=False)
    finally:
        close_quietly(descriptor)


def _front(descriptor: int, head: memoryview, nbytes: int, *, verify_code: bool) -> Program:
    """The program before its weights, in a file that begins with `head`."""
    start = weights_start(head, nbytes)
    front = head[:start] if start <= len(head) else _read([(descriptor, 0, start)])
    return read_front(front, nbytes, verify_code=verify_code)


def _weights(pieces: list[Piece], *, private: bool) -> memoryview:
    if sum(nbytes for _, _, nbytes in pieces) >= LEAST_SHARED:
        try:
            from jitdelegate.runtime.shared_file import keep, share  # not before: most programs are small

            return ((None if private else share(pieces)) or keep(pieces)).content
        except (ImportError, OSError, ValueError, MemoryError):
            pass  # read what cannot be mapped
    return _read(pieces)


def _read(pieces: list[Piece]) -> memoryview:
    """Parts of files, one after another, in page-aligned private memory; zeros where a file became shorter."""
    whole = sum(nbytes for _, _, nbytes in pieces)
    if not whole:
        return memoryview(b"")
    memory = memoryview(mmap.mmap(-1, whole, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    read_pieces(pieces, memory)
    return memory
