"""Code blocks of a guide, and how they run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"""(?:^[ ]*<!--\ (?:not\ run:\ (?P<reason>[^\n]*?)|(?P<on_gpu>on\ a\ GPU))\ -->\n+)?
        ^(?P<indent>[ ]*)```(?P<language>[\w-]+)(?:\ title="(?P<title>[^"\n]+)")?\n
        (?P<code>.*?)
        ^(?P=indent)```$""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
RUN = ("python", "sh")
"""Languages of blocks that run; those of others are written to the file that their title names."""
INSTALLS = "pip install"
"""Commands that need a network; the continuous integration's first line is one of them."""
SYSTEM_FOLDER = "/var/cache/app"
"""Folder in guides, in whose place there is one of the test's."""


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        page: name of the page's file.
        line: number of its first line of code.
        title: name of the file that it shows; "" for none.
        on_gpu: whether it runs on a GPU, by a comment before it that readers do not see.
        reason: why it does not run, from such a comment; "" where it runs.
    """

    page: str
    line: int
    language: str
    title: str
    on_gpu: bool
    reason: str
    code: str


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page that name a language, in order."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        lines = match["code"].splitlines(keepends=True)
        code = "".join(line.removeprefix(match["indent"]) for line in lines)
        line = text.count("\n", 0, match.start("code")) + 1
        told = match["title"] or "", bool(match["on_gpu"]), match["reason"] or ""
        found.append(Block(page.name, line, match["language"], *told, code))
    return found


def run(blocks: list[Block], folder: Path, gpu: Callable[[], AbstractContextManager[object]]) -> None:
    """Runs the blocks of one page in order, in `folder`: Python ones share their names, each shell is a process.

    Args:
        gpu: a GPU for the time of a context, in this process.
    Raises:
        AssertionError: a command ended with another status than 0.
        Exception: what a block of Python raised; the traceback names page and line.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if block.title:
            (folder / block.title).write_text(block.code)
        if block.reason or INSTALLS in block.code:
            continue
        code = block.code.replace(SYSTEM_FOLDER, str(folder / "system"))
        if block.language == "python":
            with gpu() if block.on_gpu else nullcontext():
                exec(compile("\n" * (block.line - 1) + code, block.page, "exec"), names)
        if block.language == "sh":
            _run_shell(block, code, folder)


def _run_shell(block: Block, code: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    shell = ["bash", "-e", "-o", "pipefail", "-c", code]
    ended = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{block.page}:{block.line} ended with {ended.returncode}\n{ended.stderr}"
