"""Warm start: whole processes from their start to the first output of the example network, with a filled cache."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import CacheError
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.key import fingerprint
from jitdelegate.runtime.cache.store import open_store
from jitdelegate.targets.cuda.target import CudaDevice
from scripts.gpu_check import first_output
from scripts.gpu_check.bundle import Bundle, Prepared
from scripts.gpu_check.child import output_of
from scripts.gpu_check.gpu import example_here, gpu, nrmse
from scripts.gpu_check.row import NRMSE, Row, measured

SECTION = "warm start"
PRECISIONS = ("float32", "float16")
ROUNDS = 9
LIMIT = 0.6
"""Seconds of the whole process."""
SETTLE = 2.5
"""Seconds after which a new file's fingerprint is remembered, as that of any model that was not just written."""
CONTEXT = (
    "from jitdelegate.targets.cuda.target import open_library;"
    "from jitdelegate.runtime.cuda.device import find_device;"
    "from jitdelegate.runtime.cuda.context import hold_context;"
    "hold_context(find_device(open_library()))"
)
STAGES = ("import", "open", "first run")


def rows(bundle: Bundle) -> Iterator[Row]:
    """Python alone, the driver's context alone, and per precision the whole start with its stages."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name)
        _write_example(folder)
        yield measured(SECTION, "Python alone", "process", _seconds(["-c", "pass"]))
        yield measured(SECTION, "driver and context alone", "process", _seconds(["-c", CONTEXT]))
        for precision in PRECISIONS:
            yield from _starts(example_here(bundle, precision), folder)


def _write_example(folder: Path) -> None:
    """The network's file; where numpy draws other weights, the program computes on those that it was compiled with."""
    from jitdelegate.commands.demo_model import mobilenet_v1

    (folder / "model.tflite").write_bytes(mobilenet_v1())
    time.sleep(SETTLE)


def _starts(prepared: Prepared, folder: Path) -> Iterator[Row]:
    cache, output = folder / prepared.precision, folder / "output"
    _fill(cache, folder / "model.tflite", prepared)
    source = folder / "input"
    source.write_bytes(prepared.inputs[0])
    model = str(folder / "model.tflite")
    command = [first_output.__file__, model, str(cache), prepared.precision, str(source), str(output)]
    _start(command)  # the first one finds nothing in the system's caches
    starts = [_start(command) for _ in range(ROUNDS)]
    yield measured(SECTION, prepared.name, "process", [seconds for seconds, _ in starts], limit=LIMIT)
    for stage, values in zip(STAGES, zip(*(stages for _, stages in starts), strict=True), strict=True):
        yield measured(SECTION, prepared.name, stage, values)
    error = nrmse(output.read_bytes(), prepared.outputs[0])
    yield Row(SECTION, prepared.name, "output", error, NRMSE, limit=prepared.limit)


def _fill(cache: Path, model: Path, prepared: Prepared) -> None:
    """Store the program as the entry that this machine looks for: its versions of compilers and numpy may be others."""
    from jitdelegate.program.write import write

    store = open_store(str(cache))
    options = DelegateOptions(target="cuda", precision=prepared.precision)
    key = find_key(CudaDevice(gpu().kind), options, fingerprint(model))
    program = read(prepared.content)
    program.key = key.parts
    trouble = store.put(key, write(program))
    if trouble:
        raise CacheError(trouble)


def _seconds(command: Sequence[str]) -> list[float]:
    return [_run(command)[0] for _ in range(ROUNDS + 1)][1:]


def _start(command: Sequence[str]) -> tuple[float, list[float]]:
    """Seconds of the process and of its stages."""
    seconds, words = _run(command)
    outcome, *stages = words.split()
    if outcome != "hit":
        raise CacheError(f"the start was not warm: the cache answered {outcome!r}, expected 'hit'")
    return seconds, list(map(float, stages))


def _run(command: Sequence[str]) -> tuple[float, str]:
    start = time.perf_counter()
    words = output_of(command)
    return time.perf_counter() - start, words
