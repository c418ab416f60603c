"""How many workers the memory allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.commands.fleet import memory
from jitdelegate.commands.fleet.memory import BASE, PER_BYTE, allowed_workers, free_bytes


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 4 GiB that processes may take, in no control group."""
    monkeypatch.setattr(memory, "_SYSTEM", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal:       9000000 kB\nMemAvailable:   4194304 kB\nHugePages_Total: 0\n")
    return tmp_path


def _limit(system: Path, limit: str) -> None:
    (system / "memory.max").write_text(f"{limit}\n")
    (system / "memory.current").write_text(f"{3 << 30}\n")
    (system / "memory.stat").write_text(f"anon 1\ninactive_file {1 << 30}\n")


def test_the_largest_model_decides(system: Path) -> None:
    large = system / "large.tflite"
    with large.open("wb") as file:
        file.truncate(((1 << 30) - BASE) // PER_BYTE)
    assert free_bytes() == 4 << 30
    assert allowed_workers([]) == (4 << 30) // BASE
    assert allowed_workers([str(system / "missing.tflite"), str(large)]) == 4


def test_there_is_always_one(system: Path) -> None:
    (system / "meminfo").write_text("MemAvailable: 1 kB\n")
    assert allowed_workers([]) == 1


def test_a_container_has_its_limit(system: Path) -> None:
    _limit(system, str(4 << 30))
    assert free_bytes() == 2 << 30  # of 3 GiB, one is files that the system drops
    _limit(system, "max")
    assert free_bytes() == 4 << 30


def test_a_system_that_tells_nothing_sets_no_limit(system: Path) -> None:
    (system / "meminfo").unlink()
    assert allowed_workers([]) > 1000
