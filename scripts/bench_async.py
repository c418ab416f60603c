"""Throughput of run_async against runs in a loop and a pool of Python threads, and its cost on a tiny model.

    python -m scripts.bench_async [MODEL ...] [--threads 2] [--rounds 7] [--seconds 0.2] [--json]

The sides, interleaved in one process: `run_by_index` in a loop; run_async over eight pairs of buffers with one, two and
four requests in flight, waited for at the end; one request at a time, each waited for; and two Python threads with a
model of one thread each. A time is the median of the rounds, in microseconds per inference; the ratio is the loop's
time over it. Without a model: RELU of four numbers, whose times are the cost of a call and of a request.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jitdelegate
from scripts.bench_call import tiny_model

LOOP = "loop"
PAIRS = 8
"""Pairs of lists of buffers, so that requests do not wait for each other."""
IN_FLIGHT = (1, 2, 4)
WORKERS = 2
WARM_UP = 1


def sides(content: bytes, threads: int) -> dict[str, Callable[[int], None]]:
    """Side to that many inferences with it."""

    def opened(num_threads: int, in_flight: int = 1) -> Any:
        return jitdelegate.CompiledModel.create(
            content, target="cpu", num_threads=num_threads, requests_in_flight=in_flight, serialization_dir=False
        )

    found: dict[str, Callable[[int], None]] = {LOOP: _loop(opened(threads))}
    for in_flight in IN_FLIGHT:
        found[f"run_async, {in_flight} in flight"] = _requests(opened(threads, in_flight))
    found["run_async, each waited for"] = _one_by_one(opened(threads))
    found[f"{WORKERS} Python threads"] = _pool([opened(1) for _ in range(WORKERS)])
    return found


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


def measure(content: bytes, threads: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Side to microseconds per inference of every round; in each round all sides run, in another order."""
    found = sides(content, threads)
    for run in found.values():
        run(PAIRS)
    start = time.perf_counter()
    found[LOOP](PAIRS)
    count = max(PAIRS, int(seconds / (time.perf_counter() - start) * PAIRS))
    times: dict[str, list[float]] = {}
    order, shuffled = random.Random(0), list(found.items())
    for round_ in range(WARM_UP + rounds):
        order.shuffle(shuffled)
        for name, run in shuffled:
            start = time.perf_counter()
            run(count)
            if round_ >= WARM_UP:
                times.setdefault(name, []).append(1e6 * (time.perf_counter() - start) / count)
    return {name: times[name] for name in found}


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 measured, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="default: RELU of four numbers, made here")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="how long a round of one side lasts")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    contents = {path.name: path.read_bytes() for path in arguments.models} or {"tiny": tiny_model()}
    results = {}
    for name, content in contents.items():
        times = measure(content, arguments.threads, arguments.rounds, arguments.seconds)
        medians = {side: statistics.median(found) for side, found in times.items()}
        results[name] = medians
        if not arguments.json:
            print(name)
            for side, median in medians.items():
                print(f"  {side:<28}{median:>12.1f} us  x{medians[LOOP] / median:.2f}")
    if arguments.json:
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
