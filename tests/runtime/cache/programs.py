"""Small programs and keys for the cache's tests."""

from __future__ import annotations

import os
from pathlib import Path

from jitdelegate.program.program import Program
from jitdelegate.program.write import write
from jitdelegate.runtime.cache import use_log
from jitdelegate.runtime.cache.key import Key, KeyParts, model_key, this_machine

MODEL_A, MODEL_B = "a" * 32, "b" * 32


def key(model: str = MODEL_A, *, token: str | None = None, toolchain: str = "llvmlite 1") -> Key:
    """The key of a model that nobody compiled."""
    own = KeyParts("cpu", "x86-64-v3", "none", this_machine(), toolchain=toolchain)
    return model_key(model, own, token=token)


def content(for_key: Key, weights: bytes = b"weights") -> bytes:
    """A program's bytes, as the compiler makes them for a key."""
    return write(Program(key=for_key.parts, target="cpu", code=b"\xc3" * 10, weights=weights))


def files(folder: Path) -> list[str]:
    """Names of the files in a directory of programs, but for its log."""
    return sorted(name for name in os.listdir(folder) if name != use_log.NAME)


class Compiler:
    """Counts how often it is asked.

    Attributes:
        calls: the number of compilations.
    """

    def __init__(self, for_key: Key, weights: bytes = b"weights") -> None:
        self.content = content(for_key, weights)
        self.calls = 0

    def __call__(self) -> tuple[bytes, ...]:
        self.calls += 1
        return (self.content,)
