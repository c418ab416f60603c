"""Entries to damage, and changes that other processes may make to them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import Operator, Port, Program
from jitdelegate.program.read import verify_weights
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.key import Key, KeyParts, model_key, this_machine
from jitdelegate.runtime.cache.store import Store

Change = Callable[[Path, Path, random.Random], None]
"""(the entry, a good copy, chance): one thing that happens to the entry."""


def sample(weights: bytes) -> tuple[Key, bytes]:
    """A key, and a program for it that has a bit of everything."""
    key = model_key("0" * 32, KeyParts("cpu", "x86-64-v3", "flat", this_machine(), toolchain=""))
    port = Port(name="x", index=0, shape=(1, 4), dtype="float32", nbytes=16)
    operators = tuple(Operator(index=index, op="CONV_2D", place="cpu") for index in range(20))
    program = Program(
        key=key.parts,
        target="cpu",
        features="x86-64-v3",
        loader="flat",
        inputs=(port,),
        outputs=(port,),
        operators=operators,
        code=b"\xc3" * 10_000,
        weights=weights,
    )
    return key, write(program)


def served(store: Store, key: Key, content: bytes) -> bytes:
    """What a user of the cache ends up with: a damaged entry is refused and compiled again, as `load` does."""
    lookup = store.fetch(key, lambda: (content,))
    assert lookup.program is not None
    try:
        verify_weights(lookup.program)
    except ProgramError as error:
        store.refuse(key, str(error))
        lookup = store.fetch(key, lambda: (content,))
    assert lookup.program is not None
    return write(lookup.program)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The bytes after one accident: a bit, some bytes, a zeroed page, a doubled block, a cut or an extension."""
    data, at = bytearray(content), chance.randrange(len(content))
    kind = chance.randrange(6)
    if kind == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at : at + 8] = chance.randbytes(8)
    elif kind == 2:
        data[at & ~4095 : (at & ~4095) + 4096] = bytes(4096)
    elif kind == 3:
        data[at:at] = data[at : at + 512]
    elif kind == 4:
        del data[at:]
    else:
        data += chance.randbytes(1 + at % 100)
    return bytes(data)


def copied_over(entry: Path, good: Path, chance: random.Random) -> None:
    """A backup is restored; as root, this writes the file itself."""
    if entry.parent.is_dir():
        subprocess.run(["cp", *chance.choice(([], ["-p"], ["-f"])), str(good), str(entry)], check=True)


def cut(entry: Path, good: Path, chance: random.Random) -> None:
    """The file ends somewhere else."""
    if entry.exists():
        os.truncate(entry, chance.choice((0, 100, 5000, chance.randrange(good.stat().st_size))))


def overwritten(entry: Path, good: Path, chance: random.Random) -> None:
    """Other bytes stand somewhere in the file."""
    if entry.exists():
        with entry.open("r+b") as file:
            file.seek(chance.randrange(good.stat().st_size))
            file.write(chance.randbytes(chance.choice((1, 64, 4096, 300_000))))


def replaced(entry: Path, good: Path, chance: random.Random) -> None:
    """Another file has the name."""
    if entry.parent.is_dir():
        other = entry.with_name("other")
        other.write_bytes(chance.choice((good.read_bytes(), b"nonsense")))
        os.replace(other, entry)


def touched(entry: Path, good: Path, chance: random.Random) -> None:
    """The time stamps move, and nothing else."""
    if entry.exists():
        os.utime(entry)


def removed(entry: Path, good: Path, chance: random.Random) -> None:
    """The file or its directory goes."""
    if chance.random() < 0.5:
        entry.unlink(missing_ok=True)
    else:
        shutil.rmtree(entry.parent, ignore_errors=True)


CHANGES: tuple[Change, ...] = (*(2 * (copied_over, cut, overwritten)), replaced, touched, removed)
