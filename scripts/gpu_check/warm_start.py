"""Warm start: whole processes from their start to the first output of the example network, with a filled cache."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jitdelegate.errors import CacheError
from scripts.gpu_check import first_output
from scripts.gpu_check.bundle import Bundle, Prepared
from scripts.gpu_check.child import output_of
from scripts.gpu_check.filled_cache import filled_cache
from scripts.gpu_check.gpu import example_here, nrmse
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
        yield measured(SECTION, "Python alone", "process", _seconds(["-c", "pass"]))
        yield measured(SECTION, "driver and context alone", "process", _seconds(["-c", CONTEXT]))
        for precision in PRECISIONS:
            yield from _starts(example_here(bundle, precision), folder)


def _starts(prepared: Prepared, folder: Path) -> Iterator[Row]:
    source, output = folder / "input", folder / "output"
    source.write_bytes(prepared.inputs[0])
    model, cache = filled_cache(prepared, folder)
    time.sleep(SETTLE)
    command = [first_output.__file__, str(model), str(cache), prepared.precision, str(source), str(output)]
    _start(command)  # the first one finds nothing in the system's caches
    starts = [_start(command) for _ in range(ROUNDS)]
    yield measured(SECTION, prepared.name, "process", [seconds for seconds, _ in starts], limit=LIMIT)
    for stage, values in zip(STAGES, zip(*(stages for _, stages in starts), strict=True), strict=True):
        yield measured(SECTION, prepared.name, stage, values)
    error = nrmse(output.read_bytes(), prepared.outputs[0])
    yield Row(SECTION, prepared.name, "output", error, NRMSE, limit=prepared.limit)


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
