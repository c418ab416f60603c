"""python -m tests.api.ends WAY MODEL CACHE: a process that ends in one way while models are alive.

It writes `join` for each worker that is waited for, and `end` when it has done what the way does. Modules that one way
needs are imported by it alone: some change how a process ends.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jitdelegate
from jitdelegate.runtime.cpu import workers

INPUT = bytes(4 * 3 * 64 * 64)
PART = {"only_ops": "CONV_2D,SOFTMAX", "partitioning": "all"}
PATH, OPTIONS = "", dict[str, Any]()
kept: Any = None
"""A module's value, which goes while the interpreter ends."""


def loaded(**more: Any) -> Any:
    model = jitdelegate.load(PATH, num_threads=2, options=OPTIONS | more)
    model(INPUT)
    assert len(os.listdir("/proc/self/task")) >= 2  # there is a worker
    return model


def interpreter(kind: Any, **more: Any) -> Any:
    import numpy

    delegate = jitdelegate.GpuDelegate(**OPTIONS, **more)
    made = kind(PATH, num_threads=2, experimental_delegates=[delegate])
    made.allocate_tensors()
    made.set_tensor(made.get_input_details()[0]["index"], numpy.zeros((1, 64, 64, 3), numpy.float32))
    made.invoke()
    return made


def litert(**more: Any) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    return interpreter(Interpreter, **more)


def say(word: str) -> None:
    os.write(1, word.encode() + b" ")


def keep(*values: object) -> None:
    global kept
    kept = values


def keep_both() -> None:
    keep(loaded(), litert())


def a_module_s_value() -> None:
    global kept
    kept = loaded()


def our_interpreter() -> None:
    keep(interpreter(jitdelegate.Interpreter))


def litert_s_interpreter() -> None:
    keep(litert())


def litert_s_interpreter_with_partitions() -> None:
    keep(litert(**PART))


def a_model_in_partitions() -> None:
    keep(loaded(**PART))


def a_model_in_partitions_of_its_own() -> None:
    from jitdelegate.targets.cpu import target

    target.IN_LITERT = "nowhere"
    keep(loaded(**PART))


def several_interpreters_of_litert() -> None:
    keep([litert() for _ in range(5)], [loaded() for _ in range(5)])


def a_cycle_with_litert() -> None:
    global kept
    kept = [loaded(), litert()]
    kept.append(kept)


def an_attribute_of_sys_with_litert() -> None:
    sys.kept = loaded(), litert()  # type: ignore[attr-defined]


def sys_exit_with_litert() -> None:
    keep_both()
    say("end")
    sys.exit(3)


def an_exception_with_litert() -> None:
    keep_both()
    say("end")
    raise RuntimeError("on purpose")


def os_exit_with_litert() -> None:
    keep_both()
    say("end")
    os._exit(4)


def exec_with_litert() -> None:
    keep_both()
    say("end")
    os.execv("/bin/true", ["true"])


def _kill_with_litert(number: int) -> None:
    keep_both()
    say("end")
    os.kill(os.getpid(), number)
    time.sleep(60)


def sigterm_with_litert() -> None:
    _kill_with_litert(signal.SIGTERM)


def sigint_with_litert() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _kill_with_litert(signal.SIGINT)


def sigkill_with_litert() -> None:
    _kill_with_litert(signal.SIGKILL)


def sigalrm_in_a_run() -> None:
    model = loaded()
    keep(model)
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(5))
    say("end")
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    while True:
        model(INPUT)


def _forever(act: Any) -> None:
    while True:
        act()


def a_daemon_thread_that_runs() -> None:
    model = loaded()
    keep(model)
    threading.Thread(target=_forever, args=(lambda: model(INPUT),), daemon=True).start()
    time.sleep(0.02)


def a_daemon_thread_that_runs_litert_s_interpreter() -> None:
    made = litert()
    keep(made)
    threading.Thread(target=_forever, args=(made.invoke,), daemon=True).start()
    time.sleep(0.02)


def a_thread_that_is_waited_for() -> None:
    model = loaded()
    keep(model)
    threading.Thread(target=lambda: [model(INPUT) for _ in range(200)]).start()


def a_pool_of_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, pool = loaded(), ThreadPoolExecutor(3)
    keep(model, pool, [*pool.map(lambda _: model(INPUT), range(20))])


def a_forked_child_with_litert() -> None:
    keep_both()
    child = os.fork()
    kept[0](INPUT)
    if child:
        assert os.waitpid(child, 0)[1] == 0


