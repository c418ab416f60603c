"""The number of threads of a model without the option `num_threads`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jitdelegate.engine import model_file


@pytest.mark.parametrize(
    ("usable", "limit", "expected"),
    [
        (1, "max 100000\n", 1),
        (2, "max 100000\n", 2),
        (64, "max 100000\n", 4),
        (64, "100000 100000\n", 1),
        (64, "150000 100000\n", 2),
        (64, "50000 100000\n", 1),
        (2, "6400000 100000\n", 2),
        (64, "", 4),
        (64, "100000 0\n", 4),
        (64, "some words here\n", 4),
        (64, None, 4),
    ],
)
def test_the_default_is_the_cpus_that_the_process_and_its_container_may_use_at_most_four(
    usable: int, limit: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpu.max"
    if limit is not None:
        path.write_text(limit)
    monkeypatch.setattr(model_file, "CPU_LIMIT", str(path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(usable)))
    assert model_file.default_threads() == expected


def test_one_cpu_needs_no_look_at_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    monkeypatch.setattr(model_file, "_allowed_cpus", lambda: pytest.fail("looked"))
    assert model_file.default_threads() == 1
