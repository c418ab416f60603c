"""The delegate touches LiteRT on one platform only."""

from __future__ import annotations

import platform
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def known_platform() -> None:
    """Elsewhere `trust` refuses, which is tested here too, as if this were elsewhere."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("LiteRT's structures are known on x86-64 Linux")
