"""A large model's file as LiteRT maps it: the one that was opened, whatever others do to it later.

LiteRT maps a model that it gets as a path, so that its constants are no memory of the process, and processes share
them. It maps the file through its descriptor here, so a file that replaces it is not read. A changed file ends runs
with an error, and a truncated one does not end the process.
"""

from __future__ import annotations

import _thread
import os

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.bus_guard import spread_net
from jitdelegate.runtime.cache.key import fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.runtime.bus_guard import Net
    from jitdelegate.runtime.shared_file import SharedFile

    Range = tuple[int, int]

_MAPS = "/proc/self/maps"
_opening = _thread.allocate_lock()
CHANGED = "the model's file changed while LiteRT read from it; open the model again"


def _open_anew() -> None:
    """Another thread of the parent may hold the lock for ever."""
    global _opening
    _opening = _thread.allocate_lock()


os.register_at_fork(after_in_child=_open_anew)


class MappedModel:
    """A model's file for LiteRT's interpreters.

    Attributes:
        path: the path of the file for this process only.
    """

    def __init__(self, file: SharedFile, content: str) -> None:
        """
        Args:
            file: maps the whole file; it is not kept, as LiteRT's mapping is the one that is needed.
            content: the fingerprint of its bytes.
        Raises:
            OSError: the process has too many files open, or the system tells nothing about this one.
        """
        self._descriptor = -1
        self._descriptor = os.dup(file.descriptors[0])
        self.path = f"/proc/self/fd/{self._descriptor}"
        self._content = content
        stamp = self._stamp()
        file.look()
        self._known = () if file.changes else stamp

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def mappings(self) -> set[Range]:
        """The addresses at which this process maps the file from its first byte on."""
        name = os.fsencode(os.readlink(self.path)).replace(b"\n", rb"\012")  # as the system writes it
        with open(_MAPS, "rb") as file:
            rows = [line.rstrip(b"\n").split(maxsplit=5) for line in file]
        ranges = (row[0].split(b"-") for row in rows if row[-1] == name and not int(row[2], 16))
        return {(int(start, 16), int(end, 16)) for start, end in ranges}

    def open(self, make: Callable[[], None]) -> list[Net]:
        """Guards of the mapping that `make` makes; they have to be released before it.

        Interpreters are made one after another. Where other code maps the file meanwhile, nothing tells which mapping
        is whose, and none is guarded.
        """
        with _opening:
            before = self.mappings()
            make()
            made = self.mappings() - before
        nets = [spread_net(start, end - start) for start, end in made if len(made) == 1]
        return [net for net in nets if net is not None]

    def refuse_changes(self, nets: list[Net]) -> None:
        """
        Args:
            nets: those of an interpreter.
        Raises:
            DeviceError: the interpreter may have read other bytes than the model's, or nobody can tell.
        """
        try:
            stamp = self._stamp()
            is_same = not any(net.hits for net in nets) and (
                stamp == self._known or fingerprint(self.path) == self._content
            )
        except OSError as error:
            raise DeviceError(f"nobody can tell whether the model's file changed: {error.strerror}") from error
        if not is_same:
            raise DeviceError(CHANGED)
        self._known = stamp

    def _stamp(self) -> tuple[int, ...]:
        """Another one after each change of the file."""
        found = os.fstat(self._descriptor)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns
