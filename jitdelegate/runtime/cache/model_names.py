"""Names of the models whose programs are in a directory, in one small file beside them, for people who list it.

Nothing depends on it: damage and every failure read as "not known". It is written after a model was compiled, never at
a warm start.
"""

from __future__ import annotations

import os

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.place import Place, close_quietly

NAME = ".models"
MOST = 4096
LARGEST_FILE = 1 << 20
LONGEST = 128
"""Characters of a name."""


def remember_model(place: Place, fingerprint: str, path: str) -> None:
    """Remember a model's file name, and forget the oldest of more than MOST."""
    try:
        known = parse_names(_content(place))
    except (OSError, MemoryError):
        return  # what is there may be good
    name = os.path.basename(path)[:LONGEST]
    if known.get(fingerprint) == name:
        return
    known.pop(fingerprint, None)
    known[fingerprint] = name
    try:
        place.write(NAME, names_content(dict([*known.items()][-MOST:])), flush=False)
    except (OSError, MemoryError):
        return  # the list shows fingerprints


def model_names(place: Place) -> dict[str, str]:
    """Fingerprint to name; nothing where they cannot be read."""
    try:
        return parse_names(_content(place))
    except (OSError, MemoryError):
        return {}


def parse_names(content: bytes) -> dict[str, str]:
    """Fingerprint to name, from a file's content."""
    pairs = (line.partition(b" ") for line in content.splitlines())
    try:
        return {key.decode("ascii"): value.decode("unicode_escape") for key, _, value in pairs if value}
    except ValueError:
        return {}


def _content(place: Place) -> bytes:
    """
    Raises:
        OSError, MemoryError: it cannot be read.
    """
    try:
        descriptor = place.open(NAME)
    except (FileNotFoundError, CacheError):
        return b""
    try:
        return os.read(descriptor, LARGEST_FILE)
    finally:
        close_quietly(descriptor)


def names_content(names: dict[str, str]) -> bytes:
    """The content of a file with these names."""
    lines = (key.encode("ascii") + b" " + name.encode("unicode_escape", "surrogatepass") for key, name in names.items())
    return b"".join(line + b"\n" for line in lines)