def a_forked_child_with_os_exit_and_litert() -> None:
    keep_both()
    child = os.fork()
    if not child:
        kept[0](INPUT)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def a_process_of_multiprocessing() -> None:
    import multiprocessing

    model = loaded()
    keep(model)
    child = multiprocessing.get_context("fork").Process(target=lambda: model(INPUT))
    child.start()
    child.join()
    assert child.exitcode == 0


def atexit_before_litert() -> None:
    atexit.register(lambda: kept[0](INPUT))
    keep_both()


def atexit_after_litert() -> None:
    keep_both()
    atexit.register(lambda: kept[0](INPUT))


def a_finalizer_that_runs_it() -> None:
    class Last:
        model = loaded()

        def __del__(self, value: bytes = INPUT) -> None:
            self.model(value)

    keep(Last())


def a_weak_reference() -> None:
    import weakref

    model = loaded()
    keep(model, weakref.finalize(model, lambda: None))


def asynchronous() -> None:
    import asyncio

    model = loaded()
    keep(model)

    async def run() -> None:
        await asyncio.to_thread(model, INPUT)

    asyncio.run(run())


def faulthandler_with_litert() -> None:
    faulthandler.enable()
    keep_both()


WAYS = {
    a_module_s_value: 0,
    our_interpreter: 0,
    litert_s_interpreter: 0,
    litert_s_interpreter_with_partitions: 0,
    a_model_in_partitions: 0,
    a_model_in_partitions_of_its_own: 0,
    several_interpreters_of_litert: 0,
    a_cycle_with_litert: 0,
    an_attribute_of_sys_with_litert: 0,
    sys_exit_with_litert: 3,
    an_exception_with_litert: 1,
    os_exit_with_litert: 4,
    exec_with_litert: 0,
    sigterm_with_litert: -signal.SIGTERM,
    sigint_with_litert: -signal.SIGINT,
    sigkill_with_litert: -signal.SIGKILL,
    sigalrm_in_a_run: 5,
    a_daemon_thread_that_runs: 0,
    a_daemon_thread_that_runs_litert_s_interpreter: 0,
    a_thread_that_is_waited_for: 0,
    a_pool_of_threads: 0,
    a_forked_child_with_litert: 0,
    a_forked_child_with_os_exit_and_litert: 0,
    a_process_of_multiprocessing: 0,
    atexit_before_litert: 0,
    atexit_after_litert: 0,
    a_finalizer_that_runs_it: 0,
    a_weak_reference: 0,
    asynchronous: 0,
    faulthandler_with_litert: 0,
}
"""And the exit status."""


def a_function_s_values_with_litert() -> None:
    loaded()
    litert()


def closed() -> None:
    loaded().close()


def a_context() -> None:
    with loaded() as model:
        model(INPUT)


def closed_at_exit() -> None:
    model = loaded()
    keep(model)
    atexit.register(model.close)


CLOSING = (a_function_s_values_with_litert, closed, a_context, closed_at_exit)
"""Ways that end the workers themselves."""


def first_uses_in_a_finalizer() -> None:
    """Nothing can be imported then."""
    compiled = jitdelegate.CompiledModel.from_file(PATH)
    uses: tuple[Callable[[Any, bytes], object], ...] = (
        lambda last, value: last.model(value),
        lambda last, _: last.buffers[1][0].view(),
        lambda last, _: last.buffers[1][0].read(),
        lambda last, _: last.compiled.run_async_by_index(0, *last.buffers).wait(),
        lambda last, _: last.compiled.run_by_index(0, *last.buffers),
    )

    class Last:
        def __init__(self) -> None:
            self.model = jitdelegate.load(PATH, num_threads=2, options=OPTIONS)
            self.compiled = compiled
            self.buffers = compiled.create_input_buffers(0), compiled.create_output_buffers(0)

        def __del__(self, value: bytes = INPUT, say: Any = os.write) -> None:
            for use in uses:
                try:
                    use(self, value)
                    say(1, b"fine ")
                except Exception as error:  # noqa: BLE001 - it is the answer
                    say(1, type(error).__name__.encode() + b" ")

    keep(Last())


FIRST_USES = ("fine", "DeviceError", "DeviceError", "DeviceError", "DeviceError")
"""How they end, in order."""


if __name__ == "__main__":
    _, way, PATH, folder = sys.argv
    OPTIONS = {"target": "cpu", "serialization_dir": folder}
    join = workers.join
    workers.join = lambda thread: (os.write(1, b"join "), join(thread))[1]
    globals()[way]()
    say("end")
