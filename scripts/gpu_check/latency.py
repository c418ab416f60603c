"""Latency of every model: on the GPU by its own events, and as the caller sees it by the wall clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from jitdelegate.runtime.cuda.session import CudaSession
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.litert_cpu import LITERT, litert_call
from scripts.gpu_check.one_by_one import Child, one_by_one, programs_of
from scripts.gpu_check.orders import AS_COMPILED, in_each_order
from scripts.gpu_check.row import RATIO, Row, measured
from scripts.gpu_check.sides import RUNS, interleave, timed

SECTION = "latency"
GROUPS = 9
"""Measurements, of which the median counts; one before them warms up."""
CALL, CALLS = "a call", 25


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per model and precision: one CUDA graph, of an image in every order of its launches, and with the copies; and a
    call with host copies and wait, compared with LiteRT's on the CPU."""
    child = Child()
    yield from one_by_one(child, child.run(programs_of, bundle, MODEL), measure, _failed)


def _failed(prepared: Prepared, reason: str) -> Row:
    return Row(SECTION, prepared.name, "kernels", note=reason)


def measure(prepared: Prepared) -> list[Row]:
    """What `rows` says, of one program.

    Raises:
        JitDelegateError: it cannot be opened or run.
    """
    with in_each_order(prepared) as sessions:
        return list(_measure(prepared, sessions))


def _measure(prepared: Prepared, sessions: Mapping[str, CudaSession]) -> Iterator[Row]:
    for name, session in sessions.items():
        if name != AS_COMPILED and prepared.case.batch > 1:
            continue
        session.invoke()  # kernels compute on real values from now on
        session.run_seconds(RUNS)
        quantity = "kernels" if name == AS_COMPILED else f"kernels, {name}"
        yield measured(SECTION, prepared.name, quantity, _groups(session, copies=False), note=session.graph_failure)
    session = sessions[AS_COMPILED]
    yield measured(SECTION, prepared.name, "kernels and copies", _groups(session, copies=True))
    yield from _calls(prepared, session)
    yield Row(SECTION, prepared.name, "launches", float(len(session.program.launches)))


def _groups(session: CudaSession, *, copies: bool) -> list[float]:
    return [session.run_seconds(RUNS, copies=copies)[0] / RUNS for _ in range(GROUPS)]


def _calls(prepared: Prepared, session: CudaSession) -> Iterator[Row]:
    """Calls, between those of LiteRT where it has the model, as it is in the bundle."""
    sides = {CALL: lambda: timed(session.invoke)}
    if find_spec("ai_edge_litert") and prepared.case.model and not prepared.case.shapes:
        other = litert_call(prepared)
        sides[LITERT] = lambda: timed(other)
    seconds = interleave(sides, CALLS)
    for name, values in seconds.items():
        yield measured(SECTION, prepared.name, name, values)
    if LITERT in seconds:
        ratios = [ours / other for ours, other in zip(*seconds.values(), strict=True)]
        yield measured(SECTION, prepared.name, f"{CALL} / {LITERT}", ratios, unit=RATIO)
