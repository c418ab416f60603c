"""The site builds without warnings, and its pages need no network."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b(?=[^>]*stylesheet)[^>]*href=["']?(?:https?:)?//[^>]*>"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as the documentation's extra builds it."""
    if find_spec("zensical") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "scripts.build_site", "--site", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "no issues found" in built.stdout.lower()
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"contributing", "changelog"}
    assert documents <= {path.stem for path in site.glob("*.html")}


def test_no_page_loads_anything_from_a_network(site: Path) -> None:
    loading = {path.name: LOADED.findall(path.read_text()) for path in site.glob("*.html")}
    assert {name: found for name, found in loading.items() if found} == {}


def test_the_reference_shows_docstrings(site: Path) -> None:
    page = (site / "api.html").read_text()
    assert "directory of compiled programs" in page  # of load's arguments
    assert 'id="jitdelegate.Model.run"' in page
    assert 'id="jitdelegate.errors.DelegationError"' in page
