"""Two threads against one, ours and XNNPACK's, beside a measurement of what the machine's second CPU is worth.

    python -m scripts.bench_threads MODEL [MODEL ...] [--rounds 60] [--busy fma|cache] [--pin CPU] [--json]

Two CPUs of a virtual machine may be two cores at one time and two hyperthreads of one core at another. So each round
first runs a loop of FMA and a loop over a second-level cache on one thread and on two at once, in CPU time, which other
processes do not lengthen. The gain is the work of two threads over that of one: near 2 the round is "quiet", near 1
"shared", between them "mixed". Then all four sides run in another order, each for some milliseconds. Prints medians of
the milliseconds and of the rounds' ratios for each state. A busy process beside it, or one CPU for all, are harder.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert

import jitdelegate
from jitdelegate.base.targets import LEVELS
from jitdelegate.runtime.cpu.features import level
from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.machine import compile_object, triple
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Module, Value, vector
from jitdelegate.targets.cpu.entry.link import link
from scripts.bench_latency import ready

QUIET, SHARED = 1.75, 1.5
"""Gains of two threads in the FMA loop from which, and up to which, a round has a state."""
SUMS = 12
"""Independent sums of the FMA loop: more than the latency of an FMA times the units of a core."""
CACHE_BYTES = 3 << 18
"""Bytes that each thread of the cache loop reads: two of them leave the second-level cache of most cores."""
MOST_DELAY = 0.05
"""Share of a round that threads may wait for a CPU, before the round is disturbed."""
PROBE_SECONDS = 0.0015
SIDE_SECONDS = 0.008
SIDES = ("ours 1", "ours 2", "XNNPACK 1", "XNNPACK 2")
RATIOS = (("ours 1", "ours 2"), ("XNNPACK 1", "XNNPACK 2"), ("XNNPACK 1", "ours 1"), ("XNNPACK 2", "ours 2"))
Loop = Callable[[int, int], None]


class Probe:
    """Measures what a second thread adds. The loops are compiled by the project's own code generator."""

    def __init__(self) -> None:
        features = level()
        self._lanes = LEVELS[features].lanes
        module = Module(LEVELS[features])
        self._write_fma(module)
        self._write_cache(module)
        blob, entries = link(compile_object(module.text(triple(features)), features))
        self._code = Memory(len(blob))
        self._code.write(blob)
        self._code.make_executable()
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self.loops: dict[str, Loop] = {name: prototype(self._code.address + at) for name, at in entries.items()}
        self._data = [Memory(CACHE_BYTES) for _ in range(2)]
        self._counts = {name: self._calibrated(loop) for name, loop in self.loops.items()}

    def _write_fma(self, module: Module) -> None:
        """`void fma(data, count)`: `count` times an FMA of each sum."""
        f = module.function("fma", [("data", POINTER), ("count", INDEX)], exported=True)
        data, count = f.parameters
        type_ = vector(self._lanes)
        x = f.load(type_, data)
        starts = [f.load(type_, data + 64 * (1 + k)) for k in range(SUMS)]
        ends = f.loop(count, lambda i, *sums: [f.fma(each, x, x) for each in sums], *starts)
        for k, end in enumerate(ends):
            f.store(end, data + 64 * (1 + k))
        f.finish()

    def _write_cache(self, module: Module) -> None:
        """`void cache(data, count)`: reads all data `count` times."""
        f = module.function("cache", [("data", POINTER), ("count", INDEX)], exported=True)
        data, count = f.parameters
        type_ = vector(self._lanes)

        def read(_: Value, *sums: Value) -> list[Value]:
            def lines(i: Value, *now: Value) -> list[Value]:
                return [each + f.load(type_, data + (i * (64 * SUMS) + 64 * k)) for k, each in enumerate(now)]

            return f.loop(CACHE_BYTES // (64 * SUMS), lines, *sums)

        ends = f.loop(count, read, *[f.literal(type_, 0.0)] * SUMS)
        for k, end in enumerate(ends):
            f.store(end, data + 64 * (1 + k))
        f.finish()

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
        delegate = jitdelegate.GpuDelegate(target="cpu")
        ours = jitdelegate.Interpreter(str(model), num_threads=threads, experimental_delegates=[delegate])
        sides[f"ours {threads}"] = ready(ours).invoke
        sides[f"XNNPACK {threads}"] = ready(litert.Interpreter(str(model), num_threads=threads)).invoke
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
    """State -> rounds; a round has the seconds of each side and the probe's gains."""
    found: dict[str, list[dict[str, float]]] = {}
    sides, order = sides_of(model), random.Random(0)
    names = list(sides)
    before = probe.gain("fma")
    for _ in range(rounds):
        order.shuffle(names)
        start, delay = time.perf_counter(), delay_seconds()
        row = {name: mean_seconds(sides[name]) for name in names}
        is_disturbed = delay_seconds() - delay > MOST_DELAY * (time.perf_counter() - start)
        after = probe.gain("fma")
        row |= {"fma": after, "cache": probe.gain("cache")}
        state = state_of(after) if state_of(before) == state_of(after) else "mixed"
        state = "disturbed" if is_disturbed else state
        found.setdefault(state, []).append(row)
        before = after
    return found


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Medians of one state."""
    milliseconds = {name: 1e3 * statistics.median(row[name] for row in rows) for name in SIDES}
    ratios = {f"{a} / {b}": statistics.median(row[a] / row[b] for row in rows) for a, b in RATIOS}
    gains = {f"{name} loop": statistics.median(row[name] for row in rows) for name in ("fma", "cache")}
    return {"rounds": len(rows), "ms": milliseconds, "ratios": ratios, "gains": gains}


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--busy", choices=("fma", "cache"))
    parser.add_argument("--pin", type=int, help="run everything on this CPU alone")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.pin is not None:
        os.sched_setaffinity(0, {arguments.pin})
    probe, results = Probe(), []
    with busy(arguments.busy):
        for model in arguments.model:
            states = {state: summary(rows) for state, rows in measure(model, probe, arguments.rounds).items()}
            results.append({"model": model.name, "states": states})
            for state, each in sorted(states.items()) if not arguments.json else ():
                shown = [f"{name} {value:.3f}" for name, value in each["ms"].items()]
                shown += [f"{name} = {value:.2f}" for name, value in (each["ratios"] | each["gains"]).items()]
                print(f"{model.name[:32]:32} {state:9} {each['rounds']:3} rounds, ms: {', '.join(shown)}", flush=True)
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
