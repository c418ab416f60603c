"""What others do to the entries of a cache."""

from __future__ import annotations

from pathlib import Path


def only_entry(folder: Path) -> Path:
    """The only entry in a folder."""
    (found,) = folder.glob("*.jitd")
    return found


def overwrite(path: Path, content: bytes | bytearray) -> None:
    """Write into the file itself, as `cp` does for root, whom the entry's mode does not keep from it."""
    path.chmod(0o600)
    path.write_bytes(content)
