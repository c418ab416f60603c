"""Warns the user, once per directory and process, that compiled programs cannot be stored, or not be fetched."""

from __future__ import annotations

from jitdelegate.errors import CacheWarning

_told: set[str] = set()


def tell(directory: str, reason: str, remedy: str = "") -> None:
    """Warn, and log the same to the logger "jitdelegate".

    Args:
        directory: the cache directory; a second problem with it is not reported.
        reason: one sentence without a full stop, which names the directory.
        remedy: what helps besides another directory; "" for nothing.
    """
    helps = [remedy] * bool(remedy) + ["another serialization_dir", "serialization_dir=False to do without a cache"]
    _warn(directory, f"{reason}; models are compiled again at every start. What helps: {', or '.join(helps)}.")


def tell_remote(url: str, reason: str) -> None:
    """As `tell`, of a remote.

    Args:
        reason: what is wrong, without a full stop.
    """
    _warn(url, f"remote {url} cannot be used: {reason}; programs that are missing here are compiled.")


def _warn(place: str, text: str) -> None:
    if place in _told:
        return
    _told.add(place)
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
