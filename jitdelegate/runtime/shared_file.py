"""SharedFile: mapped pages of files, one after another, that all processes share, with detection of changes by others.

Weights are most of a model, and all processes that map them share their memory, as do programs that have pages in
common. A process has mapped them once: later programs read them where an earlier one does. But anyone who may write a
file can change or truncate it under a running process. So reads are guarded by `bus_guard`, results are released only
if no file has changed, and otherwise the bytes become private.
"""

from __future__ import annotations

import _thread
import _weakref
import ctypes
import mmap
import os
import sys
import time

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.bus_guard import renew_net, spread_net
from jitdelegate.runtime.cache.directory import read_pieces
from jitdelegate.runtime.memory import LARGE_PAGE, Memory, ask_for_large_pages, libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jitdelegate.runtime.bus_guard import Net

    Stamp = tuple[int, int, int, int, int]
    Piece = tuple[int, int, int]

_TICK = 20_000_000
"""Nanoseconds after which another change gets another time stamp; Linux's clock for them ticks at least every 10 ms."""
_TICKS = 4
"""Most attempts to get a settled stamp: a file that changes all the time is not used anyway."""
_SECOND = 1_000_000_000
_FIXED = 0x10
"""Linux's MAP_FIXED."""
_STATFS_BYTES = 256
"""Bytes, more than struct statfs has on any system."""
_LOCAL_DISKS = {
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # XFS
    0x9123683E,  # Btrfs
    0xF2F52010,  # F2FS
    0x2FC12FC1,  # ZFS
    0xCA451A4E,  # bcachefs
    0x794C7630,  # overlayfs, which passes on the stamps of the file system below
}
"""File systems by their number in Linux's magic.h."""


