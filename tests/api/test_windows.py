"""A system that is neither Linux nor macOS is refused in words, whatever is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import jitdelegate
from tests.api import small_models

OPENINGS: tuple[Callable[[bytes], Any], ...] = (
    jitdelegate.load,
    lambda model: jitdelegate.load(model, target="litert", serialization_dir=False),
    lambda model: jitdelegate.Interpreter(model_content=model),
    jitdelegate.CompiledModel.from_buffer,
)


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize(("name", "words"), [("nt", "this is Windows; WSL"), ("java", "this is java")])
def test_opening_a_model_says_where_it_runs(
    opening: Callable[[bytes], Any], name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_models.convolution()
    with monkeypatch.context() as system:
        system.setattr(os, "name", name)
        with pytest.raises(jitdelegate.DeviceError, match=words):
            opening(model)
