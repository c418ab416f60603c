"""Peak rate of the CPU for products of bytes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from jitdelegate.base.targets import LEVELS
from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.machine import compile_object, triple
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Module
from jitdelegate.targets.cpu.entry.link import link
from jitdelegate.targets.cpu.multiply.products import ByteProducts, PairProducts
from jitdelegate.targets.host import level

SUMS = 24


def peak() -> float:
    """Multiply-adds of bytes per second and thread, of a loop of the level's own instruction for them."""
    machine = LEVELS[level()]
    products = (ByteProducts if machine.plus_bytes else PairProducts)(machine, is_signed=False)
    module = Module(machine)
    f = module.function("loop", [("data", POINTER), ("count", INDEX)], exported=True)
    data, count = f.parameters
    one = products.data(f, data)
    starts = [f.load(products.sum_type, data + 64 * k) for k in range(SUMS)]
    ends = f.loop(count, lambda i, *sums: [products.add(f, one, one, each) for each in sums], *starts)
    for k, end in enumerate(ends):
        f.store(end, data + 64 * k)
    f.finish()
    blob, entries = link(compile_object(module.text(triple(machine.name)), machine.name))
    code, memory, times = 1 << 16, Memory(64 * SUMS), 20
    space = Memory(len(blob))
    space.write(blob)
    space.make_executable()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(space.address + entries["loop"])
    least = min(_thread_seconds(lambda: run(memory.address, code)) for _ in range(times))
    return code * SUMS * machine.lanes * products.channels / least


def _thread_seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start
