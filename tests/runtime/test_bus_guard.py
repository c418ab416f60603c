"""The net under mapped files catches what would end the process, and nothing else; each case in its own process."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the net is Linux x86-64 code"
)

PRELUDE = """
import ctypes, faulthandler, mmap, os, resource, signal, sys, threading
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.bus_guard import renew_net, spread_net
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
PAGES = 3

class File:
    '''A mapped file of ones that has been cut off; `read` reads its second page.'''

    def __init__(self, name, caught=True):
        path = os.path.join(sys.argv[1], name)
        with open(path, "wb") as file:
            file.write(b"1" * (PAGES * mmap.PAGESIZE - 100))
        descriptor = os.open(path, os.O_RDONLY)
        self.memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        os.close(descriptor)
        self.address = Borrowed(self.memory).address
        self.net = spread_net(self.address, len(self.memory)) if caught else None
        assert ctypes.string_at(self.address, 5) == b"11111"
        os.truncate(path, 0)

    def read(self):
        return ctypes.string_at(self.address + mmap.PAGESIZE, 5)

    def check(self):
        assert self.read() == bytes(5) and self.net.hits == 1, self.net.hits
        whole = ctypes.string_at(self.address, PAGES * mmap.PAGESIZE)  # to the end of the last page
        assert whole == bytes(len(whole)) and self.net.hits == 1

def in_thread(work):
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    thread.join()
    assert done

