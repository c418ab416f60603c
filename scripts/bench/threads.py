"""Two threads against one, ours and XNNPACK's, with a measurement of the gain from the machine's second CPU.

Two CPUs of a virtual machine may be two cores at one time and two hyperthreads of one core at another. So each round
first runs a loop of FMA and a loop over a second-level cache on one thread and on two at once, in CPU time, which other
processes do not lengthen. The gain is the work of two threads over that of one: near 2 the round is "quiet", near 1
"shared", between them "mixed". Then all four sides run, in another order each round, for some milliseconds each. Prints
medians of the milliseconds and of the rounds' ratios for each state. Options add a busy process, or run everything on
one CPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from jitdelegate.base.targets import EXACT
from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.machine_loops import Loop, Loops, write_multiply, write_read
from jitdelegate.commands.measurement.machine_speed import products_of
from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.vector_ir import Module
from scripts.bench.rounds import in_turns, medians, our_side, their_side
from scripts.bench.suite import Row, Suite

QUIET, SHARED = 1.75, 1.5
"""Gains of two threads in the FMA loop from which, and up to which, a round has a state."""
CACHE_BYTES = 3 << 18
"""Bytes that each thread of the cache loop reads: two of them leave the second-level cache of most cores."""
MOST_DELAY = 0.05
"""Share of a round that threads may wait for a CPU, before the round is disturbed."""
PROBE_SECONDS = 0.0015
SIDE_SECONDS = 0.008
SIDES = ("ours 1", "ours 2", "XNNPACK 1", "XNNPACK 2")
RATIOS = (("ours 1", "ours 2"), ("XNNPACK 1", "XNNPACK 2"), ("XNNPACK 1", "ours 1"), ("XNNPACK 2", "ours 2"))


class Probe:
    """Measures what a second thread adds. The loops are compiled by the project's own code generator."""

    def __init__(self) -> None:
        products = products_of(EXACT)
        module = Module(products.machine)
        write_multiply(module, "fma", products)
        write_read(module, "cache", CACHE_BYTES)
        self._compiled = Loops(module)
        self.loops = self._compiled.loops
        self._data = [Memory(CACHE_BYTES) for _ in range(2)]
        self._counts = {name: self._calibrated(loop) for name, loop in self.loops.items()}

    def _calibrated(self, loop: Loop) -> int:
        """How often a loop runs in PROBE_SECONDS."""
        count = 1
        while self._seconds(loop, 0, count) < PROBE_SECONDS:
            count *= 2
        return count

    def _seconds(self, loop: Loop, thread: int, count: int) -> float:
        start = time.thread_time()
        loop(self._data[thread].address, count)
        return time.thread_time() - start

    def gain(self, name: str) -> float:
        """Work of two threads in the time of one thread's, about 1 to 2."""
        loop, count = self.loops[name], self._counts[name]
        alone = self._seconds(loop, 0, count)
        took = [0.0, 0.0]
        meet = threading.Barrier(2)

        def run(thread: int) -> None:
            meet.wait()
            took[thread] = self._seconds(loop, thread, 3 * count) / 3

        other = threading.Thread(target=run, args=(1,))
        other.start()
        run(0)
        other.join()
        return sum(alone / each for each in took)


def state_of(gain: float) -> str:
    """The name of a state."""
    return "quiet" if gain >= QUIET else "shared" if gain <= SHARED else "mixed"


@contextmanager
def busy(name: str | None) -> Iterator[None]:
    """A process that runs a loop of the probe meanwhile."""
    if not name:
        yield
        return
    process = multiprocessing.get_context("fork").Process(target=_forever, args=(name,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _forever(name: str) -> None:
    probe = Probe()
    data = Memory(CACHE_BYTES)
    while True:
        probe.loops[name](data.address, 1000)


def sides_of(model: Path) -> dict[str, Callable[[], object]]:
    """One call each of ours and XNNPACK's, on one and on two threads."""
    sides: dict[str, Callable[[], object]] = {}
    for threads in (1, 2):
        sides[f"ours {threads}"] = our_side(model, threads, target="cpu").invoke
        sides[f"XNNPACK {threads}"] = their_side(model, threads).invoke
    return sides


def mean_seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of a call, from calls for SIDE_SECONDS after as many that are not counted, and at least three."""
    for counted in (False, True):
        start, runs = time.perf_counter(), 0
        while runs < (3 if counted else 1) or time.perf_counter() < start + SIDE_SECONDS:
            run()
            runs += 1
    return (time.perf_counter() - start) / runs


def delay_seconds() -> float:
    """How long the threads of this process have waited for a CPU; 0 where the system does not tell."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(path.read_bytes().split()[1])
    return total / 1e9


def measure(model: Path, probe: Probe, rounds: int) -> dict[str, list[dict[str, float]]]:
    """State -> rounds; a round has the milliseconds of the sides, their ratios and the probe's gains."""
    states: dict[str, list[dict[str, float]]] = {}
    sides = {name: partial(mean_seconds, run) for name, run in sides_of(model).items()}
    before, start, delay = probe.gain("fma"), time.perf_counter(), delay_seconds()
    for times in in_turns(sides, rounds):
        is_disturbed = delay_seconds() - delay > MOST_DELAY * (time.perf_counter() - start)
        after = probe.gain("fma")
        state = state_of(after) if state_of(before) == state_of(after) else "mixed"
        row = {name: 1e3 * seconds for name, seconds in times.items()} | {"fma": after, "cache": probe.gain("cache")}
        row |= {f"{a} / {b}": times[a] / times[b] for a, b in RATIOS}
        states.setdefault("disturbed" if is_disturbed else state, []).append(row)
        before, start, delay = after, time.perf_counter(), delay_seconds()
    return states


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model and state of the machine."""
    if arguments.pin is not None:
        os.sched_setaffinity(0, {arguments.pin})
    probe = Probe()
    with busy(arguments.busy):
        for model in arguments.model:
            for state, found in sorted(measure(model, probe, arguments.rounds).items()):
                yield {"model": model.name, "state": state, "rounds": len(found), **medians(found)}


def options(parser: argparse.ArgumentParser) -> None:
    """What makes it harder."""
    parser.add_argument("--busy", choices=("fma", "cache"))
    parser.add_argument("--pin", type=int, help="run everything on this CPU alone")


SUITE = Suite(
    columns=(
        *(Column("model", "<32"), Column("state", "<9"), Column("rounds", "3")),
        *(Column(name, "9.3f", f"{name} ms") for name in SIDES),
        *(Column(f"{a} / {b}", "5.2f") for a, b in RATIOS),
        *(Column("fma", "5.2f", "fma loop"), Column("cache", "5.2f", "cache loop")),
    ),
    rows=rows,
    threads=(),
    rounds=60,
    options=options,
)
