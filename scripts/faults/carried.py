"""Signed programs on their way to other machines, as faults are injected into exports, imports and pushes."""

from __future__ import annotations

import contextlib
import io
import shutil
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from cache_tools.__main__ import main
from cache_tools.entries import open_entries
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.key import stored_key
from jitdelegate.runtime.cache.remote import pull
from jitdelegate.runtime.cache.store import open_entry, open_front

DONE, REFUSED = "done", "refused"


@dataclass(frozen=True, slots=True)
class Carried:
    """Where it happens.

    Attributes:
        filled: a directory of good entries.
        cache: the directory that commands work on.
        away: the folder of bundles, or a remote.
        keys: the folder of the signer's keys and of the good bundle.
    """

    filled: Path
    cache: Path
    away: Path
    keys: Path

    @property
    def private(self) -> str:
        return str(self.keys / "private.pem")

    @property
    def public(self) -> str:
        return str(self.keys / "public.pem")

    @property
    def bundle(self) -> Path:
        return self.away / "programs.tar"

    def write_keys(self) -> None:
        """Keys that are the same at each run."""
        key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
        self.keys.mkdir()
        Path(self.private).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        Path(self.public).write_bytes(public)

    def reset(self, *, is_filled: bool) -> None:
        """A directory that has the good entries, or nothing; nothing else."""
        for folder in (self.cache, self.away):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
        if is_filled:
            shutil.copytree(self.filled, self.cache, dirs_exist_ok=True)

    def export(self) -> str:
        """Export all entries, signed."""
        return _outcome("export", str(self.bundle), "--sign", self.private, "--dir", str(self.cache))

    def push(self) -> str:
        """Push all entries."""
        return _outcome("push", str(self.away), "--sign", self.private, "--dir", str(self.cache))

    def import_bundle(self, into: Path | None = None) -> str:
        """Import the bundle, verified."""
        return _outcome("import", str(self.bundle), "--verify", self.public, "--dir", str(into or self.cache))

    def fetch(self, into: Path) -> bool:
        """Fetch every entry from the remote into an empty directory; whether all came."""
        directory, came = open_cache_directory(str(into)), list[bool]()
        for entry in open_entries(str(self.filled)):
            assert entry.program is not None
            key = stored_key(entry.program.key)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                came.append(pull(directory, str(self.away), self.public, key, open_front, open_entry))
        return all(came)

    def bad(self, folder: Path) -> list[str]:
        """Entries of a folder that are not the good ones of their names."""
        good = {path.name: path.read_bytes() for path in self.filled.glob("*.jitd")}
        return [path.name for path in folder.glob("*.jitd") if path.read_bytes() != good.get(path.name)]

    def is_whole(self, folder: Path) -> bool:
        """Whether a folder has all entries."""
        return {path.name for path in self.filled.glob("*.jitd")} <= {path.name for path in folder.glob("*.jitd")}


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        do: runs it: DONE, REFUSED, or an exception that would reach the user.
        begins_filled: whether the directory has entries before.
        trouble: what is wrong after it, "" for nothing.
    """

    do: Callable[[Carried], str]
    begins_filled: bool
    trouble: Callable[[Carried, str], str]


def _after_import(carried: Carried, how: str) -> str:
    if bad := carried.bad(carried.cache):
        return f"wrong entries {bad}"
    return "" if how != DONE or carried.is_whole(carried.cache) else "entries are lost"


def _after_export(carried: Carried, how: str) -> str:
    """What is in a bundle can be imported, and a bundle that is done is whole."""
    if not carried.bundle.exists():
        return "the bundle is lost" if how == DONE else ""
    other = carried.keys / "imported"
    shutil.rmtree(other, ignore_errors=True)
    if carried.import_bundle(other) != DONE or carried.bad(other):
        return "the bundle cannot be imported"
    return "" if how != DONE or carried.is_whole(other) else "entries are lost"


def _after_push(carried: Carried, how: str) -> str:
    """What is taken from the remote is right, and all is there once it is done."""
    other = carried.keys / "fetched"
    shutil.rmtree(other, ignore_errors=True)
    came = carried.fetch(other)
    if carried.bad(other):
        return "wrong entries were fetched"
    return "" if how != DONE or came else "entries are lost"


COMMANDS = {
    "import": Command(Carried.import_bundle, begins_filled=False, trouble=_after_import),
    "export": Command(Carried.export, begins_filled=True, trouble=_after_export),
    "push": Command(Carried.push, begins_filled=True, trouble=_after_push),
}


def _outcome(*arguments: str) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            status = main([*arguments])
        except BaseException:  # noqa: BLE001  # whatever it is, it would have reached the user
            return f"exception: {traceback.format_exc()}"
    if status == 0:
        return DONE
    return REFUSED if told.getvalue() else "exception: no word about what was refused"
