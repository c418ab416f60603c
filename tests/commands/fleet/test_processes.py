"""Jobs in worker processes: what fails or dies is begun again once, and stops no other."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.commands.fleet.jobs import run_jobs, told
from jitdelegate.commands.fleet.processes import Processes
from jitdelegate.errors import CompilerFailedError
from tests.commands.fleet import jobs_of_tests


def _results(function: Callable[..., Any], *arguments: tuple[Any, ...], count: int = 2) -> dict[int, Any]:
    with Processes(count) as workers:
        return {
            name: each.exception() or each.result() for name, each in run_jobs(workers, function, enumerate(arguments))
        }


def test_every_job_has_its_result() -> None:
    assert _results(jobs_of_tests.double, *((number,) for number in range(7))) == {k: 2 * k for k in range(7)}
    assert not multiprocessing.active_children()


def test_a_job_whose_process_is_killed_is_begun_again(tmp_path: Path) -> None:
    names = [f"{number}" for number in range(3)]
    assert _results(jobs_of_tests.die_first, *((str(tmp_path), name) for name in names)) == dict(enumerate(names))
    assert sorted(path.name for path in tmp_path.iterdir()) == names  # each died once


def test_a_job_that_always_dies_is_told_of_and_stops_no_other() -> None:
    with Processes(1) as workers:
        dead, alive = workers.submit(jobs_of_tests.die), workers.submit(jobs_of_tests.double, 4)
        with pytest.raises(CompilerFailedError, match="was ended by SIGKILL, perhaps for lack of memory"):
            dead.result()
        assert alive.result() == 8


def test_a_job_that_raises_is_told_of() -> None:
    error = _results(jobs_of_tests.fail, ("no such thing",), count=1)[0]
    assert told(error) == "ValueError: no such thing"


def test_no_more_jobs_wait_at_workers_than_they_have_room_for() -> None:
    made = list[int]()

    def jobs() -> Any:
        for number in range(6):
            made.append(number)
            yield number, (number,)

    with Processes(2) as workers:
        for done, _ in enumerate(run_jobs(workers, jobs_of_tests.double, jobs()), 1):
            assert len(made) <= done + 2


def test_workers_that_are_left_by_an_error_end_and_finish_their_files(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Processes(1) as workers:
        workers.submit(jobs_of_tests.hold, str(tmp_path))
        workers.submit(jobs_of_tests.double, 1)
        deadline = time.monotonic() + 60
        while not (tmp_path / "held").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (tmp_path / "held").exists()
        raise KeyboardInterrupt
    assert not (tmp_path / "held").exists()
    assert not multiprocessing.active_children()
