"""What these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.gpu_check import gpu


@pytest.fixture(autouse=True)
def fresh_device() -> Iterator[None]:
    """No test sees another's device."""
    gpu.gpu.cache_clear()
    yield
    gpu.gpu.cache_clear()
