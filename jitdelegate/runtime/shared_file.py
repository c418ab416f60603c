"""SharedFile: a file's bytes where all processes have the same pages of them, used only as long as nobody changes it.

Weights are most of a model, and every process that maps them has them in the same memory. But whoever may write the
file can change them, or cut them off, under a running process. So reads go through the net of `bus_guard`, what was
computed is released only if the file is as it was before, and where that cannot be had, the bytes become private.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.arena import Memory, libc
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.bus_guard import renew_net, spread_net

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.bus_guard import Net

    Stamp = tuple[int, int, int, int, int]

_TICK = 20_000_000
"""Nanoseconds after which a further change moves a time stamp on; Linux's clock for them ticks every 10 ms at most."""
_TICKS = 4
"""So many are waited for at most: a file that changes all the time is not used anyway."""
_SECOND = 1_000_000_000
_STATFS_BYTES = 256
"""More than a struct statfs has anywhere."""
_LOCAL_DISKS = {
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # XFS
    0x9123683E,  # Btrfs
    0xF2F52010,  # F2FS
    0x2FC12FC1,  # ZFS
    0xCA451A4E,  # bcachefs
    0x794C7630,  # overlayfs, which passes on what the file system below it tells
}
"""File systems by their number in Linux's magic.h."""


class SharedFile(mmap.mmap):
    """Part of a file, to be read; `share` makes it. Views into it keep it alive.

    Attributes:
        shared: False once the bytes are private.
        changes: how many changes were noticed; what was verified at another number is to be verified again.
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
        """Notice what has happened to the file since the last look.

        Raises:
            DeviceError: the file is out of reach, and there is no memory for a copy.
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
        if found[:2] != self._stamp[:2]:  # another file: whoever closes all descriptors closed this one too
            self.own()
            return
        self._stamp, self._hits = found, self._net.hits
        self.changes += 1

    def own(self) -> None:
        """Make the bytes private, at the same address. They count as changed: what was copied may be anything.

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
        """Watch no longer."""
        shared, self.shared = getattr(self, "shared", False), False
        if not shared:
            return
        self._net.release()
        try:
            if _stamp(self._descriptor)[:2] == self._stamp[:2]:  # else it is somebody else's by now
                os.close(self._descriptor)
        except OSError:
            pass

    def __del__(self) -> None:
        self._forget()  # before the base class unmaps


def share(descriptor: int, start: int) -> SharedFile | None:
    """The bytes of an open file from `start` on, None where they have to be read instead.

    Raises:
        OSError: the system maps nothing there.
        ValueError: there are no bytes.
    """
    found = os.fstat(descriptor)
    if start % mmap.ALLOCATIONGRANULARITY or _counts_seconds(found) or not tells_changes(descriptor):
        return None
    made = SharedFile(descriptor, found.st_size - start, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
    return made if made.watch(descriptor) else None


def _stamp(descriptor: int) -> Stamp:
    """What tells one content of a file from another."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _settled_stamp(descriptor: int) -> Stamp:
    """The stamp once a further change will move it. That takes as long as a tick of the system's clock."""
    for _ in range(_TICKS):
        found = _stamp(descriptor)
        age = time.time_ns() - max(found[3:])
        if not 0 <= age < _TICK:
            break
        time.sleep((_TICK - age) / _SECOND)
    return found


def _counts_seconds(found: os.stat_result) -> bool:
    """Whether the file system's time stamps are whole seconds, in which much may happen unseen."""
    return not (found.st_mtime_ns % _SECOND or found.st_ctime_ns % _SECOND)


def tells_changes(descriptor: int) -> bool:
    """Whether every change of this file, whoever makes it and however, moves its time stamps at once.

    So it is on Linux's file systems for local disks. Memory (tmpfs) does not note what is written through a mapping,
    and of a change on another machine (NFS) a time stamp tells only later. Where nothing is known the answer is False.
    """
    if sys.platform != "linux":
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.fstatfs(descriptor, found):
        return False
    return ctypes.c_long.from_buffer(found).value in _LOCAL_DISKS  # f_type, the first field
