"""Loops of machine code, by the project's own code generator, that keep a CPU's multipliers or its memory busy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.machine import compile_object, triple
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Module, Value, vector
from jitdelegate.targets.cpu.entry.link import link
from jitdelegate.targets.cpu.multiply.products import Products

LINE = 64
"""Bytes of a line of the caches, and apart that sums are stored."""
LOOP_BYTES = 64 * LINE
"""Of the data of a loop that multiplies, more than its sums are."""
READS = 12
"""Independent sums of a loop that reads, each of a line."""
Loop = Callable[[int, int], None]
"""(address of its data, how often) of one thread; Python's other threads run meanwhile."""


def sums_of(products: Products) -> int:
    """Independent sums that fit the registers of a loop that multiplies: as many as the largest register tile has,
    which is more than the latency of an instruction times the units of a core."""
    return max(vectors * rows for vectors, rows in enumerate(products.machine.tiles, 1))


def write_multiply(module: Module, name: str, products: Products) -> int:
    """`void name(data, count)`: `count` times a product for each sum, which the data begins with and then holds.

    Returns:
        multiply-adds of one turn.
    """
    f = module.function(name, [("data", POINTER), ("count", INDEX)], exported=True)
    data, count = f.parameters
    factors, sums = products.data(f, data), sums_of(products)
    starts = [f.load(products.sum_type, data + LINE * k) for k in range(sums)]
    ends = f.loop(count, lambda i, *now: [products.add(f, factors, factors, each) for each in now], *starts)
    for k, end in enumerate(ends):
        f.store(end, data + LINE * k)
    f.finish()
    return sums * starts[0].lanes * products.channels


def write_read(module: Module, name: str, nbytes: int) -> None:
    """`void name(data, count)`: reads `nbytes` bytes, whole blocks of LINE * READS, `count` times; sums are left at
    their beginning."""
    f = module.function(name, [("data", POINTER), ("count", INDEX)], exported=True)
    data, count = f.parameters
    type_ = vector(module.machine.lanes)

    def read(_: Value, *sums: Value) -> list[Value]:
        def lines(i: Value, *now: Value) -> list[Value]:
            return [each + f.load(type_, data + (i * (LINE * READS) + LINE * k)) for k, each in enumerate(now)]

        return f.loop(nbytes // (LINE * READS), lines, *sums)

    ends = f.loop(count, read, *[f.literal(type_, 0.0)] * READS)
    for k, end in enumerate(ends):
        f.store(end, data + LINE * k)
    f.finish()


class Loops:
    """The loops of a module, compiled.

    Attributes:
        loops: each by its name.
    """

    def __init__(self, module: Module) -> None:
        machine = module.machine.name
        blob, entries = link(compile_object(module.text(triple(machine)), machine))
        self._code = Memory(len(blob))  # as long as the loops are called
        self._code.write(blob)
        self._code.make_executable()
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self.loops: dict[str, Loop] = {name: prototype(self._code.address + at) for name, at in entries.items()}
