"""SharedFile: mapped pages of files, one after another, that all processes share, with detection of changes by others.

Weights are most of a model, and all processes that map them share their memory, as do programs that have pages in
common. But anyone who may write a file can change or truncate it under a running process. So reads are guarded by
`bus_guard`, results are released only if no file has changed, and otherwise the bytes become private.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.bus_guard import renew_net, spread_net
from jitdelegate.runtime.memory import Memory, libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Read-only mappings of parts of files at neighbouring addresses; `share` makes it. Views into it keep it alive.

    Attributes:
        shared: False once the bytes are private.
        changes: number of changes noticed; data verified at another number has to be verified again.
    """

    shared: bool
    changes: int
    _address: int
    _files: list[tuple[int, Stamp]]
    _net: Net
    _hits: int

    def map(self, pieces: Sequence[Piece]) -> None:
        """Map the pieces over the reserved addresses; raises OSError."""
        held = Borrowed(self)
        held.release()
        self._address = at = held.address
        for descriptor, start, nbytes in pieces:
            if libc.mmap(at, nbytes, mmap.PROT_READ, mmap.MAP_SHARED | _FIXED, descriptor, start) != at:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            at += nbytes

    def watch(self, descriptors: Sequence[int]) -> bool:
        """Begin to watch the files; False where this system does not allow it."""
        stamps = [_settled_stamp(descriptor) for descriptor in descriptors]
        net = spread_net(self._address, len(self))
        if net is None:
            return False
        self._files = []
        self._net, self._hits = net, 0
        self.shared, self.changes = True, 0
        for descriptor, stamp in zip(descriptors, stamps, strict=True):
            self._files.append((os.dup(descriptor), stamp))
        return True

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
                if self._net.hits == self._hits:
                    return
            found = [(descriptor, _settled_stamp(descriptor)) for descriptor, _ in self._files]
        except OSError:
            self.own()
            return
        for (_, now), (_, before) in zip(found, self._files, strict=True):
            if now[:2] != before[:2]:  # another file: the descriptor was closed, and its number was reused
                self.own()
                return
        self._files, self._hits = found, self._net.hits
        self.changes += 1

    def own(self) -> None:
        """Make the bytes private, at the same address. They count as changed, since the copy may be damaged.

        Raises:
            DeviceError: there is no memory for a copy.
        """
        if not self.shared:
            return
        copy = Memory(len(self))
        try:
            ctypes.memmove(copy.address, self._address, len(self))
            copy.replace(self._address)
        except DeviceError:
            copy.close()
            raise
        self._forget()
        self.changes += 1

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


def share(pieces: Sequence[Piece]) -> SharedFile | None:
    """Parts of open files, one after another; None where they have to be read instead.

    Args:
        pieces: (descriptor, first byte, bytes); all but the last are whole pages.
    Raises:
        OSError: a file cannot be mapped.
        ValueError: there are no bytes.
    """
    descriptors = sorted({descriptor for descriptor, _, _ in pieces})
    if any(start % mmap.ALLOCATIONGRANULARITY for _, start, _ in pieces):
        return None
    if any(nbytes % mmap.ALLOCATIONGRANULARITY for _, _, nbytes in pieces[:-1]):
        return None
    if not all(tells_changes(one) and not _counts_seconds(os.fstat(one)) for one in descriptors):
        return None
    nbytes = sum(nbytes for _, _, nbytes in pieces)
    made = SharedFile(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    made.map(pieces)
    return made if made.watch(descriptors) else None


def _stamp(descriptor: int) -> Stamp:
    """The file's identity, size and time stamps, which change with its content."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _settled_stamp(descriptor: int) -> Stamp:
    """A stamp that any later change will alter. Getting it takes as long as a tick of the system's clock."""
    for _ in range(_TICKS):
        found = _stamp(descriptor)
        age = time.time_ns() - max(found[3:])
        if not 0 <= age < _TICK:
            break
        time.sleep((_TICK - age) / _SECOND)
    return found


def _counts_seconds(found: os.stat_result) -> bool:
    """Whether the file system's time stamps are whole seconds, which would hide changes."""
    return not (found.st_mtime_ns % _SECOND or found.st_ctime_ns % _SECOND)


def tells_changes(descriptor: int) -> bool:
    """Whether every change of this file alters its time stamps at once.

    True for Linux's file systems on local disks. tmpfs does not record writes through a mapping, and NFS shows changes
    by other machines late. Unknown file systems are False.
    """
    if sys.platform != "linux":
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.fstatfs(descriptor, found):
        return False
    return ctypes.c_long.from_buffer(found).value in _LOCAL_DISKS  # f_type, the first field
