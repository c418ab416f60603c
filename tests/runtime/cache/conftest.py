"""Each cache test counts from zero, in a store of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.runtime.cache.store import Store, counts, open_store


@pytest.fixture(autouse=True)
def _fresh_counts() -> None:
    counts.reset()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the store keeps its entries."""
    return tmp_path / "programs"


@pytest.fixture
def store(folder: Path) -> Store:
    """A store in an empty private directory."""
    return open_store(str(folder))
