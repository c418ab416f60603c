"""Where the tests find real models, which are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DEFAULT_MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"


def models_dir() -> Path:
    """The folder of real models: JITDELEGATE_TEST_MODELS, or `shared/models` beside the checkout.

    Skips the test, with the reason, where there is none.
    """
    folder = Path(os.environ.get("JITDELEGATE_TEST_MODELS", DEFAULT_MODELS))
    if not folder.is_dir():
        pytest.skip(f"no real models: {folder} is not a folder (JITDELEGATE_TEST_MODELS names another)")
    return folder


@pytest.fixture
def models() -> Path:
    """The folder of real models."""
    return models_dir()


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg-cache"))
