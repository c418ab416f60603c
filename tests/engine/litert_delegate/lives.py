"""Lives of interpreters that may end a process; prints "survived".

python -m tests.engine.litert_delegate.lives NAME
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import struct
import sys
import threading
from collections.abc import Mapping

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.engine.litert_delegate.delegate_client import DelegateKernel
from jitdelegate.engine.litert_delegate.stubs import load
from jitdelegate.runtime.memory import machine
from tests.engine.litert_delegate.clients import NumpyClient, chain, delegated, expected, numbers, run, same
from tests.engine.litert_delegate.compiled import CompiledClient

LONGEST = 60
X = numbers((2, 3))


def view_outlives_everything() -> None:
    """The last owner of the interpreter in C++ is an array; its end calls `free`."""
    content = chain(2)
    client = NumpyClient(content)
    interpreter, delegate = delegated(content, client)
    run(interpreter, X)
    view = interpreter.tensor(0)()
    del interpreter, delegate
    gc.collect()
    others = [delegated(content, NumpyClient(content)) for _ in range(50)]
    assert len(client.living) == 2
    del others, view
    gc.collect()
    assert client.living == set() and not callbacks.kernels and not callbacks.delegations


def process_ends_first() -> None:
    """Python ends while the interpreter lives."""
    content = chain(2)
    kept = delegated(content, NumpyClient(content))
    run(kept[0], X)
    sys.modules["kept"] = kept


def fork() -> None:
    """The child runs what the parent made, and makes its own."""
    content = chain(3)
    interpreter, _ = delegated(content, NumpyClient(content))
    wanted = expected(content, X)
    same(run(interpreter, X), wanted)
    child = os.fork()
    if child == 0:
        status = 3
        try:
            same(run(interpreter, X), wanted)
            same(run(delegated(content, NumpyClient(content))[0], X), wanted)
            status = 0
        finally:
            os._exit(status)
    same(run(delegated(content, NumpyClient(content))[0], X), wanted)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def threads() -> None:
    """Four interpreters at a time are made and run."""
    content = chain(4)
    wanted, failures = expected(content, X), []
    together = threading.Barrier(4)
    sys.setswitchinterval(1e-6)  # threads meet in the middle of everything

    def work() -> None:
        try:
            together.wait()
            for _ in range(10):
                client = NumpyClient(content)
                interpreter, _ = delegated(content, client)
                for _ in range(5):
                    same(run(interpreter, X), wanted)
                assert client.warnings == []
        except BaseException as error:  # noqa: BLE001 - asserted below
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def nested() -> None:
    """A kernel runs another interpreter."""
    content = chain(1)
    inner, outer = NumpyClient(content), NumpyClient(content)
    interpreter, _ = delegated(content, inner)
    wanted = expected(content, X)
    outer.stumble = lambda where: same(run(interpreter, X), wanted) if where == "run" else None
    same(run(delegated(content, outer)[0], X), wanted)


def machine_code() -> None:
    """Compiled kernels run without Python, at every shape."""
    content = chain(6)
    client = CompiledClient(content)
    interpreter, _ = delegated(content, client)
    before = callbacks.python_invocations
    for shape in ((2, 3), (7, 11), (2, 3)):
        x = numbers(shape)
        same(run(interpreter, x, resize=True), expected(content, x, resize=True))
    assert callbacks.python_invocations == before
    assert len(client.living) == 6


FAILING = {
    "x86_64": b"\xb8\x01\x00\x00\x00\xc3",  # mov eax, 1; ret
    "aarch64": struct.pack("<2I", 0x52800020, 0xD65F03C0),  # mov w0, 1; ret
}


def machine_code_fails() -> None:
    """What compiled code answers is what LiteRT says."""
    content = chain(1)
    client = CompiledClient(content)
    client.entry = load(FAILING[machine()])[0]
    interpreter, _ = delegated(content, client)
    try:
        run(interpreter, X)
    except RuntimeError as error:
        assert "(jitdelegate) failed to invoke" in str(error)
    else:
        raise AssertionError("no error")


def interrupt_before_the_callback() -> None:
    """An interrupt that comes while machine code runs ends the next callback before its first line: the run fails."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    content = chain(2)
    client = NumpyClient(content)
    make, code = client.kernel, load(raising(signal.SIGINT))[0]

    def kernel(
        subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
    ) -> DelegateKernel:
        found = make(subgraph, nodes, shapes, context)
        found.entry = 0 if client.opened[1:] else code
        return found

    client.kernel = kernel
    interpreter, _ = delegated(content, client)
    try:
        run(interpreter, X)
    except (KeyboardInterrupt, RuntimeError):
        pass
    else:
        raise AssertionError("the interrupt was lost, and with it a result")
    assert len(client.opened) == 2


def raising(number: int) -> bytes:
    """int f(context, node) that raises a signal."""
    function = ctypes.cast(ctypes.CDLL(None)["raise"], ctypes.c_void_p).value
    return RAISING[machine()](number, function)


RAISING = {
    "x86_64": lambda number, function: b"".join(
        (
            b"\x48\x83\xec\x08",  # sub rsp, 8
            b"\xbf" + struct.pack("<i", number),  # mov edi, number
            b"\x48\xb8" + struct.pack("<Q", function),  # mov rax, raise
            b"\xff\xd0",  # call rax
            b"\x31\xc0",  # xor eax, eax
            b"\x48\x83\xc4\x08",  # add rsp, 8
            b"\xc3",  # ret
        )
    ),
    "aarch64": lambda number, function: struct.pack(
        "<8IQ",
        0xA9BF7BFD,  # stp x29, x30, [sp, #-16]!
        0x52800000 | number << 5,  # mov w0, number
        0x580000C9,  # ldr x9, raise
        0xD63F0120,  # blr x9
        0x52800000,  # mov w0, 0
        0xA8C17BFD,  # ldp x29, x30, [sp], #16
        0xD65F03C0,  # ret
        0xD503201F,  # nop
        function,
    ),
}


def two_kinds() -> None:
    """An interpreter with a delegate beside one without, both alive."""
    content = chain(3)
    alone = Interpreter(model_content=content)
    interpreter, _ = delegated(content, NumpyClient(content))
    for seed in range(5):
        x = numbers((2, 3), seed)
        same(run(interpreter, x), run(alone, x))
    assert np.isfinite(x).all()


LIVES = (
    view_outlives_everything,
    process_ends_first,
    fork,
    threads,
    nested,
    machine_code,
    machine_code_fails,
    interrupt_before_the_callback,
    two_kinds,
)


def main() -> int:
    """Exit status: 0 it survived."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    next(life for life in LIVES if life.__name__ == sys.argv[1])()
    sys.stdout.write("survived\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
