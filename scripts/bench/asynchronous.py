"""Throughput of run_async compared with a loop of runs and with two Python threads, and its cost on a tiny model.

The sides, interleaved in one process: `run_by_index` in a loop; run_async over eight pairs of buffers with one, two and
four requests in flight, with a wait at the end; one request at a time, with a wait after each; and two Python threads,
each with a model of one thread. A time is the median of the rounds, in microseconds per inference; the ratio is the
loop's time over it. Without a model: RELU of four numbers, whose times are the cost of a call and of a request.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any

import jitdelegate
from jitdelegate.commands.measurement.column import Column
from scripts.bench.call import tiny_model
from scripts.bench.rounds import interleaved
from scripts.bench.suite import Row, Suite

LOOP = "loop"
PAIRS = 8
"""Pairs of lists of buffers, so that requests do not wait for each other."""
IN_FLIGHT = (1, 2, 4)
WORKERS = 2


def sides(content: bytes, threads: int) -> dict[str, Callable[[int], None]]:
    """Side to that many inferences with it."""

    def opened(num_threads: int, in_flight: int = 1) -> Any:
        return jitdelegate.CompiledModel.create(
            content, target="cpu", num_threads=num_threads, requests_in_flight=in_flight, serialization_dir=False
        )

    runs: dict[str, Callable[[int], None]] = {LOOP: _loop(opened(threads))}
    for in_flight in IN_FLIGHT:
        runs[f"run_async, {in_flight} in flight"] = _requests(opened(threads, in_flight))
    runs["run_async, each waited for"] = _one_by_one(opened(threads))
    runs[f"{WORKERS} Python threads"] = _pool([opened(1) for _ in range(WORKERS)])
    return runs


def _buffers(model: Any) -> tuple[list[Any], list[Any]]:
    return model.create_input_buffers(0), model.create_output_buffers(0)


def _loop(model: Any) -> Callable[[int], None]:
    inputs, outputs = _buffers(model)

    def run(count: int) -> None:
        for _ in range(count):
            model.run_by_index(0, inputs, outputs)

    return run


def _requests(model: Any) -> Callable[[int], None]:
    pairs = [_buffers(model) for _ in range(PAIRS)]

    def run(count: int) -> None:
        for number in range(count):
            event = model.run_async_by_index(0, *pairs[number % PAIRS])
        event.wait()

    return run


def _one_by_one(model: Any) -> Callable[[int], None]:
    inputs, outputs = _buffers(model)

    def run(count: int) -> None:
        for _ in range(count):
            model.run_async_by_index(0, inputs, outputs).wait()

    return run


def _pool(models: list[Any]) -> Callable[[int], None]:
    pool, loops = ThreadPoolExecutor(len(models)), [_loop(model) for model in models]

    def run(count: int) -> None:
        for future in [pool.submit(loop, -(-count // len(loops))) for loop in loops]:
            future.result()

    return run


def measure(content: bytes, threads: int, rounds: int, seconds: float) -> dict[str, float]:
    """Side to microseconds per inference, the median of the rounds."""
    runs = sides(content, threads)
    for run in runs.values():
        run(PAIRS)
    start = time.perf_counter()
    runs[LOOP](PAIRS)
    count = max(PAIRS, int(seconds / (time.perf_counter() - start) * PAIRS))
    times = interleaved({name: partial(run, count) for name, run in runs.items()}, rounds, settled=False, warm_up=1)
    return {name: 1e6 * statistics.median(row) / count for name, row in times.items()}


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model, number of threads and side."""
    for model, threads in product(arguments.model, arguments.threads):
        times = measure(model.read_bytes(), threads, arguments.rounds, arguments.seconds)
        for side, taken in times.items():
            yield {"model": model.name, "threads": threads, "side": side, "us": taken, "speed": times[LOOP] / taken}


def options(parser: argparse.ArgumentParser) -> None:
    """How long."""
    parser.add_argument("--seconds", type=float, default=0.2, help="how long a round of one side lasts")


SUITE = Suite(
    columns=(
        *(Column("model", "<32"), Column("threads", "7"), Column("side", "<28")),
        *(Column("us", "10.1f"), Column("speed", "6.2f")),
    ),
    rows=rows,
    make=tiny_model,
    threads=(2,),
    rounds=7,
    options=options,
)
