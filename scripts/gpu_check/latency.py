"""Latency of every model: on the GPU by its own events, and as the caller sees it by the wall clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

from jitdelegate.errors import JitDelegateError
from jitdelegate.runtime.cuda.session import CudaSession
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.gpu import open_session, prepared_here
from scripts.gpu_check.row import Row, measured
from scripts.gpu_check.sides import RUNS

SECTION = "latency"
GROUPS = 9
"""Measurements, of which the median counts; one before them warms up."""
CALLS = 100


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per model and precision: one CUDA graph, without and with the copies, and one call with host copies and wait."""
    for prepared in prepared_here(bundle, MODEL):
        try:
            session = open_session(prepared)
            try:
                yield from _measure(prepared, session)
            finally:
                session.close()
        except JitDelegateError as error:
            yield Row(SECTION, prepared.name, "kernels", note=str(error))


def _measure(prepared: Prepared, session: CudaSession) -> Iterator[Row]:
    session.invoke()  # kernels compute on real values from now on
    session.run_seconds(RUNS)
    note = session.graph_failure
    for quantity, copies in (("kernels", False), ("kernels and copies", True)):
        groups = [session.run_seconds(RUNS, copies=copies)[0] / RUNS for _ in range(GROUPS)]
        yield measured(SECTION, prepared.name, quantity, groups, note=note)
    yield measured(SECTION, prepared.name, "a call", [_call(session) for _ in range(CALLS)])
    yield Row(SECTION, prepared.name, "launches", float(len(session.program.launches)))


def _call(session: CudaSession) -> float:
    start = time.perf_counter()
    session.invoke()
    return time.perf_counter() - start
