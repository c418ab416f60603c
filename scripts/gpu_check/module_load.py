"""Time to open the example network on the GPU in a process that has a context, in total and for each part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from jitdelegate.program.program import Program
from jitdelegate.program.read import read
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.session import CudaSession
from scripts.gpu_check.bundle import Bundle, Prepared
from scripts.gpu_check.gpu import example_here, gpu
from scripts.gpu_check.row import Row, measured

SECTION = "module load"
PRECISIONS = ("float32", "float16")
ROUNDS = 15
Result = TypeVar("Result")


def rows(bundle: Bundle) -> Iterator[Row]:
    """The driver and the context once; modules alone and whole sessions many times."""
    seconds, device = _timed(gpu)
    yield Row(SECTION, "process", "driver", seconds, "s")
    seconds, context = _timed(lambda: hold_context(device))
    yield Row(SECTION, "process", "context", seconds, "s")
    with context.current():
        for precision in PRECISIONS:
            yield from _opening(example_here(bundle, precision))


def _opening(prepared: Prepared) -> Iterator[Row]:
    device, program = gpu(), read(prepared.content)
    loads = [_timed(lambda: _load_modules(program, device))[0] for _ in range(ROUNDS)]
    modules = len({offset for _, offset in program.entries})
    yield measured(SECTION, prepared.name, "modules", loads, note=f"{modules} of {len(program.code)} bytes")
    opens = [_timed(lambda: CudaSession(program, device).close())[0] for _ in range(ROUNDS)]
    yield measured(SECTION, prepared.name, "open and close", opens, note=f"{len(program.weights)} bytes of weights")


def _timed(run: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def _load_modules(program: Program, device: Device) -> None:
    """Load every binary of the program and look its kernels up, as a session does, and unload them."""
    code = Borrowed(program.code)
    offsets = dict.fromkeys(offset for _, offset in program.entries)
    modules = {offset: device.driver.load_module(code.address + offset) for offset in offsets}
    for name, offset in program.entries:
        device.driver.function(modules[offset], name)
    for module in modules.values():
        device.driver.unload_module(module)
