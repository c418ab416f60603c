"""Ways to end a process with requests in flight."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.runtime.test_native_requests import Request

    Way = Callable[[Request, Request], None]

alive: list[Any] = []
"""A session and its requests, which live until the process ends."""


def running(request: Request, second: Request) -> None:
    request.open()
    threading.Timer(0.2, second.open).start()


def waiting_for_an_event(request: Request, second: Request) -> None:
    from jitdelegate.runtime.event import Event

    request.open()
    second.open()
    alive.append(type(request)(alive[0], (Event(),)))


def awaited(request: Request, second: Request) -> None:
    running(request, second)
    second.event._when_done(lambda: None)


def sys_exit_in_a_thread_s_time(request: Request, second: Request) -> None:
    request.open()
    second.open()
    sys.exit(3)


EXITS: dict[Way, int] = {running: 0, waiting_for_an_event: 0, awaited: 0, sys_exit_in_a_thread_s_time: 3}
"""And the exit status."""


def end(way: str) -> None:
    """Writes at the very end how many native threads there are more than at the beginning."""

    def tell() -> None:  # the system counts a thread a moment longer than whoever joins it
        deadline = time.monotonic() + 5
        while others() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        os.write(1, str(others() - before).encode())

    def others() -> int:
        return native_threads() - _thread._count()

    atexit.register(tell)  # before what the imports register, so that it runs after that
    import numpy as np

    from jitdelegate.runtime.cpu.session import Session
    from tests.runtime.gate import gate_program
    from tests.runtime.test_native_requests import Request
    from tests.runtime.test_session import native_threads

    before = others()
    session = Session(gate_program(), requests_in_flight=2)
    alive.append(session)
    alive.extend(Request(session, x=np.ones(2, np.int64)) for _ in range(200))
    request, second = Request(session), Request(session)
    alive.extend((request, second))
    globals()[way](request, second)
