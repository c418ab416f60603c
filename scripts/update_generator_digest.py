"""Writes the digest of the code generators' sources, which is a part of the cache key of every program.

Run it after every change below; a test fails until then. With --check it only compares: exit 0 current, 1 stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from xxhash import xxh3_128

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jitdelegate"
TARGET = PACKAGE / "program" / "generator_digest.py"
FOLDERS = ("ir", "tflite", "passes", "ops", "targets", "compiler")
FILES = (
    "base/targets.py",
    *("runtime/litert_layout.py", "runtime/delegate_table.py"),  # what compiled code knows of LiteRT's interpreter
    "runtime/status.py",  # how it tells of refused values
    *("runtime/cpu/profile.py", "runtime/profile.py"),  # where profiled code leaves its time stamps
    *("program/launch_list.py", "program/program.py", "program/write.py"),
)


def sources() -> list[Path]:
    """Every file that may change what a model compiles to, in a fixed order."""
    found = [path for folder in FOLDERS for kind in ("*.py", "*.tuned") for path in (PACKAGE / folder).rglob(kind)]
    return sorted(found + [PACKAGE / name for name in FILES])


def digest() -> str:
    """xxh3-128 over the names and contents of `sources`, as 32 hex digits."""
    state = xxh3_128()
    for path in sources():
        content = path.read_bytes().replace(b"\r\n", b"\n")
        for data in (path.relative_to(ROOT).as_posix().encode(), content):
            state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 current or updated, 1 stale under --check."""
    before = TARGET.read_text()
    head, _, _ = before.partition("GENERATOR_DIGEST = ")
    after = f'{head}GENERATOR_DIGEST = "{digest()}"\n'
    if "--check" in (sys.argv[1:] if argv is None else argv):
        print("current" if before == after else f"stale: run {Path(__file__).name}")
        return int(before != after)
    TARGET.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
