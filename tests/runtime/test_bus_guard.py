"""The net under mapped files catches what would end the process, and nothing else; each case in its own process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jitdelegate.runtime.memory import machine
from tests.child import in_child
from tests.runtime import cut_off_files

pytestmark = pytest.mark.skipif(not machine(), reason="no machine code for this processor and system")
BUS_ERROR = "Fatal Python error: Bus error"


def ended(tmp_path: Path, act: Callable[[], None]) -> tuple[int, int]:
    """The exit status (negative for a signal) and how many tracebacks faulthandler has printed."""
    done = in_child(cut_off_files.run, act.__name__, tmp_path)
    if done.returncode >= 0:
        assert done.returncode == 0, done.stderr
    return done.returncode, done.stderr.count(BUS_ERROR)


def name_of(act: Callable[[], None]) -> str:
    return act.__name__


@pytest.mark.parametrize("act", cut_off_files.CAUGHT, ids=name_of)
def test_a_read_past_the_end_of_a_watched_file_gives_zeros_and_is_counted(
    tmp_path: Path, act: Callable[[], None]
) -> None:
    assert ended(tmp_path, act) == (0, 0)


@pytest.mark.parametrize("act", cut_off_files.FATAL, ids=name_of)
def test_any_other_bus_error_ends_the_process_as_if_there_were_no_net(tmp_path: Path, act: Callable[[], None]) -> None:
    assert ended(tmp_path, act) == (-signal.SIGBUS, cut_off_files.FATAL[act])


@pytest.mark.parametrize("act", cut_off_files.SENT, ids=name_of)
def test_a_signal_from_outside_goes_to_the_handler_that_was_there_before(
    tmp_path: Path, act: Callable[[], None]
) -> None:
    assert ended(tmp_path, act) == (0, 0)


def test_rows_are_used_again_and_when_there_are_none_there_is_no_net(tmp_path: Path) -> None:
    assert ended(tmp_path, cut_off_files.rows_are_used_again) == (0, 0)


def test_a_process_without_executable_memory_has_no_net(tmp_path: Path) -> None:
    assert ended(tmp_path, cut_off_files.without_executable_memory) == (0, 0)
