"""The cache directory: one that only the user and root can write.

Entries are machine code, so whoever can write them can run any code. Files are accessed through the directory's
descriptor, so that the directory that was checked is the one in use.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from jitdelegate.errors import CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from _typeshed import ReadableBuffer

    Piece = tuple[int, int, int]

_PRIVATE_DIRECTORY = 0o700
_PRIVATE_FILE = 0o600
FILE_FOR_OTHERS = 0o644
"""Mode of files in a folder for all users, whatever they are."""
READ_ONLY_FILE = 0o400
"""Mode of files that are mapped: `cp` over one fails for its owner, and `cp -f` makes a new one."""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
_SWEPT_NANOSECONDS = 123_456_000_000_000
"""How long before its last change a directory that was swept seems to have been read: its own status tells, and any
change of its names ends it."""
LARGEST_FILE = 1 << 36
TEMPORARY_SUFFIX, STAGED_SUFFIX, LOCK_SUFFIX = ".tmp", ".staged", ".lock"


class CacheDirectory:
    """A checked directory; its methods raise OSError, and CacheError for untrusted files.

    Attributes:
        path: as it was given.
        unseen: whether reading a file leaves its access time alone, where the system allows it.
        for_others: whether all users may read what is written, whatever mode it is to have.
    """

    __slots__ = ("_descriptor", "for_others", "path", "unseen")
    _is_ending = staticmethod(sys.is_finalizing)  # a module's own names are gone before its last objects

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.unseen = self.for_others = False
        self._descriptor = descriptor

    def looking(self) -> CacheDirectory:
        """The same directory, for those that only look: reading a file there leaves its access time alone."""
        directory = CacheDirectory(self.path, os.dup(self._descriptor))
        directory.unseen = True
        return directory

    def open(self, name: str) -> int:
        """A descriptor to read a regular file that only the user or root can write; never follows a link.

        Raises:
            CacheError: it is not a regular file, or others may write it.
            OSError: it is missing, or cannot be read.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            descriptor = self._opened(name, flags)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise CacheError(f"{name} is a symbolic link, expected a file") from error
            raise
        try:
            _check_file(name, os.fstat(descriptor))
        except (CacheError, OSError):
            close_quietly(descriptor)
            raise
        return descriptor

    def _opened(self, name: str, flags: int) -> int:
        if self.unseen and hasattr(os, "O_NOATIME"):
            try:
                return os.open(name, flags | os.O_NOATIME, dir_fd=self._descriptor)
            except PermissionError:
                pass  # the file belongs to root
        return os.open(name, flags, dir_fd=self._descriptor)

    def create(self, name: str, mode: int) -> int:
        """A descriptor to write a new file of this mode; refuses one that exists."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, mode, dir_fd=self._descriptor)

    def open_lock(self, name: str) -> int:
        """A descriptor of a lock file, created if it is missing."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(name, flags, _PRIVATE_FILE, dir_fd=self._descriptor)

    def own_stat(self) -> os.stat_result:
        """Status of the directory."""
        return os.fstat(self._descriptor)

    def change_mode(self, mode: int) -> None:
        """Give the directory these access rights."""
        os.fchmod(self._descriptor, mode)

    def is_swept(self) -> bool:
        """Whether its names are those that it had when it was marked as swept."""
        status = self.own_stat()
        return status.st_mtime_ns - status.st_atime_ns == _SWEPT_NANOSECONDS

    def mark_swept(self, status: os.stat_result) -> None:
        """Mark it as swept, if its names have not changed since it had this status."""
        changed = status.st_mtime_ns
        if self.own_stat().st_mtime_ns == changed:
            os.utime(self._descriptor, ns=(changed - _SWEPT_NANOSECONDS, changed))

    def is_writable(self) -> bool:
        """Whether this process may change its names: also root heeds its mode, and the file system takes changes."""
        status = self.own_stat()
        is_own = status.st_uid == os.geteuid() and bool(status.st_mode & stat.S_IWUSR)
        return is_own and os.access(".", os.W_OK, dir_fd=self._descriptor)

    def stat(self, name: str) -> os.stat_result:
        """Status of the name itself; links are not followed."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def replace(self, source: str, target: str) -> None:
        """Rename atomically, over an existing file."""
        os.replace(source, target, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def touch(self, name: str) -> None:
        """Set the time of a file's last change to now."""
        os.utime(name, dir_fd=self._descriptor, follow_symlinks=False)

    def remove(self, name: str) -> str:
        """Remove the name; "" if it is gone, or why it is still there."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def flush(self) -> None:
        """Make renames survive a power failure."""
        os.fsync(self._descriptor)

    def names(self) -> list[str]:
        """Names in the directory, sorted."""
        return sorted(os.listdir(self._descriptor))

    def write(self, name: str, *parts: ReadableBuffer, mode: int = _PRIVATE_FILE, flush: bool = True) -> None:
        """Replace `name` atomically by a file of these parts: a reader sees the old or the new file, never a piece.

        Args:
            mode: the file's access rights.
            flush: wait until it is on disk.
        Raises:
            OSError: it was not written; the old file is intact, and no temporary file is left.
        """
        temporary = f".{name}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
        descriptor = self._write_new(temporary, parts, mode=mode, flush=flush)
        try:
            self.replace(temporary, name)
        except BaseException:
            self.remove(temporary)
            raise
        finally:
            close_quietly(descriptor)
        if flush:
            self.flush()

    def append(self, name: str, content: bytes) -> int:
        """Append to a file, made if it is missing, at once; its bytes then.

        Raises:
            OSError: it was not written, or only in part.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(name, flags, _PRIVATE_FILE, dir_fd=self._descriptor)
        try:
            _write_all(descriptor, content)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def write_beside(self, name: str, parts: Iterable[ReadableBuffer], *, mode: int = _PRIVATE_FILE) -> str:
        """The name of a file of these parts, on disk, which is to replace `name` later.

        Raises:
            OSError: as `write`. What `parts` raises, too, leaves no file.
        """
        staged = f".{name}.{os.urandom(8).hex()}{STAGED_SUFFIX}"
        os.close(self._write_new(staged, parts, mode=mode, flush=True))
        return staged

    def _write_new(self, name: str, parts: Iterable[ReadableBuffer], *, mode: int, flush: bool) -> int:
        """A descriptor of a new file of these parts, which is locked while it is open: whoever finds the file can tell
        that its writer lives."""
        mode = FILE_FOR_OTHERS if self.for_others else mode
        descriptor = self.create(name, mode)
        try:
            _lock(descriptor)
            os.fchmod(descriptor, mode)  # undoes the umask
            for part in parts:
                _write_all(descriptor, part)
            if flush:
                os.fsync(descriptor)
        except BaseException:
            close_quietly(descriptor)
            self.remove(name)
            raise
        return descriptor

    def __del__(self) -> None:
        if not self._is_ending():
            close_quietly(self._descriptor)


