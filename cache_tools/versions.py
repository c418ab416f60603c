"""The versions of signed bundles that were imported, by signer and entry: an older bundle is a downgrade.

They lie in one small file beside the entries, and stay when entries are removed. As in The Update Framework, a version
is a whole number, the same version may come again, and a lower one is refused. Bundles of other entries do not matter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import CacheDirectory, close_quietly
from jitdelegate.runtime.cache.lock import Lock
from jitdelegate.runtime.cache.statements import LARGEST_VERSION

NAME = ".versions"
LARGEST_FILE = 1 << 26
LONGEST_WAIT = 10.0
"""Seconds to wait for another import."""
_FORMAT = 1
Versions = dict[str, dict[str, int]]
"""Key id of a signer -> name of an entry -> the largest version."""


@contextmanager
def alone(directory: CacheDirectory) -> Iterator[None]:
    """No other signed import meanwhile: an older one could be checked before a newer one is remembered.

    Raises:
        CacheError: another import takes too long.
    """
    lock = Lock(directory, NAME.removeprefix("."))
    lock.acquire(LONGEST_WAIT)
    try:
        if lock.timed_out:
            raise CacheError("another import has not ended yet")
        yield
    finally:
        lock.release()


def refuse_downgrade(directory: CacheDirectory, key_id: str, names: Iterable[str], version: int) -> None:
    """
    Raises:
        CacheError: the signer's bundle of this version is older than one with the same entry, or it is not known.
    """
    seen = _read(directory).get(key_id, {})
    newest = max((seen.get(name, 0) for name in names), default=0)
    if version < newest:
        raise CacheError(
            f"it has version {version}, but version {newest} of its entries was imported before; "
            "--allow-downgrade imports it nevertheless"
        )


def remember_version(directory: CacheDirectory, key_id: str, names: Iterable[str], version: int) -> None:
    """Remember the version of a signer's bundle for its entries.

    Raises:
        OSError: it could not be written; what was known before still is.
    """
    try:
        versions = _read(directory)
    except CacheError:
        versions = {}  # a downgrade was allowed
    versions.setdefault(key_id, {}).update(dict.fromkeys(names, version))
    content = json.dumps({"format": _FORMAT, "signers": versions}, sort_keys=True, separators=(",", ":"))
    directory.write(NAME, content.encode())


def _read(directory: CacheDirectory) -> Versions:
    """
    Raises:
        CacheError: there is a file, but it cannot be read.
    """
    try:
        descriptor = directory.open(NAME)
    except FileNotFoundError:
        return {}
    try:
        nbytes = os.fstat(descriptor).st_size
        content = os.read(descriptor, min(nbytes, LARGEST_FILE))
        known = json.loads(content)
        versions: Versions = known["signers"]
        numbers = [number for seen in versions.values() for number in seen.values()]
        if known["format"] != _FORMAT or not all(type(one) is int and 0 <= one <= LARGEST_VERSION for one in numbers):
            raise ValueError("it has another format")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CacheError(
            f"which versions were imported before is not known, for {NAME} is damaged; --allow-downgrade begins anew"
        ) from error
    finally:
        close_quietly(descriptor)
    return versions
