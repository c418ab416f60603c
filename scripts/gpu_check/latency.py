"""Latency of every model: on the GPU by its own events, and as the caller sees it by the wall clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

from jitdelegate.runtime.cuda.session import CudaSession
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.gpu import open_session
from scripts.gpu_check.one_by_one import Child, one_by_one, programs_of
from scripts.gpu_check.row import Row, measured
from scripts.gpu_check.sides import RUNS

SECTION = "latency"
GROUPS = 9
"""Measurements, of which the median counts; one before them warms up."""
CALLS = 100
ORDERS = {
    "one after the end of another": (False, False),
    "beginning early": (True, False),
    "with branches": (False, True),
}
"""By name, whether launches begin early, and whether they have branches; as the program has it, both are "kernels"."""


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per model and precision: one CUDA graph, without and with the copies; without launches that begin early, and
    without branches; and one call with host copies and wait."""
    child = Child()
    yield from one_by_one(child, child.run(programs_of, bundle, MODEL), measure, _failed)


def _failed(prepared: Prepared, reason: str) -> Row:
    return Row(SECTION, prepared.name, "kernels", note=reason)


def measure(prepared: Prepared) -> list[Row]:
    """What `rows` says, of one program.

    Raises:
        JitDelegateError: it cannot be opened or run.
    """
    session = open_session(prepared)
    try:
        return list(_measure(prepared, session))
    finally:
        session.close()


def _measure(prepared: Prepared, session: CudaSession) -> Iterator[Row]:
    session.invoke()  # kernels compute on real values from now on
    session.run_seconds(RUNS)
    note = session.graph_failure
    for quantity, copies in (("kernels", False), ("kernels and copies", True)):
        groups = [session.run_seconds(RUNS, copies=copies)[0] / RUNS for _ in range(GROUPS)]
        yield measured(SECTION, prepared.name, quantity, groups, note=note)
    for name, (early, branches) in ORDERS.items():
        if any(launch.stream or launch.is_dependent for launch in session.program.launches):
            groups = [session.order_seconds(RUNS, early=early, branches=branches) / RUNS for _ in range(GROUPS)]
            yield measured(SECTION, prepared.name, f"kernels, {name}", groups)
    yield measured(SECTION, prepared.name, "a call", [_call(session) for _ in range(CALLS)])
    yield Row(SECTION, prepared.name, "launches", float(len(session.program.launches)))


def _call(session: CudaSession) -> float:
    start = time.perf_counter()
    session.invoke()
    return time.perf_counter() - start
