"""Puts the stub where the machine's own driver would be."""

from __future__ import annotations

import pytest

from tests.gpu.stub.library import Library


def install(monkeypatch: pytest.MonkeyPatch, library: Library) -> Library:
    """From now on models are opened on the stub; it needs no prototypes."""
    monkeypatch.setattr("jitdelegate.targets.may_be_here", lambda name: True)
    monkeypatch.setattr("jitdelegate.targets.cuda.target.open_library", lambda: library)
    monkeypatch.setattr("jitdelegate.runtime.cuda.mark.open_library", lambda: library)
    monkeypatch.setattr("jitdelegate.runtime.cuda.device.declare", lambda library: None)
    return library