class SharedFile(mmap.mmap):
    """Mappings of parts of files at neighbouring addresses, to be read only; `share` and `keep` make it. Views into it
    keep it alive.

    What another object of this process has mapped already need not be read here: `elsewhere`. The other one lives as
    long as this one then, and what happens to its memory is a change here too.

    A system maps whole pages, of 4, 16 or 64 KB: where a part begins within a page, the mapping begins before it. Linux
    maps large pages where the address and the place in the file are equal modulo their size; the first part may lie at
    such an address.

    Attributes:
        shared: False once the bytes are private.
        changes: number of changes noticed; data verified at another number has to be verified again.
    """

    shared: bool
    changes: int
    _skipped: int
    _address: int
    _lead: int
    _nbytes: int
    _files: list[tuple[int, Stamp]]
    _net: Net
    _seen: tuple[object, ...]
    _is_doubtful: bool
    _mapped: list[tuple[int, int, int, SharedFile]]
    _sources: list[SharedFile]
    _read_at: dict[tuple[int, int], int]

    def begin(self, pieces: Sequence[Piece], lead: int = 0) -> None:
        """Note what lies at which address, and which of it this process has mapped already; raises OSError.

        Args:
            lead: bytes before the first piece in its page.
        """
        held = Borrowed(self)
        held.release()
        self.shared, self.changes, self._is_doubtful = False, 0, False
        self._files, self._mapped, self._sources, self._read_at = [], [], [], {}
        self._nbytes = lead + _size(pieces)
        self._skipped = (pieces[0][1] - lead - held.address) % LARGE_PAGE if len(self) > self._nbytes else 0
        self._address, self._lead = held.address + self._skipped, lead
        at = self._address + lead
        for descriptor, start, nbytes in pieces:
            mapped = _found(_stamp(descriptor), start, nbytes)
            if mapped:
                self._mapped.append((at, at + nbytes, *mapped))
            at += nbytes

    def map(self, pieces: Sequence[Piece]) -> None:
        """Map the pieces over the reserved addresses; raises OSError."""
        at, lead = self._address, self._lead
        for descriptor, start, nbytes in pieces:
            start, nbytes, lead = start - lead, nbytes + lead, 0
            if libc.mmap(at, nbytes, mmap.PROT_READ, mmap.MAP_SHARED | _FIXED, descriptor, start) != at:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            at += nbytes

    def watch(self, stamps: Mapping[int, Stamp]) -> bool:
        """Begin to watch the files, by descriptor; False where this system does not allow it."""
        net = spread_net(self._address, self._nbytes)
        if net is None:
            return False
        self._net, self.shared = net, True
        self._seen = self._condition()
        for descriptor, stamp in stamps.items():
            self._files.append((os.dup(descriptor), stamp))
        return True

    def offer(self, pieces: Sequence[Piece], stamps: Mapping[int, Stamp]) -> None:
        """Let later objects read here what no other one had mapped before, as long as the files have these stamps."""
        at, mapped = self._address + self._lead, {first for first, *_ in self._mapped}
        for descriptor, start, nbytes in pieces:
            if at not in mapped:
                _offer(stamps[descriptor], start, nbytes, at, self)
            at += nbytes

    def elsewhere(self, at: int, nbytes: int) -> int:
        """The address at which this process has mapped the `nbytes` bytes at `at` before, or `at` itself. They must be
        read there only from now on."""
        wanted = at, at + nbytes
        with _lock:
            if wanted not in self._read_at:
                self._read_at[wanted] = self._mapped_before(*wanted)
                if self._read_at[wanted] != at:
                    self._leave_out(*wanted)
            return self._read_at[wanted]

    def unload(self, view: memoryview) -> None:
        """Take the whole pages that a view shows from the resident memory of this process. They stay in the file, and
        are loaded again when they are read."""
        held = Borrowed(view)
        held.release()
        with _lock:
            if self.shared:  # private memory would be lost
                self._leave_out(held.address, held.address + held.nbytes)

    def _leave_out(self, start: int, stop: int) -> None:
        """Take whole pages from the resident memory, where the system can."""
        first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
        if first < end and hasattr(mmap, "MADV_DONTNEED"):
            self.madvise(mmap.MADV_DONTNEED, first - self._address + self._skipped, end - first)

    def _mapped_before(self, first: int, end: int) -> int:
        for start, stop, there, source in self._mapped:
            if start <= first and end <= stop and self._follow(source):
                return there + first - start
        return first

    def _follow(self, source: SharedFile) -> bool:
        """Depend on the memory of a source from now on; False where that cannot be."""
        if source in self._sources:
            return True
        if not source.is_intact:
            return False
        if self.shared:
            self._sources.append(source)
            self._seen = (*self._seen, source._state())
            return True
        try:
            source.own()  # what is private must not change
        except DeviceError:
            return False
        self._sources.append(source)
        return source.is_intact

    @property
    def content(self) -> memoryview:
        """The bytes of the parts."""
        return memoryview(self)[self._skipped + self._lead :][: self._nbytes - self._lead]

    @property
    def descriptors(self) -> list[int]:
        """Open descriptors of the files, while the bytes are shared."""
        return [descriptor for descriptor, _ in self._files]

    @property
    def is_intact(self) -> bool:
        """Whether the bytes are those that the files had at first, as far as it was noticed."""
        return not (self._net.hits or self.changes) if self.shared else not self._is_doubtful

    def parts(self, at: int, nbytes: int) -> list[ctypes.Array[ctypes.c_char]]:
        """The `nbytes` bytes at `at` in order, each where it is to be read."""
        views, end = [], at + nbytes
        for (start, stop), there in sorted(self._read_at.items()):
            if at <= start and stop <= end:
                views += [_view(at, start - at), _view(there, stop - start)]
                at = stop
        return [*views, _view(at, end - at)]

    def look(self) -> None:
        """Detect changes of the files since the last call.

        Raises:
            DeviceError: a file is inaccessible, and there is no memory for a copy.
        """
        if not self.shared:
            return
        renew_net()
        try:
            for descriptor, stamp in self._files:
                if _stamp(descriptor) != stamp:
                    break
            else:
                if self._condition() == self._seen:
                    return
            seen = self._condition()
            files = [(descriptor, _settled_stamp(descriptor)) for descriptor, _ in self._files]
        except OSError:
            self.own()
            return
        for (_, now), (_, before) in zip(files, self._files, strict=True):
            if now[:2] != before[:2]:  # another file: the descriptor was closed, and its number was reused
                self.own()
                return
        self._files, self._seen = files, seen
        self.changes += 1

    def _condition(self) -> tuple[object, ...]:
        """What differs after the memory that is read became another one."""
        return self._net.hits, *(source._state() for source in self._sources)

    def _state(self) -> tuple[int, bool]:
        return self._net.hits if self.shared else 0, self.shared

    def own(self) -> None:
        """Make the bytes private, at the same address. They count as changed, since the copy may be damaged.

        Raises:
            DeviceError: there is no memory for a copy.
        """
        with _lock:
            if not self.shared:
                return
            for source in self._sources:
                source.own()
            has_gaps = any(there != start for (start, _), there in self._read_at.items())
            copy = Memory(self._nbytes, has_gaps=has_gaps)
            try:
                self._copy(copy.address - self._address)
                copy.replace(self._address)
            except DeviceError:
                copy.close()
                raise
            self._is_doubtful = self._has_changed()
            self._forget()
            self.changes += 1

    def _copy(self, distance: int) -> None:
        """Copy all bytes that are read here."""
        at, end = self._address, self._address + self._nbytes
        for start, stop in [*sorted(one for one, there in self._read_at.items() if there != one[0]), (end, end)]:
            ctypes.memmove(at + distance, at, start - at)
            at = stop

    def _has_changed(self) -> bool:
        """Whether the files may have changed since they were mapped."""
        try:
            return not self.is_intact or any(_stamp(descriptor) != stamp for descriptor, stamp in self._files)
        except OSError:
            return True

    def _forget(self) -> None:
        """Stop watching."""
        shared, self.shared = getattr(self, "shared", False), False
        if not shared:
            return
        self._net.release()
        for descriptor, stamp in self._files:
            try:
                if _stamp(descriptor)[:2] == stamp[:2]:  # else the number belongs to another file now
                    os.close(descriptor)
            except OSError:
                pass

    def __del__(self) -> None:
        self._forget()  # before the base class unmaps


