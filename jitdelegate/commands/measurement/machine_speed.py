"""This machine's CPU: its name, how fast it multiplies, and how fast it reads memory."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from jitdelegate.base.targets import BFLOAT16, EXACT, FLOAT16, LEVELS
from jitdelegate.commands.measurement.machine_loops import (
    LINE,
    LOOP_BYTES,
    READS,
    Loops,
    write_multiply,
    write_read,
)
from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.vector_ir import Module
from jitdelegate.targets.cpu.multiply.bfloat_pairs import BfloatPairs
from jitdelegate.targets.cpu.multiply.half_products import HalfSums
from jitdelegate.targets.cpu.multiply.products import ByteProducts, PairProducts, Products, WordProducts
from jitdelegate.targets.host import level

BYTES, WORDS = "int8", "int16"
KINDS = (EXACT, BFLOAT16, FLOAT16, BYTES, WORDS)
"""What is multiplied."""
TURNS, TRIES = 1 << 16, 20
READ_BYTES = 512 << 20
"""More than any cache holds."""
READ_TRIES = 5


def processor() -> str:
    """The CPU's name, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def products_of(kind: str) -> Products:
    """How this machine multiplies numbers of one of KINDS; float32 in place of a precision that it lacks."""
    precision = kind if kind in (BFLOAT16, FLOAT16) else EXACT
    machine = LEVELS[level(precision)].computing_in(precision)
    if kind == WORDS:
        return WordProducts(machine)
    if kind == BYTES:
        return (ByteProducts if machine.plus_bytes else PairProducts)(machine, is_signed=False)
    if machine.multiplies_bfloats:
        return BfloatPairs(machine)
    return HalfSums(machine) if machine.multiplies_halves else Products(machine)


@cache
def multiply_speed(kind: str = EXACT) -> float:
    """Multiply-adds per second and thread, of a loop of the level's own instruction for them: the best of TRIES."""
    products = products_of(kind)
    module = Module(products.machine)
    each_turn = write_multiply(module, "multiply", products)
    compiled, memory = Loops(module), Memory(LOOP_BYTES)
    run = compiled.loops["multiply"]
    return TURNS * each_turn / min(_thread_seconds(lambda: run(memory.address, TURNS)) for _ in range(TRIES))


def _thread_seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


@cache
def read_speed(threads: int) -> float:
    """Bytes per second that `threads` threads read together: the best of several readings of READ_BYTES."""
    part = READ_BYTES // threads // (LINE * READS) * (LINE * READS)
    module = Module(LEVELS[level()])
    write_read(module, "read", part)
    compiled, data = Loops(module), np.ones(threads * part // 4, np.float32)
    places = [data.ctypes.data + thread * part for thread in range(threads)]
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(READ_TRIES):
            start = time.perf_counter()
            list(pool.map(lambda place: compiled.loops["read"](place, 1), places))
            seconds.append(time.perf_counter() - start)
    return threads * part / min(seconds)
