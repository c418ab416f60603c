"""Warns the user, once per directory or URL and process, that programs cannot be stored, found or fetched."""

from __future__ import annotations

from jitdelegate.errors import CacheWarning

_told: set[str] = set()


def tell(directory: str, reason: str, remedy: str = "") -> None:
    """Warn that nothing can be stored.

    Args:
        directory: the cache directory; a second problem with it is not reported.
        reason: one sentence without a full stop, which names the directory.
        remedy: what helps besides another directory; "" for nothing.
    """
    helps = [remedy] * bool(remedy) + ["another serialization_dir", "serialization_dir=False to do without a cache"]
    _tell(directory, f"{reason}; models are compiled again at every start. What helps: {', or '.join(helps)}.")


def tell_prebuilt(folder: str, reason: str, remedy: str = "") -> None:
    """Warn that a prebuilt folder, or an entry there, is not used. The arguments are those of `tell`."""
    helps = [remedy] * bool(remedy) + ["to write it anew with `python -m jitdelegate.warm --output`"]
    _tell(folder, f"{reason}; other programs are used, or compiled. What helps: {', or '.join(helps)}.")


def tell_remote(url: str, reason: str) -> None:
    """Warn that a remote is not used; `reason` is a sentence without a full stop."""
    _tell(url, f"remote {url} cannot be used: {reason}; programs that are missing here are compiled.")


def _tell(directory: str, text: str) -> None:
    """Warn, and log the same to the logger "jitdelegate"; once for a directory or URL."""
    if directory in _told:
        return
    _told.add(directory)
    try:
        from logging import NullHandler, getLogger  # not before: a cache that works needs neither

        from jitdelegate.base.user_warning import warn_user
    except (ImportError, OSError, MemoryError):
        return  # not even a module can be read
    logger = getLogger("jitdelegate")
    if not logger.handlers:
        logger.addHandler(NullHandler())  # else Python prints what nobody asked for, beside the warning
    logger.warning(text)
    warn_user(text, CacheWarning)
