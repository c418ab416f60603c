"""A large model's file as LiteRT maps it: the one that was opened, whatever others do to it later.

LiteRT maps a model that it gets as a path, so that its constants are no memory of the process, and processes share
them. It maps the file through its descriptor here, so a file that replaces it is not read. A changed file ends runs
with an error, and a truncated one does not end the process.
"""

from __future__ import annotations

import mmap
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
            file: maps the whole file.
            content: the fingerprint of its bytes.
        """
        self._file = file
        self._content = content
        self._changes = file.changes
        if hasattr(mmap, "MADV_DONTNEED"):
            file.madvise(mmap.MADV_DONTNEED)  # they were read for the fingerprint
        self.path = f"/proc/self/fd/{file.descriptors[0]}"

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
        self._file.look()
        if any(net.hits for net in nets):
            raise DeviceError(CHANGED)
        if self._file.changes != self._changes:
            if fingerprint(self._file) != self._content:
                raise DeviceError(CHANGED)
            self._changes = self._file.changes
