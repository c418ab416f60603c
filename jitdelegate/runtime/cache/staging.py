"""Entries that come from elsewhere: written beside the others and checked before they get their names."""

from __future__ import annotations

import os

from jitdelegate.runtime.cache.directory import CacheDirectory


class Staging(CacheDirectory):
    """The directory as it will be: new entries, in temporary files, have their later names for whoever opens them.

    Attributes:
        temporary: later name -> the file's name now.
    """

    __slots__ = ("temporary",)

    def __init__(self, directory: CacheDirectory) -> None:
        super().__init__(directory.path, os.dup(directory._descriptor))
        self.unseen = True
        self.temporary: dict[str, str] = {}

    def _opened(self, name: str, flags: int) -> int:
        return super()._opened(self.temporary.get(name, name), flags)

    def stat(self, name: str) -> os.stat_result:
        return super().stat(self.temporary.get(name, name))

    def commit(self) -> None:
        """Give all files their names.

        Raises:
            OSError: one does not get it; those before it are removed again.
        """
        done = []
        try:
            for name, temporary in self.temporary.items():
                self.replace(temporary, name)
                done.append(name)
            self.flush()
        except BaseException:
            for name in done:
                self.remove(name)
            raise
        self.temporary = {}

    def clear(self) -> None:
        """Remove the files that have not got their names."""
        for temporary in self.temporary.values():
            self.remove(temporary)
