"""The time of every launch of every model, compared with the cost model."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

from scripts.gpu_check import ceilings
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.ceilings import Ceilings
from scripts.gpu_check.gpu import open_session
from scripts.gpu_check.one_by_one import Child, one_by_one, programs_of
from scripts.gpu_check.row import SECONDS, Row, measured

SECTION = "launches"
TIMES = ceilings.TIMES
"""Of one launch, one after another in a graph; as many of a kernel that does nothing are taken off."""
GROUPS = 5
ALL, LAUNCH = "all launches", "launch "


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per launch its time beside the predicted one, and per model the sums."""
    child = Child()
    limits = child.run(ceilings.measure, bundle)
    yield Row(SECTION, "ceilings", "clock", limits.clock, "1/s", note="cycles are predicted, this makes them seconds")
    yield from one_by_one(child, child.run(programs_of, bundle, MODEL), partial(measure, limits=limits), _failed)


def _failed(prepared: Prepared, reason: str) -> Row:
    return Row(SECTION, prepared.name, ALL, note=reason)


def measure(prepared: Prepared, *, limits: Ceilings) -> list[Row]:
    """What `rows` says, of one program.

    Raises:
        JitDelegateError: it cannot be opened or run.
    """
    found = list(_launches(prepared, limits))
    return [*found, _sum(prepared, found)]


def _launches(prepared: Prepared, limits: Ceilings) -> Iterator[Row]:
    """In the order of a run, so that each launch computes on what those before it made."""
    nothing = statistics.median(limits.launch)
    session = open_session(prepared)
    try:
        session.invoke()
        for number, (family, cycles) in enumerate(prepared.entry.launches):
            seconds = [
                session.launch_seconds(number, TIMES, afresh=group == 0) / TIMES - nothing for group in range(GROUPS)
            ]
            yield measured(
                SECTION, prepared.name, f"{LAUNCH}{number} {family}", seconds, predicted=cycles / limits.clock
            )
    finally:
        session.close()


def _sum(prepared: Prepared, found: list[Row]) -> Row:
    seconds, predicted = sum(row.value or 0.0 for row in found), sum(row.predicted or 0.0 for row in found)
    note = f"{len(found)} launches, without what lies between them"
    return Row(SECTION, prepared.name, ALL, seconds, SECONDS, predicted=predicted, note=note)
