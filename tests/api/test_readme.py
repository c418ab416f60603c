"""README says what a newcomer has to know; `tests/docs/test_blocks.py` runs its examples."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_readme_says_what_is_not_compiled_and_how_to_install() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "Integer models give those of LiteRT's default kernels, bit for bit" in " ".join(readme.split())
    assert "\npip install .\n" in readme


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) == 3
