"""How long programs would take on many threads, simulated: each step's time is measured on one thread, and its own
chunks are claimed as `targets/cpu/entry/schedule.py` claims them.

Prints the gain over one thread, and which share of all threads' time is lost: `serial` to steps that the calling thread
computes alone, `uneven` to waiting for the last chunk of a step, `meeting` to claims and to what a thread needs to see
that a step is over. Caches, memory and clocks are those of one thread: no machine gains more, and many gain less.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isinf
from pathlib import Path

import jitdelegate
from jitdelegate.base.targets import LEVELS
from jitdelegate.commands.measurement.column import Column
from jitdelegate.targets.cpu.code.kernel import RANGES, Generator, Step
from jitdelegate.targets.cpu.code.vector_ir import Module
from jitdelegate.targets.cpu.generate import write_steps
from jitdelegate.targets.cpu.plan import plan
from jitdelegate.targets.cpu.unsigned import store_unsigned
from jitdelegate.targets.host import level
from jitdelegate.targets.planning.choose_layout import choose_layout
from scripts.bench.suite import Row, Suite
from scripts.lowered_models import lowered

CLAIM_SECONDS, MEETING_SECONDS = 5e-8, 3e-7
"""What a claim takes of a word that another CPU has written, and what it takes to see that a step is over."""


@dataclass
class Lost:
    """Seconds of one run, and seconds that its threads lost, all together."""

    run: float = 0.0
    serial: float = 0.0
    uneven: float = 0.0
    meeting: float = 0.0


def steps_of(path: Path) -> list[Step] | None:
    """The steps of a model's program for this machine; None where it is not compiled as a whole."""
    graph = lowered(path.read_bytes())
    if graph is None:
        return None
    machine = LEVELS[level()]
    graph = store_unsigned(graph) if machine.byte_data == "uint8" else graph
    generator = Generator(machine, Module(machine))
    write_steps(generator, plan(graph, choose_layout(graph, machine.lanes)))
    return generator.steps


def seconds_of(path: Path, rounds: int) -> list[float]:
    """The median time of each step on one thread."""
    with jitdelegate.load(path, target="cpu", num_threads=1, profile=True, serialization_dir=False) as model:
        session = model._opened.session
        assert session is not None
        inputs = [bytes(port.nbytes) for port in session.program.inputs]
        for _ in range(rounds):
            session.run(inputs)
        return [seconds or 0.0 for seconds in session.kernel_seconds()]


def chunk_seconds(step: Step, seconds: float) -> list[float]:
    """The time of each chunk: that of a job in proportion to its work. Jobs of unknown work, such as those that fill a
    halo, take no time beside others."""
    known = [0.0 if isinf(job.worth) else job.worth for job in step.jobs]
    work = known if any(known) else [float(job.chunks) for job in step.jobs]
    each = [seconds * share / sum(work) / job.chunks for job, share in zip(step.jobs, work, strict=True)]
    return [taken for job, taken in zip(step.jobs, each, strict=True) for _ in range(job.chunks)]


def simulated(steps: Sequence[Step], seconds: Sequence[float], threads: int) -> Lost:
    """One run on so many threads, each on a CPU of its own."""
    total = Lost()
    for step, alone in zip(steps, seconds, strict=True):
        if not step.is_shared or threads == 1:
            total.run += alone
            total.serial += alone * (threads - 1)
            continue
        taken = _shared_seconds(chunk_seconds(step, alone), threads)
        claims = CLAIM_SECONDS * step.chunks
        total.run += taken + MEETING_SECONDS
        total.meeting += MEETING_SECONDS * threads + claims
        total.uneven += taken * threads - alone - claims
    return total


def _shared_seconds(chunks: Sequence[float], threads: int) -> float:
    """The time of a step: each thread claims chunks of its own range, then of the next ones."""
    ranges = min(threads, RANGES)
    left = [
        list(reversed(chunks[number * len(chunks) // ranges : (number + 1) * len(chunks) // ranges]))
        for number in range(ranges)
    ]
    free, end = [(0.0, thread) for thread in range(threads)], 0.0
    while free:
        now, thread = heapq.heappop(free)
        own = next((left[(thread + turn) % ranges] for turn in range(ranges) if left[(thread + turn) % ranges]), None)
        if own is None:
            continue
        now += own.pop() + CLAIM_SECONDS
        end = max(end, now)
        heapq.heappush(free, (now, thread))
    return end


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model and number of threads."""
    for model in arguments.model:
        steps = steps_of(model)
        if steps is None:
            continue
        seconds = seconds_of(model, arguments.rounds)
        alone = sum(seconds)
        for threads in arguments.threads:
            lost = simulated(steps, seconds, threads)
            shares = {name: getattr(lost, name) / (lost.run * threads) for name in ("serial", "uneven", "meeting")}
            yield {"model": model.name, "threads": threads, "ms": 1e3 * lost.run, "gain": alone / lost.run, **shares}


SUITE = Suite(
    columns=(
        *(Column("model", "<32"), Column("threads", "7"), Column("ms", "8.3f"), Column("gain", "6.2f")),
        *(Column(name, "7.0%") for name in ("serial", "uneven", "meeting")),
    ),
    rows=rows,
    threads=(2, 4, 16, 64),
    rounds=30,
)
