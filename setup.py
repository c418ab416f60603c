"""The description on package indexes, where links of README.md need an address; setup.cfg has all else."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

REPOSITORY = "https://github.com/jitdelegate/jitdelegate"
PAGES, PICTURES = f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/raw/main/"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?=[^)\s]+\))")
_PICTURE = re.compile(r'(?<=src=")(?![a-z]+:)|(?<=srcset=")(?![a-z]+:)')


def description() -> str:
    """README.md, with absolute links."""
    text = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    return _PICTURE.sub(PICTURES, _LINK.sub(PAGES, text))


if __name__ == "__main__":
    setup(long_description=description(), long_description_content_type="text/markdown")
