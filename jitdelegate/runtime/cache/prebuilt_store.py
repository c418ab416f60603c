"""Programs of prebuilt folders, which are only read, before those of the user's own directory.

A folder stays as it was made: nothing there is written, locked or removed. What cannot be used there is a counted miss
with a reason, told once, and from then on as if it were absent. All that is compiled goes to the own directory.
"""

from __future__ import annotations

import os

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import open_cache_directory, open_prebuilt_folder
from jitdelegate.runtime.cache.store import (
    ABSENT,
    DAMAGED,
    INCOMPLETE,
    NO_DIRECTORY,
    NO_REMOTE,
    Lookup,
    Store,
    Tally,
    counts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import ReadableBuffer

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.cache.key import Key


class PrebuiltStore(Store):
    """The entries of folders, in their order, and of the own directory.

    The own directory is opened, and made if it is missing, where something is in no folder, or a model is so large that
    its fingerprint is remembered. So a start that finds all
    it looks for needs neither a home nor a file system that can be written, and is told of no trouble with them.
    """

    __slots__ = ("_bad", "_folders", "_is_open", "_looks_only", "_refused", "_remedy", "_serialization_dir", "_served")

    def __init__(
        self,
        folders: Sequence[str],
        serialization_dir: str | bool | None,
        *,
        private_weights: bool = False,
        most_bytes: int | None = None,
        remote: tuple[str, str] = NO_REMOTE,
        looks_only: bool = False,
    ) -> None:
        """
        Args:
            looks_only: whether nobody stores anything, so that the own directory is read without a trace.
        """
        super().__init__(None, private_weights=private_weights, most_bytes=most_bytes, remote=remote)
        self._serialization_dir, self._looks_only = serialization_dir, looks_only
        self._is_open, self._remedy = False, ""
        self._folders = [folder for folder in map(_opened, folders) if folder is not None]
        self._served: dict[str, CacheDirectory] = {}
        self._refused: set[tuple[str, str]] = set()
        self._bad: set[str] = set()

    @property
    def directory(self) -> CacheDirectory | None:
        """The own directory; None where there is none."""
        if not self._is_open:
            self._open_own()
            self._is_open = True
            if not self._looks_only:
                self.sweep()
        return self._directory

    @property
    def open_notes(self) -> CacheDirectory | None:
        return self.machine_notes if self._is_open else None

    def put(self, key: Key, *parts: ReadableBuffer) -> str:
        if self.directory is None and self.kind == NO_DIRECTORY:
            from jitdelegate.runtime.cache.trouble import tell  # not before: most caches work

            tell(str(self._serialization_dir or ""), self.trouble, self._remedy)
        return super().put(key, *parts)

    def refuse(self, key: Key, reason: str) -> None:
        name = key.entry_name()
        folder = self._served.pop(name, None)
        if folder is None:
            self._bad.add(name)
            super().refuse(key, reason)
            return
        counts.miss(DAMAGED)
        self._leave_alone(folder, name, f"{name} is damaged: {reason}")

    def _tally(self, lookup: Lookup) -> Tally:
        name, directory = os.path.basename(lookup.path or ""), self._directory
        is_own = directory is not None and lookup.path == os.path.join(directory.path, name)
        return super()._tally(lookup) if is_own else Tally()

    def _pull(self, key: Key) -> Lookup | None:
        """As of a `Store`; nothing in place of an own entry that was bad, since a fetched one may share the same bad
        weights of a folder."""
        return None if key.entry_name() in self._bad else super()._pull(key)

    def weight_sources(self, key: Key) -> list[Program | None]:
        """As of a `Store`; none in place of an own entry that was bad. Its source may have been, in a folder where that
        stays, and other starts that do not look for the source itself would take it again."""
        return [] if key.entry_name() in self._bad else super().weight_sources(key)

    def _open_own(self) -> None:
        if isinstance(self._serialization_dir, bool):
            self.kind, self.trouble = ABSENT, "no prebuilt folder has an entry for it, and the cache is turned off"
            return
        try:
            directory = open_cache_directory(self._serialization_dir)
            self._directory = directory.looking() if self._looks_only else directory
        except CacheError as error:
            self.trouble, self._remedy = str(error), error.remedy

    def _look_up(self, key: Key) -> Lookup:
        name, bad = key.entry_name(), None
        for folder in self._usable(name):
            lookup = self._look_up_in(folder, key, folder.open)
            if lookup.hit:
                self._served[name] = folder
                return lookup
            if lookup.kind != ABSENT:
                self._leave_alone(folder, name, lookup.reason)
                bad = bad or lookup
        self._served.pop(name, None)
        own = self._look_up_own(key)
        if own.kind in (DAMAGED, INCOMPLETE):
            self._bad.add(name)
        if bad and own.hit:
            counts.miss(bad.kind)
        return Lookup(bad.kind, bad.reason, own.path) if bad and not own.hit else own

    def _look_up_own(self, key: Key) -> Lookup:
        if self.directory is None:
            return Lookup(self.kind, self.trouble)
        return self._look_up_in(self.directory, key, self._open_source)

    def _open_source(self, name: str) -> int:
        """A descriptor of the entry that has weights of one in the own directory: where it was when they were shared,
        which is where it is looked up; raises as `CacheDirectory.open`."""
        for folder in self._usable(name):
            try:
                return folder.open(name)
            except (OSError, CacheError):
                continue
        assert self.directory is not None
        return self.directory.open(name)

    def _usable(self, name: str) -> Iterator[CacheDirectory]:
        """The folders whose entry of this name was not found bad."""
        return (folder for folder in self._folders if (folder.path, name) not in self._refused)

    def _leave_alone(self, folder: CacheDirectory, name: str, reason: str) -> None:
        """Look no more for an entry of a folder, where it stays as it is."""
        self._refused.add((folder.path, name))
        _tell(folder.path, f"prebuilt folder {folder.path} has an entry that cannot be used: {reason}")


def _opened(path: str) -> CacheDirectory | None:
    try:
        return open_prebuilt_folder(path)
    except CacheError as error:
        _tell(path, str(error), error.remedy)
        return None


def _tell(folder: str, reason: str, remedy: str = "") -> None:
    from jitdelegate.runtime.cache.trouble import tell_prebuilt  # not before: most folders can be used

    tell_prebuilt(folder, reason, remedy)
