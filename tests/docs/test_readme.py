"""The README's links hold, in a clone and on package indexes, and it names no package that cannot be had."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.docs.blocks import ROOT

TARGET = re.compile(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"')
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="read")
PACKAGE = re.compile(r"pip install (?:-\S+ )*['\"]?jitdelegate")


def targets(text: str) -> list[str]:
    return [link or picture for link, picture in TARGET.findall(text)]


def test_links_lead_to_documents_of_the_repository() -> None:
    found = targets((ROOT / "README.md").read_text())
    assert len(found) > 20
    assert [target for target in found if not (ROOT / target.partition("#")[0]).is_file()] == []


def test_links_have_an_address_on_package_indexes() -> None:
    text = SETUP["description"]()
    written = targets((ROOT / "README.md").read_text())
    pictures = [target for target in written if target.endswith(".svg")]
    assert len(pictures) == 2
    starts = [SETUP["PICTURES" if target in pictures else "PAGES"] for target in written]
    assert targets(text) == [f"{start}{target}" for start, target in zip(starts, written, strict=True)]


@pytest.mark.parametrize("folder", ["docs", "jitdelegate", "cache_tools", "examples"])
def test_nothing_tells_to_install_from_an_index(folder: str) -> None:
    """Until the package is there."""
    files = [path for kind in ("*.md", "*.py", "*.js") for path in (ROOT / folder).rglob(kind)]
    told = {str(path.relative_to(ROOT)) for path in [*files, ROOT / "README.md"] if PACKAGE.search(path.read_text())}
    assert told == set()


def test_the_check_finds_such_a_command() -> None:
    assert PACKAGE.search("`pip install 'jitdelegate[cuda]'`") and PACKAGE.search("pip install -q jitdelegate")
    assert not PACKAGE.search("pip install '.[cuda]'")
