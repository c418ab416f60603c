"""README's Python examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.api import small_models

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_readme_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.tflite").write_bytes(small_models.convolution())
    monkeypatch.chdir(tmp_path)
    exec(example.replace("/var/cache/app", str(tmp_path / "cache")), {})


def test_the_readme_says_what_is_not_compiled_and_how_to_install() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "answer what LiteRT answers by default, bit for bit" in readme
    assert "\npip install .\n" in readme


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) == 3
