"""Measured peak rates of the GPU: products, bytes, and the time from one launch to the next."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from jitdelegate.program.program import Launch, Program
from jitdelegate.program.read import read
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.targets.cuda.code.gpu import gpu_of
from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.gpu import gpu, open_program
from scripts.gpu_check.row import Row, measured

PRODUCTS = ("float32", "float16", "tf32")
"""What is multiplied, in the order of the ceilings program's launches after its first one, which does nothing."""
THREADS, BLOCKS_EACH, SUMS, ROUNDS, ITERATIONS = 256, 8, 16, 16, 128
"""Of a block, blocks for each multiprocessor, sums of a thread, and how often something is added to each: in one
iteration of the kernel's loop, whose own instructions should not count, and iterations."""
CLUSTER, MEETING_THREADS, MEETING_TURNS = 8, 256, 200
"""Blocks of a cluster, threads of each, and how often they meet in a launch."""
STEP = {"float32": 1, "float16": 16, "tf32": 8}
"""Products that are added to a sum at once."""
TIMES, GROUPS = 50, 9
"""Launches in one graph, and measurements of which the median counts."""
LARGE, SMALL = 1 << 28, 1 << 22
"""Bytes of a copy that no cache holds, and of one that the L2 cache holds."""
COPIES = 20


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The GPU's limits.

    Attributes:
        launch: seconds from a launch that does nothing to the next one, in a graph.
        products: by PRODUCTS, multiply-adds a second.
        clock: cycles a second while it computes.
    """

    launch: list[float]
    products: Mapping[str, list[float]]
    clock: float


def measure(bundle: Bundle) -> Ceilings:
    """By the same events, graphs and medians as the launches of models."""
    with closing(open_program(read(bundle.ceiling(bundle.kind(gpu()))))) as session:
        launch = launch_times(session)
        count = sum(family(session.program, launch) == "products" for launch in session.program.launches)
        rates = {name: products(session, number, name) for number, name in enumerate(PRODUCTS[:count], 1)}
    return Ceilings(launch, rates, clock_of(rates["float32"]))


def clock_of(rates: Sequence[float]) -> float:
    """Cycles a second while the GPU computes, taking it that it begins as many float32 multiply-adds as it can."""
    return statistics.median(rates) / (gpu_of(gpu().kind).lanes * gpu().multiprocessors)


def family(program: Program, launch: Launch) -> str:
    """Of a launch's kernel, which its name begins with."""
    return program.entries[launch.kernel][0].rpartition("_")[0] or program.entries[launch.kernel][0]


def launch_times(session: CudaSession) -> list[float]:
    """Seconds from a launch that does nothing to the next one, in every group."""
    session.launch_seconds(0, TIMES)  # warms up
    return [session.launch_seconds(0, TIMES) / TIMES for _ in range(GROUPS)]


def products(session: CudaSession, number: int, name: str) -> list[float]:
    """Multiply-adds a second, in every group."""
    launch = session.program.launches[number]
    count = launch.grid[0] * launch.block[0] * SUMS * STEP[name] * ROUNDS * launch.values[1]
    session.launch_seconds(number, 2)  # lets the clock rise
    return [2 * count / session.launch_seconds(number, 2) for _ in range(GROUPS)]


def rows(section: str, bundle: Bundle) -> Iterator[Row]:
    """A row for each ceiling."""
    found = measure(bundle)
    yield measured(section, "ceilings", "a launch after another", found.launch)
    for name, rates in found.products.items():
        yield measured(section, "ceilings", f"multiply-adds a second, {name}", rates, unit="1/s")
    yield Row(section, "ceilings", "clock", found.clock, "1/s", note="by its float32 multiply-adds")
    for quantity, nbytes in (("memory", LARGE), ("L2 cache", SMALL)):
        yield measured(section, "ceilings", f"bytes a second, {quantity}", copy_rates(nbytes), unit="1/s")


def copy_rates(nbytes: int) -> list[float]:
    """Bytes read and written a second where so many are copied within the device, or as many as it has room for."""
    driver = gpu().driver
    with hold_context(gpu()).current(), ExitStack() as kept:
        nbytes = min(nbytes, driver.memory()[0] // 8)

        def own(handle: int, give_back: Callable[[int], None]) -> int:
            kept.callback(give_back, handle)
            return handle

        source, target = (own(driver.allocate(nbytes), driver.free) for _ in range(2))
        stream = own(driver.create_stream(), driver.destroy_stream)
        start, end = (own(driver.create_event(), driver.destroy_event) for _ in range(2))

        def rate() -> float:
            driver.record(start, stream)
            for _ in range(COPIES):
                driver.copy(target, source, nbytes, stream)
            driver.record(end, stream)
            driver.synchronize(stream)
            return 2 * nbytes * COPIES / driver.seconds_between(start, end)

        rate()  # warms up
        return [rate() for _ in range(GROUPS)]
