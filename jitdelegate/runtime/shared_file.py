"""SharedFile: a mapped file whose pages all processes share, with detection of changes by others.

Weights are most of a model, and all processes that map them share their memory. But anyone who may write the file can
change or truncate it under a running process. So reads are guarded by `bus_guard`, results are released only if the
file has not changed, and otherwise the bytes become private.
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
    from jitdelegate.runtime.bus_guard import Net

    Stamp = tuple[int, int, int, int, int]

_TICK = 20_000_000
"""Nanoseconds after which another change gets another time stamp; Linux's clock for them ticks at least every 10 ms."""
_TICKS = 4
"""Most attempts to get a settled stamp: a file that changes all the time is not used anyway."""
_SECOND = 1_000_000_000
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
    """A read-only mapping of a part of a file; `share` makes it. Views into it keep it alive.

    Attributes:
        shared: False once the bytes are private.
        changes: number of changes noticed; data verified at another number has to be verified again.
    """

    shared: bool
    changes: int
    _address: int
    _descriptor: int
    _net: Net
    _hits: int
    _stamp: Stamp

    def watch(self, descriptor: int) -> bool:
        """Begin to watch the file; False where this system does not allow it."""
        held = Borrowed(self)
        held.release()
        self._stamp = _settled_stamp(descriptor)
        self._descriptor = os.dup(descriptor)
        net = spread_net(held.address, len(self))
        if net is None:
            os.close(self._descriptor)
            return False
        self._address, self._net, self._hits = held.address, net, 0
        self.shared, self.changes = True, 0
        return True

    def look(self) -> None:
        """Detect changes of the file since the last call.

        Raises:
            DeviceError: the file is inaccessible, and there is no memory for a copy.
        """
        if not self.shared:
            return
        renew_net()
        try:
            if _stamp(self._descriptor) == self._stamp and self._net.hits == self._hits:
                return
            found = _settled_stamp(self._descriptor)
        except OSError:
            self.own()
            return
        if found[:2] != self._stamp[:2]:  # another file: the descriptor was closed, and its number was reused
            self.own()
            return
        self._stamp, self._hits = found, self._net.hits
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
        try:
            if _stamp(self._descriptor)[:2] == self._stamp[:2]:  # else the number belongs to another file now
                os.close(self._descriptor)
        except OSError:
            pass

    def __del__(self) -> None:
        self._forget()  # before the base class unmaps


def share(descriptor: int, start: int) -> SharedFile | None:
    """The bytes of an open file from `start` on; None where they have to be read instead.

    Raises:
        OSError: the file cannot be mapped.
        ValueError: there are no bytes.
    """
    found = os.fstat(descriptor)
    if start % mmap.ALLOCATIONGRANULARITY or _counts_seconds(found) or not tells_changes(descriptor):
        return None
    made = SharedFile(descriptor, found.st_size - start, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
    return made if made.watch(descriptor) else None


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
