"""A job runs all sides by turns on the same inputs, and what fails or crashes costs no more than its own times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.measurement import timing
from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.side import Side
from jitdelegate.commands.suite import job as jobs_child
from jitdelegate.commands.suite import jobs
from jitdelegate.commands.suite.job import CALIBRATION, PROFILE, Job, measure
from jitdelegate.commands.suite.report import error_of
from jitdelegate.errors import DeviceError
from tests.commands.suite import fake_sides
from tests.commands.suite.fake_sides import CRASHES_AT, FakeSide

SIDES = ("jitdelegate", "litert", "openvino")


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run settles a side."""
    monkeypatch.setattr(timing, "SETTLE", 0.0)


@pytest.fixture
def job(model: str, tmp_path: Path) -> Job:
    """Of fake sides, in four rounds."""
    return Job(model, 1, SIDES, {}, runs=4, seconds=0.0, most_seconds=60.0, stage=str(tmp_path / "stage"))


def test_sides_take_turns_on_the_same_inputs(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, order = dict[str, FakeSide](), list[str]()

    def open_side(name: str, entry: Entry, options: DelegateOptions, threads: int) -> Side:
        opened[name] = FakeSide(name, entry, more=float(name == "openvino"))
        return opened[name]

    monkeypatch.setattr(Job, "begin", lambda self, name: order.append(name))
    found = measure(job, open_side)
    assert {name: side.runs for name, side in opened.items()} == dict.fromkeys(SIDES, 1 + 2 * 4)
    assert {name: len(each) for name, each in found.seconds.items()} == dict.fromkeys((*SIDES, CALIBRATION), 4)
    assert order[:3] == [*SIDES]
    rounds = [order[k : k + 4] for k in range(3, len(order), 4)]
    assert [{*each} for each in rounds] == [{*SIDES, CALIBRATION}] * 4
    assert len({tuple(each) for each in rounds}) > 1
    first, *rest = (side.given for side in opened.values())
    assert all(np.array_equal(one, other) for given in rest for one, other in zip(first, given, strict=True))
    assert found.differences["jitdelegate"][0]["nrmse"] == 0.0
    assert found.differences["openvino"][0]["nrmse"] > 0.0
    assert "litert" not in found.differences


def test_a_side_that_fails_has_a_reason_and_the_others_have_times(job: Job) -> None:
    def open_side(name: str, entry: Entry, options: DelegateOptions, threads: int) -> Side:
        if name == "litert":
            raise ZeroDivisionError("by\n  zero")
        return FakeSide(name, entry)

    found = measure(job, open_side)
    assert found.failed == {"litert": "by zero"}
    assert {*found.seconds} == {"jitdelegate", "openvino", CALIBRATION}
    assert found.differences == {}


@pytest.mark.parametrize("outputs", [[], [np.zeros(1, np.int8)], [np.array([np.nan], np.float32)]])
def test_outputs_that_are_others_are_no_small_difference(job: Job, outputs: list[np.ndarray]) -> None:
    class Other(FakeSide):
        def outputs(self) -> list[np.ndarray]:
            return super().outputs() if self.name == "litert" else outputs

    found = measure(replace(job, sides=("litert", "openvino")), lambda name, entry, *_: Other(name, entry))
    assert error_of(found.differences["openvino"]) == "not comparable"


@pytest.mark.parametrize("run", [1, 4])
def test_a_side_that_ends_its_process_is_left_out(job: Job, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JOB", fake_sides.__name__)
    monkeypatch.setenv(CRASHES_AT, str(run))
    started = list[tuple[str, ...]]()
    run_module = jobs.run_module

    def counted(*arguments: object, **named: object) -> object:
        started.append(arguments)  # type: ignore[arg-type]
        return run_module(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "run_module", counted)
    found = jobs.measure_in_process(replace(job, sides=(*SIDES, "onnxruntime")))
    assert found.failed == {"openvino": "process: ended by SIGSEGV", "onnxruntime": "it knows no such operator"}
    assert {name: len(each) for name, each in found.seconds.items()} == {
        "jitdelegate": 4,
        "litert": 4,
        CALIBRATION: 4,
    }
    assert len(started) == 2


def test_a_process_that_hangs_is_ended(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_SECONDS", -60.0 + 0.01)
    found = jobs.measure_in_process(job)
    assert found.failed == dict.fromkeys(SIDES, "process: it took more than 0.01 seconds")


def test_a_file_that_is_no_model_fails_on_all_sides(job: Job, tmp_path: Path) -> None:
    (tmp_path / "broken.tflite").write_bytes(b"TFL3")
    found = jobs.measure_in_process(replace(job, model=str(tmp_path / "broken.tflite")))
    (reason,) = {*found.failed.values()}
    assert {*found.failed} == {*SIDES}
    assert "4 bytes are too few" in reason
    assert (found.seconds, found.calibration) == ({}, ())


def test_kernels_are_profiled_with_the_work_of_all_operators(job: Job) -> None:
    found = measure(replace(job, sides=("jitdelegate", PROFILE), options={"target": "cpu"}))
    assert found.failed == {}
    assert found.target == "cpu"
    assert sum(kernel["work"].get("float32", 0) for kernel in found.kernels) > 0


def test_a_profile_that_fails_costs_no_times(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DeviceError("no stamps")

    monkeypatch.setattr(jobs_child, "OwnSide", refuse)
    found = measure(replace(job, sides=("jitdelegate", PROFILE)))
    assert found.failed == {PROFILE: "no stamps"}
    assert len(found.seconds["jitdelegate"]) == 4