def in_fork(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
BUS_ERROR = b"Fatal Python error: Bus error"


def ended(tmp_path: Path, code: str) -> tuple[int, int]:
    """The exit status (negative for a signal) and how many tracebacks faulthandler has printed."""
    command = [sys.executable, "-c", PRELUDE + code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    if done.returncode >= 0:
        assert done.returncode == 0, done.stderr.decode()
    return done.returncode, done.stderr.count(BUS_ERROR)


CAUGHT = {
    "in the main thread": "File('a').check()",
    "in another thread": "in_thread(File('a').check)",
    "in a forked child": "file = File('a'); in_fork(file.check); file.check()",
    "of several files": "files = [File(str(number)) for number in range(20)]; [file.check() for file in files]",
    "by C code without the interpreter's lock": "file = File('a'); in_thread(file.check)",
    "on an alternate stack": "faulthandler.enable(); faulthandler.disable(); File('a').check()",
    "with faulthandler on before": "faulthandler.enable(); File('a').check()",
    "with faulthandler on after": "file = File('a'); faulthandler.enable(); renew_net(); file.check()",
    "with faulthandler off after": "faulthandler.enable(); file = File('a'); faulthandler.disable(); renew_net();"
    "file.check()",
    "with faulthandler on after and off": "file = File('a'); faulthandler.enable(); renew_net();"
    "faulthandler.disable(); file.check()",
    "with a handler of Python's before": "signal.signal(signal.SIGBUS, lambda *_: os._exit(9)); File('a').check()",
    "with a handler of Python's after": "file = File('a'); signal.signal(signal.SIGBUS, lambda *_: os._exit(9));"
    "renew_net(); file.check()",
    "after a signal that was passed on": "signal.signal(signal.SIGBUS, lambda *_: None); file = File('a');"
    "os.kill(os.getpid(), signal.SIGBUS); renew_net(); file.check()",
    "though it ignores the signal": "signal.signal(signal.SIGBUS, signal.SIG_IGN); File('a').check()",
    "beyond the last byte of its last page": "file = File('a'); end = file.address + PAGES * mmap.PAGESIZE;"
    "assert ctypes.string_at(end - 50, 50) == bytes(50); file.check()",
    "and then a second file's": "File('a').check(); File('b').check()",
}


@pytest.mark.parametrize("case", CAUGHT)
def test_a_read_past_the_end_of_a_watched_file_gives_zeros_and_is_counted(tmp_path: Path, case: str) -> None:
    assert ended(tmp_path, CAUGHT[case]) == (0, 0)


FATAL = {
    "of a file that nobody watches": ("a = File('a'); File('b', caught=False).read()", 0),
    "of a file that is watched no longer": ("file = File('a'); file.net.release(); file.net.release(); file.read()", 0),
    "in another thread": ("a = File('a'); in_thread(File('b', caught=False).read)", 0),
    "that ignores the signal": (
        "signal.signal(signal.SIGBUS, signal.SIG_IGN); a = File('a'); File('b', caught=False).read()",
        0,
    ),
    "with faulthandler on before": ("faulthandler.enable(); a = File('a'); File('b', caught=False).read()", 1),
    "with faulthandler on after": ("a = File('a'); faulthandler.enable(); File('b', caught=False).read()", 1),
    "with faulthandler on after, and the net renewed": (
        "a = File('a'); faulthandler.enable(); renew_net(); File('b', caught=False).read()",
        1,
    ),
    "with faulthandler on before, off and on again": (
        "faulthandler.enable(); a = File('a'); faulthandler.disable(); renew_net(); faulthandler.enable(); renew_net();"
        "File('b', caught=False).read()",
        1,
    ),
    "with faulthandler on before and off": (
        "faulthandler.enable(); a = File('a'); faulthandler.disable(); renew_net(); File('b', caught=False).read()",
        0,
    ),
    "with faulthandler on after and off": (
        "a = File('a'); faulthandler.enable(); renew_net(); faulthandler.disable(); File('b', caught=False).read()",
        0,
    ),
    "with faulthandler on after and off, and the net renewed": (
        "a = File('a'); faulthandler.enable(); renew_net(); faulthandler.disable(); renew_net();"
        "File('b', caught=False).read()",
        0,
    ),
    "by a signal from outside": ("a = File('a'); os.kill(os.getpid(), signal.SIGBUS)", 0),
    "by a signal from outside, with faulthandler": (
        "faulthandler.enable(); a = File('a'); os.kill(os.getpid(), signal.SIGBUS)",
        1,
    ),
}


@pytest.mark.parametrize("case", FATAL)
def test_any_other_bus_error_ends_the_process_as_if_there_were_no_net(tmp_path: Path, case: str) -> None:
    code, tracebacks = FATAL[case]
    assert ended(tmp_path, code) == (-signal.SIGBUS, tracebacks)


SENT = {
    "called": "found = []; signal.signal(signal.SIGBUS, lambda number, _: found.append(number)); a = File('a');"
    "os.kill(os.getpid(), signal.SIGBUS); assert found == [signal.SIGBUS], found",
    "called each time": "found = []; signal.signal(signal.SIGBUS, lambda number, _: found.append(number));"
    "a = File('a'); [(os.kill(os.getpid(), signal.SIGBUS), renew_net()) for _ in range(5)];"
    "assert len(found) == 5, found",
    "called behind a faulthandler": "found = []; signal.signal(signal.SIGBUS, lambda number, _: found.append(number));"
    "a = File('a'); faulthandler.enable(open(os.devnull, 'w')); renew_net();"
    "os.kill(os.getpid(), signal.SIGBUS); assert found == [signal.SIGBUS], found",
    "ignored": "signal.signal(signal.SIGBUS, signal.SIG_IGN); a = File('a'); os.kill(os.getpid(), signal.SIGBUS)",
}


@pytest.mark.parametrize("case", SENT)
def test_a_signal_from_outside_goes_to_the_handler_that_was_there_before(tmp_path: Path, case: str) -> None:
    assert ended(tmp_path, SENT[case]) == (0, 0)


def test_rows_are_used_again_and_when_there_are_none_there_is_no_net(tmp_path: Path) -> None:
    code = """
nets = []
while (net := spread_net(4096 * (len(nets) + 1), 1)) is not None:
    nets.append(net)
assert len(nets) > 100, len(nets)
nets[7].release()
last = spread_net(4096, 1)
assert last is not None and spread_net(4096, 1) is None
del last
assert spread_net(4096, 1) is not None  # a row ends with its object
"""
    assert ended(tmp_path, code) == (0, 0)


def test_a_process_without_executable_memory_has_no_net(tmp_path: Path) -> None:
    code = """
from jitdelegate.runtime import memory
memory.Memory.make_executable = lambda pages: (_ for _ in ()).throw(memory.DeviceError("no executable memory"))
assert spread_net(4096, 1) is None
assert signal.getsignal(signal.SIGBUS) == signal.SIG_DFL
"""
    assert ended(tmp_path, code) == (0, 0)
