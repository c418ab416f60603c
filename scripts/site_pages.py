"""Hook of MkDocs: makes pages of documents at the top of the repository, and turns links between documents to pages."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Documents at the top of the repository, and the pages that are made of them."""
_LINK = re.compile(r"\]\(([\w./-]+\.md)(#[\w-]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of `PAGES`."""
    for document, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / document).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links that hold on the site, where all pages are in one folder."""
    return _LINK.sub(lambda link: f"]({_on_site(link[1])}{link[2] or ''})", markdown)


def _on_site(path: str) -> str:
    name = path.removeprefix("../").removeprefix("docs/")
    return PAGES.get(name, "index.md" if name == "README.md" else name)
