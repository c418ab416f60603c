"""The folder that `warm --output` writes: all users may read it, wherever it is copied to.

It has entries and the names of their models. What a machine notes for itself stays elsewhere.
"""

from __future__ import annotations

import os
import stat

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import (
    FILE_FOR_OTHERS,
    LOCK_SUFFIX,
    STAGED_SUFFIX,
    TEMPORARY_SUFFIX,
    checked_directory,
    close_quietly,
    missing,
    open_directory,
)
from jitdelegate.runtime.cache.key import SUFFIX
from jitdelegate.runtime.cache.model_names import NAME
from jitdelegate.runtime.cache.store import Store
from jitdelegate.runtime.cache.use_log import NAME as USES
from jitdelegate.runtime.cpu.team_past import NAME as TEAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.cache.directory import CacheDirectory

_FOLDER_FOR_OTHERS = 0o755
_MAY_LOOK = 0o055


def open_output(path: str) -> Store:
    """The store of a folder that all users may read, as all files in it, whatever the umask is.

    The folder is made with its parents if it is missing. One that is there gets other access rights only if it has
    nothing but programs: it might be somebody's home.

    Raises:
        CacheError: it is not a directory, belongs to someone else, is writable by others, cannot be made or opened, or
            is private and has other files.
    """
    directory = checked_directory(path, "output folder", _open_or_make)
    directory.for_others = True
    try:
        _open_to_others(directory)
    except OSError as error:
        raise CacheError(f"output folder {path} cannot be opened to others: {error}") from error
    return Store(directory)


def _open_or_make(path: str) -> int:
    try:
        return open_directory(path)
    except FileNotFoundError:
        for folder in missing(path.rstrip("/")):
            try:
                os.mkdir(folder)
                os.chmod(folder, _FOLDER_FOR_OTHERS)
            except FileExistsError:
                continue  # another process was faster
        return open_directory(path)


def _open_to_others(directory: CacheDirectory) -> None:
    """
    Raises:
        CacheError: the folder is private and has other files than programs.
        OSError: access rights cannot be changed.
    """
    names, mode = directory.names(), stat.S_IMODE(directory.own_stat().st_mode)
    if mode & _MAY_LOOK != _MAY_LOOK:
        for name in names:
            if not _is_ours(name):
                found = f"output folder {directory.path} has mode {mode:04o}, and {name} beside programs"
                raise CacheError(f"{found}; expected a folder that others may read, or one of programs alone")
        directory.change_mode(_FOLDER_FOR_OTHERS)
    for name in names:
        if name.endswith(SUFFIX) or name == NAME:
            _open_file(directory, name)


def _open_file(directory: CacheDirectory, name: str) -> None:
    descriptor = directory.open(name)
    try:
        if os.fstat(descriptor).st_mode & FILE_FOR_OTHERS != FILE_FOR_OTHERS:
            os.fchmod(descriptor, FILE_FOR_OTHERS)
    finally:
        close_quietly(descriptor)


def _is_ours(name: str) -> bool:
    passing = name.startswith(".") and name.endswith((TEMPORARY_SUFFIX, STAGED_SUFFIX, LOCK_SUFFIX))
    return passing or name.endswith(SUFFIX) or name in (NAME, USES, TEAMS)
