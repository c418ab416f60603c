"""The site builds without warnings, and its pages need no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts import build_site
from tests.docs.blocks import ROOT

LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b(?=[^>]*stylesheet)[^>]*href=["']?(?:https?:)?//[^>]*>"""
)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")
"""To a file, in Markdown."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as the documentation's extra builds it."""
    if find_spec("zensical") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "scripts.build_site", "--site", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stderr
    return folder


def test_links_between_documents_hold_where_all_are_in_one_folder(tmp_path: Path) -> None:
    build_site.gather(tmp_path)
    pages = [*(tmp_path / "docs").glob("*.md")]
    links = {(page.name, link) for page in pages for link in LINK.findall(page.read_text())}
    assert {"contributing.md", "changelog.md", "security.md"} < {page.name for page in pages}
    assert ("index.md", "quick-start.md") in links and ("contributing.md", "changelog.md") in links
    assert {(page, link) for page, link in links if not (tmp_path / "docs" / link).is_file()} == set()


def test_a_page_of_one_section_gives_its_table_the_room_of_the_contents(tmp_path: Path) -> None:
    build_site.gather(tmp_path)
    starts = {name: (tmp_path / "docs" / f"{name}.md").read_text()[:3] for name in ("ops", "index")}
    assert (starts["ops"], starts["index"]) == ("---", "# j")


def test_every_document_is_a_page(site: Path) -> None:
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")} | {*map(str.lower, build_site.PAGES)}
    documents = {name.removesuffix(".md") for name in documents}
    assert documents <= {path.stem for path in site.glob("*.html")}


def test_no_page_loads_anything_from_a_network(site: Path) -> None:
    loading = {path.name: LOADED.findall(path.read_text()) for path in site.glob("*.html")}
    assert {name: found for name, found in loading.items() if found} == {}


def test_bars_in_the_code_of_tables_are_bars(site: Path) -> None:
    assert "<code>str | None</code>" in (site / "options.html").read_text()
    assert [path.name for path in site.glob("*.html") if re.search(r"<td[^>]*><code>[^<]*\\\|", path.read_text())] == []


def test_long_tables_can_be_searched(site: Path) -> None:
    assert (site / "filter.js").is_file()
    assert "filter.js" in (site / "ops.html").read_text()


def test_the_reference_shows_docstrings(site: Path) -> None:
    page = (site / "api.html").read_text()
    assert "directory of compiled programs" in page  # of load's arguments
    assert 'id="jitdelegate.Model.run"' in page
    assert 'id="jitdelegate.errors.DelegationError"' in page
    assert 'id="jitdelegate.errors.did_you_mean"' not in page  # a function of the package's own


def test_the_search_works_in_pages_that_are_opened_as_files(site: Path) -> None:
    assert "bfloat16" in (site / "search.js").read_text()
    assert 'src="./iframe-worker.js"' in (site / "index.html").read_text()  # a copy, not one from a network
    assert (site / "iframe-worker.js").is_file()


def test_links_that_do_not_hold_end_the_build(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in (*build_site.PAGES, "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "jitdelegate").symlink_to(ROOT / "jitdelegate")
    with (tmp_path / "docs" / "glossary.md").open("a") as page:
        page.write("\n[a page](missing.md) and [a heading](cache.md#missing-heading)\n")
    monkeypatch.setattr(build_site, "ROOT", tmp_path)
    assert build_site.main(["--site", str(tmp_path / "site")]) == 1
    assert not (tmp_path / "site").exists()
    told = capfd.readouterr().err
    assert "page does not exist" in told and "anchor does not exist" in told