def close_quietly(descriptor: int) -> None:
    """Close a descriptor; a failure does not matter here, and closes it as well."""
    try:  # noqa: SIM105 - contextlib is not imported on the load path
        os.close(descriptor)
    except OSError:
        pass


def read_pieces(pieces: Sequence[Piece], memory: memoryview) -> None:
    """Read parts of files, one after another, as far as they go; raises OSError.

    Args:
        pieces: (descriptor, first byte, bytes) of each.
    """
    at = 0
    for descriptor, start, nbytes in pieces:
        room, done = memory[at : at + nbytes], 0
        while done < nbytes and (count := os.preadv(descriptor, [room[done:]], start + done)):
            done += count
        at += nbytes


def open_cache_directory(serialization_dir: str | None) -> CacheDirectory:
    """The directory, created with its parents (mode 0700) if missing; None is the user's cache directory.

    Raises:
        CacheError: it is not a directory, belongs to someone else, is writable by others, or cannot be made or opened.
    """
    path = user_directory() if serialization_dir is None else os.fspath(serialization_dir)
    return checked_directory(path, "cache directory", _open_or_make)


def open_prebuilt_folder(path: str) -> CacheDirectory:
    """A folder of programs that is only read, and not made where it is missing; raises as `open_cache_directory`."""
    return checked_directory(path, "prebuilt folder", open_directory)


