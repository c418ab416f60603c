"""The delegate touches LiteRT on one platform only."""

from __future__ import annotations

import pytest

from jitdelegate.runtime.memory import machine


@pytest.fixture(scope="session", autouse=True)
def known_platform() -> None:
    """Elsewhere `trust` refuses, which is tested here too, as if this were elsewhere."""
    if not machine():
        pytest.skip("LiteRT's structures are not known here")
