"""However a process ends while models are alive: it ends as Python programs do, and nothing is waited for."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import jitdelegate
from jitdelegate.commands.demo_model import mobilenet_v1
from tests.api import partial_models as partial

LONGEST = 120
"""Seconds after which a process is taken to hang."""
PRELUDE = """
import atexit, os, signal, sys, threading, time
import jitdelegate
from jitdelegate.runtime.cpu import workers

path, folder = sys.argv[1:]
join = workers.join
workers.join = lambda thread: (os.write(1, b"join "), join(thread))[1]
options = dict(target="cpu", serialization_dir=folder)
INPUT = bytes(4 * 3 * 64 * 64)

def loaded(**more):
    model = jitdelegate.load(path, num_threads=2, options=options | more)
    model(INPUT)
    assert len(os.listdir("/proc/self/task")) >= 2  # there is a worker
    return model

def interpreter(kind, **more):
    import numpy
    delegate = jitdelegate.GpuDelegate(**options, **more)
    made = kind(path, num_threads=2, experimental_delegates=[delegate])
    made.allocate_tensors()
    made.set_tensor(made.get_input_details()[0]["index"], numpy.zeros((1, 64, 64, 3), numpy.float32))
    made.invoke()
    return made

def litert(**more):
    from ai_edge_litert.interpreter import Interpreter
    return interpreter(Interpreter, **more)

def say(word):
    os.write(1, word.encode() + b" ")

PART = dict(only_ops="CONV_2D,SOFTMAX", partitioning="all")
"""
WAYS: dict[str, tuple[str, int]] = {
    "a module's value": ("model = loaded()", 0),
    "our interpreter": ("kept = interpreter(jitdelegate.Interpreter)", 0),
    "litert's interpreter": ("kept = litert()", 0),
    "litert's interpreter with partitions": ("kept = litert(**PART)", 0),
    "a model in partitions": ("model = loaded(**PART)", 0),
    "a model in partitions of its own": (
        "from jitdelegate.targets.cpu import target; target.IN_LITERT = 'nowhere'; model = loaded(**PART)",
        0,
    ),
    "several interpreters": ("kept = [litert() for _ in range(5)], [loaded() for _ in range(5)]", 0),
    "a cycle": ("kept = [loaded(), litert()]; kept.append(kept)", 0),
    "an attribute of sys": ("sys.kept = loaded(), litert()", 0),
    "sys.exit": ("kept = loaded(), litert(); say('end'); sys.exit(3)", 3),
    "an exception": ("kept = loaded(), litert(); say('end'); raise RuntimeError('on purpose')", 1),
    "os._exit": ("kept = loaded(), litert(); say('end'); os._exit(4)", 4),
    "exec": ("kept = loaded(), litert(); say('end'); os.execv('/bin/true', ['true'])", 0),
    "SIGTERM": ("kept = loaded(), litert(); say('end'); os.kill(os.getpid(), 15); time.sleep(60)", -signal.SIGTERM),
    "SIGINT": (
        "signal.signal(2, signal.default_int_handler); kept = loaded(), litert(); say('end')\\n"
        "os.kill(os.getpid(), 2); time.sleep(60)",
        -signal.SIGINT,
    ),
    "SIGKILL": ("kept = loaded(), litert(); say('end'); os.kill(os.getpid(), 9)", -signal.SIGKILL),
    "SIGALRM in a run": (
        "model = loaded(); signal.signal(14, lambda *_: sys.exit(5)); say('end')\\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\\nwhile True: model(INPUT)",
        5,
    ),
    "a daemon thread that runs": (
        "model = loaded()\\ndef forever():\\n while True: model(INPUT)\\n"
        "threading.Thread(target=forever, daemon=True).start(); time.sleep(0.02)",
        0,
    ),
    "a daemon thread that runs litert's interpreter": (
        "kept = litert()\\ndef forever():\\n while True: kept.invoke()\\n"
        "threading.Thread(target=forever, daemon=True).start(); time.sleep(0.02)",
        0,
    ),
    "a thread that is waited for": (
        "model = loaded(); threading.Thread(target=lambda: [model(INPUT) for _ in range(200)]).start()",
        0,
    ),
    "a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor; model = loaded(); pool = ThreadPoolExecutor(3)\\n"
        "found = [*pool.map(lambda _: model(INPUT), range(20))]",
        0,
    ),
    "a forked child": (
        "kept = loaded(), litert(); child = os.fork()\\nkept[0](INPUT)\\nif child: assert os.waitpid(child, 0)[1] == 0",
        0,
    ),
    "a forked child with os._exit": (
        "kept = loaded(), litert(); child = os.fork()\\n"
        "if not child: kept[0](INPUT); os._exit(0)\\n"
        "assert os.waitpid(child, 0)[1] == 0",
        0,
    ),
    "a process of multiprocessing": (
        "import multiprocessing; model = loaded(); context = multiprocessing.get_context('fork')\\n"
        "child = context.Process(target=lambda: model(INPUT)); child.start(); child.join(); assert child.exitcode == 0",
        0,
    ),
    "atexit before": ("atexit.register(lambda: kept[0](INPUT)); kept = loaded(), litert()", 0),
    "atexit after": ("kept = loaded(), litert(); atexit.register(lambda: kept[0](INPUT))", 0),
    "a finalizer that runs it": (
        "class Last:\\n model = loaded()\\n def __del__(self, given=INPUT): self.model(given)\\nlast = Last()",
        0,
    ),
    "a weak reference": ("import weakref; model = loaded(); end = weakref.finalize(model, lambda: None)", 0),
    "asyncio": (
        "import asyncio; model = loaded()\\nasync def main():\\n await asyncio.to_thread(model, INPUT)\\n"
        "asyncio.run(main())",
        0,
    ),
    "faulthandler": ("import faulthandler; faulthandler.enable(); kept = loaded(), litert()", 0),
}
FIRST_USES = {
    "model(INPUT)": "fine",
    "buffers[1][0].view()": "DeviceError",
    "buffers[1][0].read()": "DeviceError",
    "compiled.run_async_by_index(0, *buffers).wait()": "DeviceError",
    "compiled.run_by_index(0, *buffers)": "DeviceError",
}
"""What a finalizer does for the first time, and how that ends: nothing can be imported then."""
CLOSING: dict[str, str] = {
    "a function's value": "def main():\\n loaded(); litert()\\nmain()",
    "closed": "loaded().close()",
    "a context": "with loaded() as model: model(INPUT)",
    "closed at exit": "model = loaded(); atexit.register(model.close)",
}
"""Ways that end the workers themselves."""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A model of several threads, and a cache that has its programs."""
    folder = tmp_path_factory.mktemp("exits")
    path = folder / "model.tflite"
    path.write_bytes(mobilenet_v1(64, 0.25))
    jitdelegate.load(path, target="cpu", serialization_dir=folder / "cache").close()
    return [str(path), str(folder / "cache")]


