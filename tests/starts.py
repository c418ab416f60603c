"""Starts on the load path; `watched` runs one in a fresh process, and tells what that imported and opened.

It imports nothing but `sys` before, so that nothing hides what the start imports.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPENED = list[str]()
BEFORE, KEPT = set[str](), list[object]()
"""Modules that do not count, and what lives until the process ends."""


def watched(name: str, path: str, cache: str) -> str:
    """What a start of this module tells, with modules that were loaded and files that were opened meanwhile."""
    BEFORE.update(sys.modules)
    sys.addaudithook(lambda event, values: OPENED.append(str(values[0])) if event == "open" else None)
    told = globals()[name](path, cache) or {}
    loaded = sorted(set(sys.modules) - BEFORE)
    opened = [name for name in OPENED if not name.endswith(".pyc")]
    import json

    return json.dumps({"loaded": loaded, "opened": opened, **told})


def imported() -> str:
    """The modules that the package itself brings."""
    before = set(sys.modules)
    import jitdelegate  # noqa: F401

    return str(sorted(set(sys.modules) - before))


def _numpy() -> "Any":
    """Numpy, which does not count."""
    import numpy

    BEFORE.update(sys.modules)
    return numpy


def _told(report: "Any", shape: object) -> dict[str, object]:
    return {"shape": shape, "outcome": report.cache.outcome, "stages": list(report.seconds)}


def nearly_free(path: str, cache: str) -> None:
    import atexit
    import ctypes
    import errno
    import mmap
    import os
    import stat
    import struct
    import time

    KEPT.append((atexit, ctypes, errno, mmap, os, stat, struct, time))


def with_default_threads(path: str, cache: str, **options: "Any") -> dict[str, object]:
    import jitdelegate

    model = jitdelegate.load(path, serialization_dir=cache or None, **options)
    output = memoryview(model(bytes(768)))
    KEPT.append((model, output))
    return _told(model.report(), output.shape)


def on_bytes(path: str, cache: str) -> dict[str, object]:
    return with_default_threads(path, cache, num_threads=2)


def from_a_folder(path: str, cache: str) -> dict[str, object]:
    """From a prebuilt folder, while the user's cache directory is not there."""
    return with_default_threads(path, "", prebuilt=cache, num_threads=2)


def run_once(path: str, cache: str) -> None:
    import jitdelegate

    model = jitdelegate.load(path, serialization_dir=cache, num_threads=1)
    KEPT.append((model, model(bytes(768))))


def entered(path: str, cache: str) -> dict[str, object]:
    """Files of ours in which a plain function was called; bodies of modules and classes are none."""
    import jitdelegate

    root, files, plain = jitdelegate.__file__.removesuffix("__init__.py"), set[str](), 1

    def note(frame: "Any", event: str, value: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & plain and code.co_filename.startswith(root):
            files.add(code.co_filename.removeprefix(root))

    sys.setprofile(note)
    jitdelegate.load(path, serialization_dir=cache, num_threads=1)(bytes(768))
    sys.setprofile(None)
    return {"entered": sorted(files)}


def on_arrays(path: str, cache: str) -> dict[str, object]:
    numpy = _numpy()
    import jitdelegate

    model = jitdelegate.load(path, serialization_dir=cache)
    output = numpy.asarray(model(numpy.zeros((1, 8, 8, 3), numpy.float32)))
    KEPT.append((model, output))
    return _told(model.report(), output.shape)


def interpreter(path: str, cache: str) -> dict[str, object]:
    import jitdelegate

    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    made = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    made.allocate_tensors()
    made.invoke()
    KEPT.append(made)
    return _told(made.report(), (1, 4, 4, 4))


def compiled_model(path: str, cache: str) -> dict[str, object]:
    import jitdelegate

    model = jitdelegate.CompiledModel.create(path, serialization_dir=cache, num_threads=1)
    inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
    model.run(inputs, outputs)
    loaded = set(sys.modules)
    KEPT.append((model, inputs, outputs))
    return _told(model.report(), None) | {"run": sorted(loaded - BEFORE)}


def resized(path: str, cache: str) -> dict[str, object]:
    _numpy()
    import jitdelegate

    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    made = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    made.resize_tensor_input(0, [5, 8, 8, 3])
    made.allocate_tensors()
    made.invoke()
    (output,) = made.get_output_details()
    KEPT.append(made)
    return _told(made.report(), output["shape"].tolist())


def signature(path: str, cache: str) -> dict[str, object]:
    numpy = _numpy()
    import jitdelegate

    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    made = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    output = made.get_signature_runner("triple")(x=numpy.ones((5, 2), numpy.float32))["y"]
    counters = made.report().cache.counters
    KEPT.append(made)
    return {"shape": output.shape, "hits": counters["hits"], "misses": counters["misses"]}


def timed(path: str, cache: str) -> dict[str, object]:
    """The benchmark's own start."""
    import io

    from jitdelegate.commands import timed_start

    printed, sys.stdout = sys.stdout, io.StringIO()
    timed_start.main(["jitdelegate", path, cache, cache, "1", "1"])
    answer, sys.stdout = sys.stdout.getvalue(), printed
    return {"printed": answer}
