"""Programs of users, for children of tests; each imports what it needs, as some change what an import finds."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

kept: Any = None
"""What lives until the process ends."""


def load(path: str, cache: str) -> None:
    import jitdelegate

    jitdelegate.load(path, serialization_dir=cache)


def load_and_run(path: str) -> None:
    import jitdelegate

    with jitdelegate.load(path, serialization_dir=False) as model:
        model(bytes(768))


def load_run_and_end(path: str) -> None:
    """The model is open then."""
    global kept
    import jitdelegate

    kept = jitdelegate.load(path, serialization_dir=False)
    kept(bytes(768))


def run_on_words_or_ones(path: str) -> None:
    import numpy

    import jitdelegate

    try:
        model = jitdelegate.load(path, serialization_dir=False)
        for _ in range(8):
            values = (
                numpy.full(i.shape, b"word") if i.dtype == "string" else numpy.ones(i.shape, i.dtype)
                for i in model.inputs
            )
            model(*values)
    except jitdelegate.JitDelegateError as error:
        sys.stdout.write(f"{error}\n")


def interrupted_import(command: str, *arguments: str) -> None:
    """A command that is interrupted where it imports the compiler or numpy."""
    import runpy
    import signal

    class Interrupt:
        @staticmethod
        def find_spec(name: str, path: object, target: ModuleType | None = None) -> None:
            if name in ("jitdelegate.compiler", "numpy"):
                signal.raise_signal(signal.SIGINT)

    sys.meta_path.insert(0, Interrupt)
    sys.argv[1:] = arguments
    runpy.run_module(command, run_name="__main__")


def run_without_llvm(kind: str, text: str, path: str, cache: str, target: str, road: str) -> str:
    """What a model answers, and its report, where llvmlite cannot be imported."""

    class Broken:
        @staticmethod
        def find_spec(name: str, path: object, target: ModuleType | None = None) -> None:
            if name.partition(".")[0] == "llvmlite":
                raise {"ModuleNotFoundError": ModuleNotFoundError, "OSError": OSError}[kind](text)

    sys.meta_path.insert(0, Broken)
    import json

    import numpy as np

    import jitdelegate

    image = np.ones((1, 8, 8, 3), np.float32)
    options: dict[str, Any] = {"serialization_dir": cache, "target": target}
    try:
        if road == "load":
            model: Any = jitdelegate.load(path, **options)
            answer = bytes(model(image))
        else:
            delegates = [jitdelegate.GpuDelegate(**options)]
            if road == "delegate":
                from ai_edge_litert.interpreter import Interpreter

                model = Interpreter(path, experimental_delegates=delegates)
            else:
                model = jitdelegate.Interpreter(path, experimental_delegates=delegates)
            model.allocate_tensors()
            model.set_tensor(model.get_input_details()[0]["index"], image)
            model.invoke()
            answer = model.get_tensor(model.get_output_details()[0]["index"]).tobytes()
        report: Any = (delegates[0] if road == "delegate" else model).report()
        reasons = [one.reason for one in report.operators]
        return json.dumps({"answer": answer.hex(), "target": report.target, "reasons": reasons})
    except jitdelegate.JitDelegateError as error:
        return json.dumps({"error": type(error).__name__, "text": str(error)})


def load_twice_with_an_old_llvm(cache: str) -> None:
    """Prints the outcome and the failure of each time."""
    import llvmlite.binding as llvm

    llvm.llvm_version_info = (15, 0, 7)
    import jitdelegate
    from tests.api.small_models import convolution

    for _ in range(2):
        report = jitdelegate.load(convolution(), serialization_dir=cache).report()
        sys.stdout.write(f"{report.cache.outcome} {report.failure}\n")


def run_as_nobody(path: str, folder: str) -> str:
    """A user whom nobody knows, in an empty folder; answers why there is no cache."""
    import logging
    import os
    import tempfile

    import numpy
    import platformdirs
    import platformdirs.unix

    import jitdelegate
    import jitdelegate.api.interpreter
    import jitdelegate.base.user_warning
    import jitdelegate.compiler.compile
    import jitdelegate.runtime.cache.lock
    import jitdelegate.runtime.cache.trouble
    import jitdelegate.targets.cpu.generate

    imported = (logging, numpy, platformdirs.unix, tempfile)  # which nobody may read
    with open(path, "rb") as file:
        content = file.read()
    os.chdir(folder)
    if os.geteuid() == 0:
        os.setuid(12345)
    with jitdelegate.load(content) as model:
        assert len(bytes(model(bytes(768)))) == 256
        reason = model.report().cache.reason
    interpreter = jitdelegate.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert os.listdir(".") == [] and imported
    return reason


def use_a_destroyed_buffer() -> None:
    """Prints what each use answers or raises."""
    from jitdelegate import Event, TensorBuffer
    from jitdelegate.api.buffer_runs import check_buffers
    from jitdelegate.api.signature_arguments import Arguments

    buffer = TensorBuffer.create("float32", (2,))
    buffer.destroy()
    uses: tuple[Any, ...] = (
        buffer.get_tensor_details,
        lambda: buffer.set_event(Event()),
        lambda: check_buffers(Arguments("", "input", [("x", 0)]), [buffer]),
    )
    for use in uses:
        try:
            sys.stdout.write(f"{use()}\n")
        except RuntimeError as error:
            sys.stdout.write(f"{error}\n")