def checked_directory(path: str, title: str, open_it: Callable[[str], int]) -> CacheDirectory:
    """The directory at a path.

    Args:
        title: what the directory is called in messages.
        open_it: gives its descriptor.
    Raises:
        CacheError: as `open_cache_directory`.
    """
    if os.name != "posix":
        raise CacheError(f"no cache on {os.name}: its access rights cannot be checked, expected a POSIX system")
    try:
        directory = CacheDirectory(path, open_it(path))
        _check_directory(f"{title} {path}", path, directory.own_stat())
    except NotADirectoryError as error:
        kind = "a symbolic link" if os.path.islink(path.rstrip("/")) else "not a directory"
        raise CacheError(f"{title} {path} is {kind}, expected a directory") from error
    except (OSError, ValueError, MemoryError) as error:
        raise CacheError(f"{title} {path} cannot be used: {str(error) or 'no memory'}") from error
    return directory


def user_directory() -> str:
    """The user's cache directory, which may not exist yet.

    Raises:
        CacheError: there is none, as for a user without a home.
    """
    try:
        import platformdirs

        path = platformdirs.user_cache_dir("jitdelegate", appauthor=False)
    except (ImportError, OSError, RuntimeError) as error:
        raise CacheError(f"the user has no cache directory: {error}", "set HOME or XDG_CACHE_HOME") from error
    if not os.path.isabs(path):
        raise CacheError(
            f"the user has no cache directory: it would be {path!r}, expected an absolute path",
            "set HOME or XDG_CACHE_HOME",
        )
    return path


def open_directory(path: str) -> int:
    """A descriptor of a directory; never follows a link. Raises OSError."""
    path = path.rstrip("/") or path  # a slash at the end would follow a link
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _open_or_make(path: str) -> int:
    try:
        return open_directory(path)
    except FileNotFoundError:
        for folder in missing(path.rstrip("/") or path):
            _make_directory(folder)
        return open_directory(path)


def missing(path: str) -> Iterator[str]:
    """The missing directories, outermost first."""
    parent = os.path.dirname(path)
    if parent not in ("", path) and not os.path.isdir(parent):  # "/" is its own parent
        yield from missing(parent)
    yield path


def _make_directory(path: str) -> None:
    try:  # noqa: SIM105 - contextlib is not imported on the load path
        os.mkdir(path, _PRIVATE_DIRECTORY)
    except FileExistsError:
        pass  # another process was faster


def _check_directory(called: str, path: str, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), _ROOT):
        raise CacheError(f"{called} belongs to user {status.st_uid}, expected {os.geteuid()} or root")
    if status.st_mode & _OTHERS_MAY_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        reason = f"{called} has mode {mode:04o}, expected one that others cannot write"
        raise CacheError(reason, f"chmod 700 {path}")


def _check_file(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise CacheError(f"{name} is not a regular file (mode {stat.filemode(status.st_mode)})")
    if status.st_uid not in (os.geteuid(), _ROOT):
        raise CacheError(f"{name} belongs to user {status.st_uid}, expected {os.geteuid()} or root")
    if status.st_mode & _OTHERS_MAY_WRITE:
        raise CacheError(f"{name} has mode {stat.S_IMODE(status.st_mode):04o}, expected one that others cannot write")
    if status.st_size > LARGEST_FILE:
        raise CacheError(f"{name} has {status.st_size} bytes, expected at most {LARGEST_FILE}")


def _lock(descriptor: int) -> None:
    """Lock a new file, where the system can."""
    try:
        import fcntl  # not before: a hit writes nothing

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        pass  # its age tells


def _write_all(descriptor: int, content: ReadableBuffer) -> None:
    rest = memoryview(content).cast("B")
    while rest:
        written = os.write(descriptor, rest)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]
