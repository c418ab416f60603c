"""Reads past the end of mapped files, with and without the net; a process does one of them, and imports little."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import resource
import signal
import threading
from collections.abc import Callable

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.bus_guard import Net, renew_net, spread_net
from jitdelegate.runtime.memory import Memory

PAGES = 3


class File:
    """A mapped file of ones that has been cut off; `read` reads its second page."""

    def __init__(self, name: str, caught: bool = True) -> None:
        with open(name, "wb") as file:
            file.write(b"1" * (PAGES * mmap.PAGESIZE - 100))
        descriptor = os.open(name, os.O_RDONLY)
        self.memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        os.close(descriptor)
        self.address = Borrowed(self.memory).address
        self.net = spread_net(self.address, len(self.memory)) if caught else None
        assert ctypes.string_at(self.address, 5) == b"11111"
        os.truncate(name, 0)

    def read(self) -> bytes:
        return ctypes.string_at(self.address + mmap.PAGESIZE, 5)

    def hits(self) -> int:
        assert self.net is not None
        return self.net.hits

    def check(self) -> None:
        assert self.read() == bytes(5) and self.hits() == 1, self.hits()
        whole = ctypes.string_at(self.address, PAGES * mmap.PAGESIZE)  # to the end of the last page
        assert whole == bytes(len(whole)) and self.hits() == 1


KEPT: list[File] = []


def watched(name: str = "a") -> File:
    """A file that is watched until the process ends."""
    KEPT.append(File(name))
    return KEPT[-1]


def read_unwatched() -> None:
    File("b", caught=False).read()


def in_thread(work: Callable[[], object]) -> None:
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    thread.join()
    assert done


def in_fork(work: Callable[[], object]) -> None:
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def send() -> None:
    """The signal, from outside."""
    os.kill(os.getpid(), signal.SIGBUS)


def in_the_main_thread() -> None:
    File("a").check()


def in_another_thread() -> None:
    in_thread(File("a").check)


def in_a_forked_child() -> None:
    file = File("a")
    in_fork(file.check)
    file.check()


def of_several_files() -> None:
    for file in [File(str(number)) for number in range(20)]:
        file.check()


def by_c_code_without_the_interpreter_s_lock() -> None:
    file = File("a")
    in_thread(file.check)


def on_an_alternate_stack() -> None:
    faulthandler.enable()
    faulthandler.disable()
    File("a").check()


def with_faulthandler_on_before() -> None:
    faulthandler.enable()
    File("a").check()


def with_faulthandler_on_after() -> None:
    file = File("a")
    faulthandler.enable()
    renew_net()
    file.check()


def with_faulthandler_off_after() -> None:
    faulthandler.enable()
    file = File("a")
    faulthandler.disable()
    renew_net()
    file.check()


def with_faulthandler_on_after_and_off() -> None:
    file = File("a")
    faulthandler.enable()
    renew_net()
    faulthandler.disable()
    file.check()


def with_a_handler_of_python_s_before() -> None:
    signal.signal(signal.SIGBUS, lambda *_: os._exit(9))
    File("a").check()


def with_a_handler_of_python_s_after() -> None:
    file = File("a")
    signal.signal(signal.SIGBUS, lambda *_: os._exit(9))
    renew_net()
    file.check()


def after_a_signal_that_was_passed_on() -> None:
    signal.signal(signal.SIGBUS, lambda *_: None)
    file = File("a")
    send()
    renew_net()
    file.check()


def though_the_signal_is_ignored() -> None:
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
    File("a").check()


def beyond_the_last_byte_of_the_last_page() -> None:
    file = File("a")
    end = file.address + PAGES * mmap.PAGESIZE
    assert ctypes.string_at(end - 50, 50) == bytes(50)
    file.check()


def and_then_a_second_file_s() -> None:
    File("a").check()
    File("b").check()


CAUGHT = (
    *(in_the_main_thread, in_another_thread, in_a_forked_child, of_several_files),
    *(by_c_code_without_the_interpreter_s_lock, on_an_alternate_stack),
    *(with_faulthandler_on_before, with_faulthandler_on_after, with_faulthandler_off_after),
    *(with_faulthandler_on_after_and_off, with_a_handler_of_python_s_before, with_a_handler_of_python_s_after),
    *(after_a_signal_that_was_passed_on, though_the_signal_is_ignored, beyond_the_last_byte_of_the_last_page),
    and_then_a_second_file_s,
)
"""Reads that give zeros and are counted."""


def of_a_file_that_nobody_watches() -> None:
    watched()
    read_unwatched()


def of_a_file_that_is_watched_no_longer() -> None:
    file = File("a")
    assert file.net is not None
    file.net.release()
    file.net.release()
    file.read()


def unwatched_in_another_thread() -> None:
    watched()
    in_thread(File("b", caught=False).read)


def where_the_signal_is_ignored() -> None:
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
    watched()
    read_unwatched()


def unwatched_with_faulthandler_on_before() -> None:
    faulthandler.enable()
    watched()
    read_unwatched()


def unwatched_with_faulthandler_on_after() -> None:
    watched()
    faulthandler.enable()
    read_unwatched()


def with_faulthandler_on_after_and_the_net_renewed() -> None:
    watched()
    faulthandler.enable()
    renew_net()
    read_unwatched()


def with_faulthandler_on_before_off_and_on_again() -> None:
    faulthandler.enable()
    watched()
    faulthandler.disable()
    renew_net()
    faulthandler.enable()
    renew_net()
    read_unwatched()


def with_faulthandler_on_before_and_off() -> None:
    faulthandler.enable()
    watched()
    faulthandler.disable()
    renew_net()
    read_unwatched()


def unwatched_with_faulthandler_on_after_and_off() -> None:
    watched()
    faulthandler.enable()
    renew_net()
    faulthandler.disable()
    read_unwatched()


def with_faulthandler_on_after_and_off_and_the_net_renewed() -> None:
    watched()
    faulthandler.enable()
    renew_net()
    faulthandler.disable()
    renew_net()
    read_unwatched()


def by_a_signal_from_outside() -> None:
    watched()
    send()


def by_a_signal_from_outside_with_faulthandler() -> None:
    faulthandler.enable()
    watched()
    send()


FATAL = {
    of_a_file_that_nobody_watches: 0,
    of_a_file_that_is_watched_no_longer: 0,
    unwatched_in_another_thread: 0,
    where_the_signal_is_ignored: 0,
    unwatched_with_faulthandler_on_before: 1,
    unwatched_with_faulthandler_on_after: 1,
    with_faulthandler_on_after_and_the_net_renewed: 1,
    with_faulthandler_on_before_off_and_on_again: 1,
    with_faulthandler_on_before_and_off: 0,
    unwatched_with_faulthandler_on_after_and_off: 0,
    with_faulthandler_on_after_and_off_and_the_net_renewed: 0,
    by_a_signal_from_outside: 0,
    by_a_signal_from_outside_with_faulthandler: 1,
}
"""Reads that end the process, and how many tracebacks faulthandler prints."""


def called(times: int = 1) -> None:
    numbers: list[int] = []
    signal.signal(signal.SIGBUS, lambda number, _: numbers.append(number))
    watched()
    for _ in range(times):
        send()
        renew_net()
    assert numbers == [signal.SIGBUS] * times, numbers


def called_each_time() -> None:
    called(5)


def called_behind_a_faulthandler() -> None:
    numbers: list[int] = []
    signal.signal(signal.SIGBUS, lambda number, _: numbers.append(number))
    watched()
    with open(os.devnull, "w") as nowhere:
        faulthandler.enable(nowhere)
        renew_net()
        send()
    assert numbers == [signal.SIGBUS], numbers


def ignored() -> None:
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
    watched()
    send()


SENT = (called, called_each_time, called_behind_a_faulthandler, ignored)
"""What happens to a signal from outside."""


def rows_are_used_again() -> None:
    nets = list[Net]()
    while (net := spread_net(4096 * (len(nets) + 1), 1)) is not None:
        nets.append(net)
    assert len(nets) > 100, len(nets)
    nets[7].release()
    last = spread_net(4096, 1)
    assert last is not None and spread_net(4096, 1) is None
    del last
    assert spread_net(4096, 1) is not None  # a row ends with its object


def without_executable_memory() -> None:
    def refuse(*_: object) -> None:
        raise DeviceError("no executable memory")

    Memory.make_executable = refuse  # type: ignore[method-assign, assignment]
    assert spread_net(4096, 1) is None
    assert signal.getsignal(signal.SIGBUS) == signal.SIG_DFL


def run(name: str, folder: str) -> None:
    """One of these functions in a folder for its files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(folder)
    globals()[name]()
