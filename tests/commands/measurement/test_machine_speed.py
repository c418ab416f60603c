"""The loops that measure the machine compute what they count, and speeds are those of the fastest try."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.base.targets import EXACT
from jitdelegate.commands.measurement import machine_speed
from jitdelegate.commands.measurement.machine_loops import LINE, LOOP_BYTES, READS, Loops, write_multiply, write_read
from jitdelegate.commands.measurement.machine_speed import BYTES, KINDS, multiply_speed, products_of
from jitdelegate.targets.cpu.code.vector_ir import Module


@pytest.mark.parametrize(("kind", "dtype"), [(EXACT, np.float32), (BYTES, np.uint8)])
def test_a_loop_multiplies_and_adds_as_often_as_it_says(kind: str, dtype: type) -> None:
    products = products_of(kind)
    module = Module(products.machine)
    each_turn = write_multiply(module, "multiply", products)
    data = np.zeros(LOOP_BYTES, np.uint8)
    data[:LINE].view(dtype)[:] = 1  # both factors, and where the first sum begins
    results = data.view(np.int32 if kind == BYTES else np.float32)
    before = results.sum(dtype=np.float64)
    Loops(module).loops["multiply"](data.ctypes.data, 5)
    assert results.sum(dtype=np.float64) - before == 5 * each_turn


def test_a_loop_reads_all_bytes_as_often_as_it_is_told() -> None:
    module = Module(products_of(EXACT).machine)
    write_read(module, "read", 3 * LINE * READS)
    data = np.zeros(3 * LINE * READS // 4, np.float32)
    data.reshape(3, READS, -1)[:, :, 0] = 1
    Loops(module).loops["read"](data.ctypes.data, 2)
    assert [*data[:: LINE // 4][:READS]] == [6.0] * READS


@pytest.mark.parametrize("kind", KINDS)
def test_the_speed_is_that_of_the_fastest_try(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([4.0, 2.0, 8.0])
    monkeypatch.setattr(machine_speed, "TRIES", 3)
    monkeypatch.setattr(machine_speed, "_thread_seconds", lambda run: next(took))
    products = products_of(kind)
    each_turn = write_multiply(Module(products.machine), "multiply", products)
    assert multiply_speed.__wrapped__(kind) == machine_speed.TURNS * each_turn / 2.0
