"""Jobs in forked processes."""

from __future__ import annotations

import os
import signal
import time

from scripts.in_child import Failed, in_child


def test_a_job_that_kills_its_process_is_an_answer_and_the_next_ones_run() -> None:
    jobs = [lambda: 1, os.abort, lambda: 2, lambda: os._exit(3), lambda: 4]
    answers = list(in_child(jobs, 20))
    assert answers == [1, Failed("ended by SIGABRT"), 2, Failed("ended by exit status 3"), 4]


def test_a_job_that_raises_answers_with_its_traceback_in_the_same_process() -> None:
    first, failed, second = in_child([os.getpid, lambda: int("x"), os.getpid], 20)
    assert first == second != os.getpid()
    assert isinstance(failed, Failed) and "ValueError: invalid literal" in failed.reason


def test_a_job_that_hangs_is_ended() -> None:
    assert list(in_child([lambda: time.sleep(60), lambda: 1], 1)) == [Failed("ended by SIGALRM"), 1]


def test_a_job_that_interrupts_itself_does_not_run_the_parent_s_code() -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    assert list(in_child([interrupt], 20)) == [Failed("ended by exit status 0")]
