"""Opening a program imports next to nothing."""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from tests import imports
from tests.child import answer_of

FORBIDDEN = frozenset(
    (
        *("numba", "llvmlite", "flatbuffers", "numpy", "platformdirs"),
        *("dataclasses", "typing", "enum", "re", "pathlib", "json", "logging", "tempfile", "threading"),
        *("contextlib", "functools", "hashlib", "collections", "importlib.metadata"),
    )
)


def test_the_load_path_imports_nothing_heavy(tmp_path: Path) -> None:
    # -S: no site packages, whose start-up files may import anything
    paths = [str(Path(__file__).parents[2]), str(Path(xxhash.__file__).parents[1])]
    told = answer_of(imports.the_load_path, tmp_path / "cache", flags=["-S"], PYTHONPATH=os.pathsep.join(paths))
    imported = told.split()
    assert {"jitdelegate.runtime.cpu.session", "jitdelegate.runtime.cuda.session"} <= set(imported)
    assert FORBIDDEN.isdisjoint(imported)
