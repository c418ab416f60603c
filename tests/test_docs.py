"""Paths, modules and examples that documents and docstrings name are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jitdelegate"
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
MODULES = [path for folder in ("jitdelegate", "cache_tools", "scripts") for path in (ROOT / folder).rglob("*.py")]
QUOTED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
LINKED = re.compile(r"\]\(([\w./-]+)\)")
COMMAND = re.compile(r"python -m ([a-z]\w*(?:\.\w+)*)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LONGEST_LINE = 120
SOURCE_SUFFIXES = (".py", ".sh", ".md", ".fbs")
WRITTEN_BY_COMMANDS = {"gpu-results.md", "kernels/"}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _folders() -> set[str]:
    return {path.name for path in (*ROOT.iterdir(), *PACKAGE.iterdir()) if path.is_dir()}


def _paths(text: str) -> set[str]:
    """What is quoted and looks like a file or folder of this repository."""
    found = {path for path in QUOTED.findall(text) if path.endswith((*SOURCE_SUFFIXES, "/"))}
    found |= {path for path in QUOTED.findall(text) if "/" in path and path.split("/")[0] in _folders()}
    return found - WRITTEN_BY_COMMANDS


def _is_there(path: str, beside: Path) -> bool:
    """Whether a path from the repository, the package or a neighbouring file exists; a name alone may be anywhere."""
    if any((start / path).exists() for start in (ROOT, PACKAGE, beside)):
        return True
    return "/" not in path and any(PACKAGE.rglob(path))


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_paths_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text()
    missing = {path for path in _paths(text) if not _is_there(path, document.parent)}
    missing |= {path for path in LINKED.findall(text) if not (document.parent / path).exists()}
    assert missing == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_lines_of_prose_fit(document: Path) -> None:
    prose = FENCED.sub("", document.read_text()).splitlines()
    assert [line for line in prose if len(line) > LONGEST_LINE and not line.startswith("|")] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_modules_that_a_document_runs_exist(document: Path) -> None:
    ours = {name for name in COMMAND.findall(document.read_text()) if find_spec(name.split(".")[0]) is not None}
    assert {name for name in ours if find_spec(name) is None} == set()


def test_files_that_docstrings_of_modules_name_exist() -> None:
    missing = {(_name(module), path) for module in MODULES for path in _missing(module)}
    assert missing == set()


def _missing(module: Path) -> set[str]:
    """Files that a module's docstring names and that are not there."""
    docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
    paths = {path for path in _paths(docstring) if path.endswith(SOURCE_SUFFIXES)}
    if module.name == "__init__.py":
        return {path for path in paths if not any((start / path).exists() for start in (ROOT, module.parent))}
    return {path for path in paths if not _is_there(path, module.parent)}


def test_the_examples_of_the_guide_stand_in_the_code() -> None:
    """An operator, a kind of reductions, a level of the CPU and a fusion."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    files = (
        *("jitdelegate/ops/elementwise.py", "tests/targets/test_combiners.py", "jitdelegate/base/targets.py"),
        "jitdelegate/targets/cpu/products/depthwise.py",
    )
    for example, file in zip(examples, files, strict=True):
        assert dedent(example).strip() in (ROOT / file).read_text()
