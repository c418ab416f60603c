"""A sample of `scripts/fuzz_graphs.py`: random graphs with one thread and three, between protected pages."""

from __future__ import annotations

import sys

import pytest

from tests.targets.test_cpu_graphs import RUNNABLE
from tests.tflite.scripts import script

pytest.importorskip("ai_edge_litert")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")


@linux_only
def test_random_graphs_compute_what_litert_computes(capsys: pytest.CaptureFixture[str]) -> None:
    status = script("fuzz_graphs").main(["--rounds", "40", "--seed", "7"])
    assert status == 0, capsys.readouterr().out


@linux_only
@pytest.mark.parametrize("graphs", ["moves", "passes"])
def test_random_graphs_of_a_kind_compute_what_litert_computes(graphs: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = script("fuzz_graphs").main(["--rounds", "20", "--seed", "7", "--graphs", graphs])
    assert status == 0, capsys.readouterr().out


@linux_only
@pytest.mark.skipif(RUNNABLE[-1] == "generic", reason="no threads on this machine")
def test_threads_that_compute_the_wrong_chunks_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample would notice, since its threads share steps."""
    monkeypatch.setattr("jitdelegate.targets.cpu.entry.schedule._by_halves", lambda job, chunk: chunk * 0)
    assert script("fuzz_graphs").main(["--rounds", "5", "--seed", "7", "--features", RUNNABLE[-1]]) == 1
    assert "3 threads, output" in capsys.readouterr().out


@linux_only
def test_a_kernel_that_writes_beyond_its_memory_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample would notice: an output whose last vector is stored without a mask."""
    monkeypatch.setattr("jitdelegate.targets.cpu.code.epilogue.Epilogue.lanes_to_mask", lambda *_: 0)
    assert script("fuzz_graphs").main(["--rounds", "25", "--seed", "7", "--features", RUNNABLE[-1]]) == 1
    assert "SIGSEGV" in capsys.readouterr().out
