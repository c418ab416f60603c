"""A large model's file as LiteRT maps it: the one that was opened, whatever others do to it later.

LiteRT maps a model that it gets as a path, so that its constants are no memory of the process, and processes share
them. It maps the file through its descriptor here, so a file that replaces it is not read. A changed file ends runs
with an error, and a truncated one does not end the process.
"""

from __future__ import annotations

import os

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.bus_guard import spread_net
from jitdelegate.runtime.cache.key import fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.bus_guard import Net
    from jitdelegate.runtime.shared_file import SharedFile

    Range = tuple[int, int]

_MAPS = "/proc/self/maps"
CHANGED = "the model's file changed while LiteRT read from it; open the model again"


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
        """
        self._descriptor = os.dup(file.descriptors[0])
        self.path = f"/proc/self/fd/{self._descriptor}"
        self._content = content
        stamp = self._stamp()
        file.look()
        self._known = () if file.changes else stamp

    def __del__(self) -> None:
        os.close(self._descriptor)

    def mappings(self) -> set[Range]:
        """The addresses at which this process maps the file."""
        name = os.readlink(self.path)
        with open(_MAPS, encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(maxsplit=5) for line in file]
        ranges = (row[0].split("-") for row in rows if row[-1] == name)
        return {(int(start, 16), int(end, 16)) for start, end in ranges}

    def guard(self, before: set[Range]) -> list[Net]:
        """Guards of the mappings that were made since; they have to be released before these."""
        nets = (spread_net(start, end - start) for start, end in self.mappings() - before)
        return [net for net in nets if net is not None]

    def refuse_changes(self, nets: list[Net]) -> None:
        """
        Args:
            nets: those of an interpreter.
        Raises:
            DeviceError: the interpreter may have read other bytes than the model's.
        """
        stamp = self._stamp()
        if any(net.hits for net in nets):
            raise DeviceError(CHANGED)
        if stamp != self._known:
            if fingerprint(self.path) != self._content:
                raise DeviceError(CHANGED)
            self._known = stamp

    def _stamp(self) -> tuple[int, ...]:
        """Another one after each change of the file."""
        found = os.fstat(self._descriptor)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns
