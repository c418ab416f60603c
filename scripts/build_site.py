"""Builds the documentation's site: python -m scripts.build_site [--site FOLDER].

The pages are the documents in docs/ and those of `PAGES`, put together in one folder for Zensical, with links between
them that hold there. A link to a page or heading that does not exist ends the build. The pages need neither a server
nor a network.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
"""Documents at the top of the repository, and the pages that are made of them."""
WITHOUT_CONTENTS = "---\nhide: [toc]\n---\n\n"
"""Before a page of one section, whose table gets the room of its table of contents."""
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(([\w./-]+\.md)(#[\w-]+)?\)")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 the site is built, 1 a link does not hold or the builder failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, default=ROOT / "site", metavar="FOLDER", help="default: site")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gather(folder)
        built = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, check=False)
        if built.returncode == 0:
            shutil.copytree(folder / "site", arguments.site, dirs_exist_ok=True)
    return min(built.returncode, 1)


def gather(folder: Path) -> None:
    """Writes all that the site is made of: its settings, the pages, and the package, whose docstrings they show."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    for document, page in PAGES.items():
        shutil.copy(ROOT / document, folder / "docs" / page)
    for path in (folder / "docs").glob("*.md"):
        path.write_text(_page(path.read_text()))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "jitdelegate").symlink_to(ROOT / "jitdelegate")


def _page(text: str) -> str:
    """The document as the site needs it: links to pages in one folder, and no escaped bars in code.

    In a table GitHub wants the bars in code escaped, and Python-Markdown shows what escapes them.
    """
    linked = _LINK.sub(lambda link: f"]({_on_site(link[1])}{link[2] or ''})", text)
    linked = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), linked)
    return linked if "\n## " in linked else WITHOUT_CONTENTS + linked


def _on_site(path: str) -> str:
    name = path.removeprefix("../").removeprefix("docs/")
    return PAGES.get(name, "index.md" if name == "README.md" else name)


if __name__ == "__main__":
    sys.exit(main())
