"""Opening a program imports next to nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import xxhash

FORBIDDEN = frozenset(
    (
        *("numba", "llvmlite", "flatbuffers", "numpy", "platformdirs"),
        *("dataclasses", "typing", "enum", "re", "pathlib", "json", "logging", "tempfile", "threading"),
        *("contextlib", "functools", "hashlib", "collections", "importlib.metadata"),
    )
)
WARM_ROAD = """
import sys
sys.path += sys.argv[2:]
import os
before = set(sys.modules)
import jitdelegate.program.read, jitdelegate.runtime.cache.store
import jitdelegate.runtime.cpu.session, jitdelegate.runtime.cpu.features
from jitdelegate.runtime.cache.key import KeyParts, model_key
key = model_key("0", KeyParts("cpu", "", "none", "", toolchain=""))
jitdelegate.runtime.cache.store.open_store(sys.argv[1]).get(key)
jitdelegate.runtime.cpu.features.level()
import jitdelegate.targets.cuda.target, jitdelegate.runtime.cuda.device, jitdelegate.runtime.cuda.session
print(*sorted(set(sys.modules) - before))
"""


def test_the_load_path_imports_nothing_heavy(tmp_path: Path) -> None:
    # -I -S: no site packages, whose start-up files may import anything
    paths = [str(Path(__file__).parents[2]), str(Path(xxhash.__file__).parents[1])]
    command = [sys.executable, "-I", "-S", "-c", WARM_ROAD, str(tmp_path / "cache"), *paths]
    imported = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert {"jitdelegate.runtime.cpu.session", "jitdelegate.runtime.cuda.session"} <= set(imported)
    assert FORBIDDEN.isdisjoint(imported)