def share(pieces: Sequence[Piece], *, by_large_pages: bool = True) -> SharedFile | None:
    """Parts of open files, one after another; None where they have to be read instead.

    Args:
        pieces: (descriptor, first byte, bytes); all but the first begin with a page, and all but the last end with one.
        by_large_pages: whether the first part lies where the system can map it by large pages, which are read faster.
            After `unload`, a read of what is left of one loads all of it again.
    Raises:
        OSError: a file cannot be mapped.
        ValueError: there are no bytes.
    """
    descriptors = sorted({descriptor for descriptor, _, _ in pieces})
    lead = pieces[0][1] % mmap.PAGESIZE if pieces else 0
    if any(start % mmap.PAGESIZE for _, start, _ in pieces[1:]):
        return None
    if any((nbytes + lead * (not number)) % mmap.PAGESIZE for number, (_, _, nbytes) in enumerate(pieces[:-1])):
        return None
    if not all(tells_changes(one) and not _counts_seconds(os.fstat(one)) for one in descriptors):
        return None
    nbytes = lead + _size(pieces)
    room = LARGE_PAGE if by_large_pages and nbytes >= LARGE_PAGE else 0
    made = SharedFile(-1, nbytes + room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    made.begin(pieces, lead)
    made.map(pieces)
    stamps = {descriptor: _settled_stamp(descriptor) for descriptor in descriptors}
    if not made.watch(stamps):
        return None
    made.offer(pieces, stamps)
    return made


def keep(pieces: Sequence[Piece]) -> SharedFile:
    """Parts of open files, one after another, in private memory; zeros where a file became shorter.

    Args:
        pieces: as of `share`.
    Raises:
        OSError: a file cannot be read.
        ValueError: there are no bytes.
        MemoryError: out of memory.
    """
    stamps = {descriptor: _stamp(descriptor) for descriptor, _, _ in pieces}
    made = SharedFile(-1, _size(pieces), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    made.begin(pieces)
    ask_for_large_pages(made._address, len(made))
    read_pieces(pieces, memoryview(made))
    made._is_doubtful = any(_stamp(descriptor) != stamp for descriptor, stamp in stamps.items())
    made.offer(pieces, stamps)
    return made


def _size(pieces: Sequence[Piece]) -> int:
    return sum(nbytes for _, _, nbytes in pieces)


_lock = _thread.RLock()
"""Held while objects come to depend on each other, or become private."""
_offers: dict[tuple[int, int], list[tuple[Stamp, int, int, int, Callable[[], SharedFile | None]]]] = {}
"""By device and inode: the file's stamp, first byte and bytes of a part of it, its address, and what mapped it."""


def _renew_lock() -> None:
    """Of a forked child: another thread of the parent may have held the lock."""
    global _lock
    _lock = _thread.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _offer(stamp: Stamp, start: int, nbytes: int, at: int, owner: SharedFile) -> None:
    with _lock:
        living = [offer for offer in _offers.get(stamp[:2], ()) if offer[-1]() is not None]
        _offers[stamp[:2]] = [*living, (stamp, start, nbytes, at, _weakref.ref(owner))]


def _found(stamp: Stamp, start: int, nbytes: int) -> tuple[int, SharedFile] | None:
    """Where a part of a file is mapped already, and by what."""
    for offered, first, size, at, reference in _offers.get(stamp[:2], ()):
        owner = reference()
        is_inside = first <= start and start + nbytes <= first + size
        if offered == stamp and is_inside and owner is not None and owner.is_intact:
            return at + start - first, owner
    return None


def _view(address: int, nbytes: int) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * nbytes).from_address(address)


def _stamp(descriptor: int) -> Stamp:
    """The file's identity, size and time stamps, which change with its content."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _settled_stamp(descriptor: int) -> Stamp:
    """A stamp that any later change will alter. Getting it takes as long as a tick of the system's clock."""
    for _ in range(_TICKS):
        stamp = _stamp(descriptor)
        age = time.time_ns() - max(stamp[3:])
        if not 0 <= age < _TICK:
            break
        time.sleep((_TICK - age) / _SECOND)
    return stamp


def _counts_seconds(status: os.stat_result) -> bool:
    """Whether the file system's time stamps are whole seconds, which would hide changes."""
    return not (status.st_mtime_ns % _SECOND or status.st_ctime_ns % _SECOND)


def tells_changes(descriptor: int) -> bool:
    """Whether every change of this file alters its time stamps at once.

    True for Linux's file systems on local disks. tmpfs does not record writes through a mapping, and NFS shows changes
    by other machines late. Unknown file systems are False.
    """
    if sys.platform != "linux":
        return False
    statfs = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.fstatfs(descriptor, statfs):
        return False
    return ctypes.c_long.from_buffer(statfs).value in _LOCAL_DISKS  # f_type, the first field