def end(body: str, arguments: list[str]) -> tuple[int, list[str], str]:
    """Exit status, words and complaints of a process."""
    code = PRELUDE + body.replace("\\n", "\n") + "\nsay('end')\n"
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, cwd=Path(__file__).parents[2])
    return done.returncode, done.stdout.split(), done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_process_ends_and_waits_for_nothing(way: str, arguments: list[str]) -> None:
    if "litert" in WAYS[way][0]:
        partial.skip_without_host()
    body, expected = WAYS[way]
    status, words, complaints = end(body, arguments)
    assert status == expected, complaints
    assert set(words) == {"end"}
    for sign in ("Exception ignored", "Fatal", "Segmentation", "Error: " if expected != 1 else "Fatal"):
        assert sign not in complaints


@pytest.mark.parametrize("way", CLOSING)
def test_what_is_closed_before_the_end_ends_its_workers(way: str, arguments: list[str]) -> None:
    if "litert" in CLOSING[way]:
        partial.skip_without_host()
    status, words, complaints = end(CLOSING[way], arguments)
    assert (status, complaints) == (0, "")
    assert "join" in words and "end" in words


def test_first_uses_in_a_finalizer_work_or_say_so(arguments: list[str]) -> None:
    tries = "".join(
        f"""
        try:
            {use}
            say(1, b"fine ")
        except Exception as error:
            say(1, type(error).__name__.encode() + b" ")"""
        for use in FIRST_USES
    )
    body = f"""
compiled = jitdelegate.CompiledModel.from_file(path)
class Last:
    model = jitdelegate.load(path, num_threads=2, options=options)
    kept = compiled, (compiled.create_input_buffers(0), compiled.create_output_buffers(0))

    def __del__(self, given=INPUT, say=os.write):
        model, (compiled, buffers), INPUT = self.model, self.kept, given{tries}

del compiled
last = Last()
"""
    status, words, complaints = end(body, arguments)
    assert (status, words, complaints) == (0, ["end", *FIRST_USES.values()], "")
