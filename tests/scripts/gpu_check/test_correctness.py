"""Programs are compared with what was expected, and one that fails costs no other."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.gpu_check import correctness, gpu, one_by_one
from scripts.gpu_check.bundle import MODEL
from scripts.gpu_check.row import NRMSE
from tests.gpu.stub.programs import KERNELS, SCALE, SHIFT
from tests.scripts.gpu_check.machine import X, bundle, floats, library, once, use


@pytest.mark.parametrize(
    ("found", "expected", "distance"),
    [
        ((1.0, 2.0), (1.0, 2.0), 0.0),
        ((1.0, 3.0), (1.0, 2.0), 1 / math.sqrt(5)),
        ((math.nan, 1.0), (math.nan, 1.0), 0.0),
        ((math.inf, 1.0), (math.inf, 1.0), 0.0),
        ((math.inf, 1.0), (-math.inf, 1.0), math.inf),
        ((math.nan, 1.0), (0.0, 1.0), math.inf),
        ((1.0,), (1.0, 1.0), math.inf),
        ((2.0,), (0.0,), 2.0),
    ],
)
def test_the_distance_is_relative_and_infinite_where_nan_or_lengths_differ(
    found: tuple[float, ...], expected: tuple[float, ...], distance: float
) -> None:
    assert gpu.nrmse(floats(found), floats(expected)) == pytest.approx(distance)


def test_every_program_is_compared_with_what_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(correctness.rows(bundle(tmp_path, names=("one", "two"))))
    assert [row.subject for row in rows] == ["one, float32", "one, float16", "two, float32", "two, float16"]
    assert all(row.holds and row.value == 0.0 and row.unit == NRMSE for row in rows)


def test_networks_are_compared_before_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    found = bundle(tmp_path, names=("form", "net"))
    cases = [found.cases[0], replace(found.cases[1], group=MODEL)]
    rows = list(correctness.rows(replace(found, cases=cases)))
    assert [row.subject for row in rows[::2]] == ["net, float32", "form, float32"]


def test_all_programs_are_compared_in_one_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    found = bundle(tmp_path, names=("one", "two"))
    for prepared in found.prepared("sm_90"):
        assert correctness.check(prepared).holds
    assert driver.calls["cuDevicePrimaryCtxRetain"] == 1


def test_a_wrong_output_exceeds_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(correctness.rows(bundle(tmp_path, expected=floats([1.001 * SCALE * x + SHIFT for x in X]))))
    assert [row.holds for row in rows] == [False, True]


def test_a_kernel_that_fails_costs_only_its_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = once(tmp_path / "ran", lambda memory: memory.read(4, 4))
    use(monkeypatch, library({**KERNELS, "scale": crash}))
    first, second = correctness.rows(bundle(tmp_path))
    assert first.value is None and first.holds is False and "CUDA_ERROR_ILLEGAL_ADDRESS" in first.note
    assert second.holds


def test_a_program_whose_files_are_damaged_costs_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    found = bundle(tmp_path)
    cut = replace(found.cases[0].programs["sm_90 float32"], path="cut")
    (tmp_path / "cut").write_bytes((tmp_path / "program").read_bytes()[:100])
    cases = [replace(found.cases[0], programs={**found.cases[0].programs, "sm_90 float32": cut})]
    first, second = correctness.rows(replace(found, cases=cases))
    assert first.holds is False and first.note.startswith("error: Error -5 while decompressing")
    assert second.holds


def test_a_process_that_dies_costs_only_its_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library({**KERNELS, "scale": once(tmp_path / "ran", lambda memory: os._exit(1))}))
    first, second = correctness.rows(bundle(tmp_path))
    assert first.note == "the process died" and first.holds is False
    assert second.holds


def test_a_program_that_never_ends_costs_only_its_own_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_by_one, "SECONDS", 3.0)
    use(monkeypatch, library({**KERNELS, "scale": once(tmp_path / "ran", lambda memory: time.sleep(600))}))
    first, second = correctness.rows(bundle(tmp_path))
    assert first.note == "it did not end within 3 s" and first.holds is False
    assert second.holds
