"""A litmus test of the threads' protocol: what a thread reads after a step is what others wrote before its end.

Every chunk of a step reads what all chunks of the step before have written, each in a cache line of its own. A value
that is late by one run or one step changes the result, which Python computes otherwise.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from xxhash import xxh3_128_hexdigest

from jitdelegate.base.targets import LEVELS
from jitdelegate.program.program import Port, Program
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import LEARNT
from jitdelegate.targets.cpu.code.kernel import Address, Job, Step
from jitdelegate.targets.cpu.code.machine import compile_object, triple
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Module
from jitdelegate.targets.cpu.entry import schedule
from jitdelegate.targets.cpu.entry.architecture import architecture_of
from jitdelegate.targets.cpu.entry.link import link
from tests.targets.levels import RUNNABLE

pytestmark = pytest.mark.skipif(RUNNABLE[-1] == "generic", reason="no threads on this machine")
CHUNKS = 6
STEPS = (CHUNKS, CHUNKS, 1, 1, CHUNKS, 1, CHUNKS)
"""Chunks of each step; those of one chunk are the calling thread's, and it tells the others when the last has ended."""
LINE = 64
ROW = CHUNKS * LINE
RUNS = 3000


def litmus_program(*, is_assembled: bool = True) -> Program:
    """int64[1] -> int64[1]"""
    level = RUNNABLE[-1]
    module = Module(LEVELS[level])
    parameters = [("chunk", INDEX), ("scratch", POINTER), ("before", POINTER), ("after", POINTER)]
    f = module.function("add_all", parameters)
    chunk, _, before, after = f.parameters
    total = chunk + 1
    for part in range(CHUNKS):
        total = total + f.load(INDEX, before + part * LINE, 8)
    f.store(total, after + chunk * LINE, 8)
    f.finish()
    f = module.function("begin", parameters)
    chunk, _, given, after = f.parameters
    f.store(f.load(INDEX, given, 8), after + chunk * LINE, 8)
    f.finish()
    rows = [Address("arena", number * ROW) for number in range(len(STEPS) + 1)]
    steps = [Step("Map", [Job("begin", CHUNKS, (Address("io", 0), rows[0]))])]
    steps += [Step("Map", [Job("add_all", count, pair)]) for count, *pair in zip(STEPS, rows, rows[1:], strict=False)]
    steps.append(Step("Map", [Job("begin", 1, (rows[-1], Address("io", 1)))]))
    architecture = architecture_of(triple(level), is_assembled=is_assembled)
    schedule.write_entries(module, steps, architecture=architecture, has_threads=LEVELS[level].has_threads)
    code, entries = link(compile_object(module.text(triple(level)), level))
    port = {"shape": (1,), "dtype": "int64", "nbytes": 8}
    return Program(
        key=(),
        target="cpu",
        features=level,
        loader="flat",
        inputs=(Port(name="x", index=0, **port),),
        outputs=(Port(name="y", index=1, **port),),
        arena_bytes=ROW * len(rows),
        sync_bytes=schedule.sync_bytes(len(steps)),
        entries=tuple(entries.items()),
        code=code,
        weights_hash=xxh3_128_hexdigest(b""),
    )


def expected(x: int) -> int:
    """What is left of it in the first line of the last row; lines that no chunk of a step writes keep 0."""
    row = [x] * CHUNKS
    for count in STEPS:
        row = [sum(row) + chunk + 1 if chunk < count else 0 for chunk in range(CHUNKS)]
    return row[0]


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("is_assembled", [True, False])
def test_no_thread_reads_what_is_older_than_the_step_before(threads: int, is_assembled: bool) -> None:
    """Also as another machine compiles it."""
    session = Session(litmus_program(is_assembled=is_assembled), threads)
    assert session._memory is not None
    for x in range(RUNS):
        ctypes.memset(session._memory._sync + LEARNT, 0, LINE)  # every run with workers
        (y,) = session.run([np.array([x])])
        assert int(np.asarray(y)[0]) == expected(x)
    session.close()
