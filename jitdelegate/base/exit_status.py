"""Exit status of the commands, and what it is for an error."""

from __future__ import annotations

import errno

from jitdelegate.errors import CacheError, ModelError

GOOD, FAILED, WRONG_ARGUMENTS = 0, 1, 2
_ARGUMENT_ERRORS = {
    *(errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL),
}
"""Of the system about a path that was given; others are about the machine."""


def status_of(error: BaseException) -> int:
    """WRONG_ARGUMENTS where nothing can be opened at a path that was given, else FAILED."""
    cause = error.__cause__ if isinstance(error, (ModelError, CacheError)) else error
    is_ours = isinstance(cause, (FileNotFoundError, FileExistsError))  # which may have no number
    is_about_a_path = is_ours or (isinstance(cause, OSError) and cause.errno in _ARGUMENT_ERRORS)
    return WRONG_ARGUMENTS if is_about_a_path else FAILED
