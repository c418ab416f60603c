"""Programs whose launches run in every order, again and again."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.program.write import write
from scripts.gpu_check import orders
from scripts.gpu_check.bundle import MODEL, Prepared, pack, read_bundle
from scripts.gpu_check.gpu import rearranged
from scripts.gpu_check.row import Row
from tests.gpu.stub.library import Library
from tests.runtime.test_cuda_fork import BRANCHES, EXPECTED, KERNELS, KINDS, ROW, Order, X, diamond
from tests.scripts.gpu_check.machine import bundle, use


def prepared(folder: Path, some: tuple[Order, ...] = BRANCHES) -> Prepared:
    """A program with such an order, with its values."""
    found = bundle(folder, group=MODEL)
    for name, content in {"program": write(diamond(some)), "x": X.tobytes(), "y": EXPECTED.tobytes()}.items():
        (folder / name).write_bytes(pack(content))
    return next(found.prepared("sm_90"))


def driver(monkeypatch: pytest.MonkeyPatch, act: Any = None) -> Library:
    """A GPU whose kernels do something else where `act` does not answer None: given kernel, values and memory."""

    def execute(launched: Any, memory: Any) -> None:
        if act is None or act(launched.name, launched.values, memory) is None:
            KERNELS[launched.name](launched.values, memory)

    return use(monkeypatch, Library(execute, KINDS))


def measured(one: Prepared, repeats: int = 3) -> Row:
    (row,) = orders.measure(one, repeats=repeats)
    return row


@pytest.mark.parametrize(("some", "number"), [(BRANCHES, 4), (ROW, 2), ((Order(),) * 4, 1)])
def test_every_order_that_is_another_one_is_run(
    some: tuple[Order, ...], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver(monkeypatch)
    row = measured(prepared(tmp_path, some))
    assert (row.value, row.holds, row.note) == (0.0, True, f"3 runs in each of {number} orders")
    assert made.calls["cuGraphLaunch"] == 1 + 3 * number and made.leaks() == []


@pytest.mark.parametrize(("early", "branches"), [(False, False), (True, False), (False, True), (True, True)])
def test_an_order_has_branches_and_early_launches_only_if_asked_for(early: bool, branches: bool) -> None:
    changed = rearranged(diamond(BRANCHES).launches, early=early, branches=branches)
    assert sum(launch.is_dependent for launch in changed) == early * (1 if branches else 3)
    assert any(launch.stream for launch in changed) == any(launch.waits for launch in changed) == branches


def test_a_launch_that_does_not_come_is_seen_though_the_run_before_left_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = count()
    driver(monkeypatch, lambda name, *_: True if name == "first" and next(runs) == 7 else None)
    row = measured(prepared(tmp_path))
    assert row.value == 1.0 and row.holds is False and row.note.endswith("orders, 1 beginning early")


def test_a_long_program_runs_as_often_as_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch)
    monkeypatch.setattr(orders, "SECONDS", 0.0)
    assert measured(prepared(tmp_path), 1000).note == "1 runs in each of 4 orders"


def test_a_program_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, lambda name, values, memory: memory.read(4, 4))
    prepared(tmp_path)
    found = list(orders.rows(read_bundle(tmp_path)))
    assert len(found) == 2 and not any(row.holds for row in found)
    assert all("ILLEGAL_ADDRESS" in row.note for row in found)
