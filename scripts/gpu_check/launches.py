"""Every launch of every model by itself, beside what the project's cost model expects of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from jitdelegate.errors import JitDelegateError
from scripts.gpu_check import ceilings
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.ceilings import Ceilings
from scripts.gpu_check.gpu import open_session, prepared_here
from scripts.gpu_check.row import RATIO, SECONDS, Row, measured

SECTION = "launches"
TIMES = ceilings.TIMES
"""Of one launch, one after another in a graph; as many of a kernel that does nothing are taken off."""
GROUPS = 5
ALL, FAMILY = "all launches", "measured / predicted"
Ratios = dict[str, list[float]]


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per launch its time beside the predicted one, per model the sums, and per family and precision the ratios; those
    of families come again after each model, so that a run which is cut short has them too."""
    limits, ratios = ceilings.measure(bundle), Ratios()
    yield Row(SECTION, "ceilings", "clock", limits.clock, "1/s", note="cycles are predicted, this makes them seconds")
    for prepared in prepared_here(bundle, MODEL):
        try:
            found = list(_launches(prepared, limits))
        except JitDelegateError as error:
            yield Row(SECTION, prepared.name, ALL, note=str(error))
            continue
        yield from found
        yield _sum(prepared, found)
        yield from _families(prepared, found, ratios)


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
            quantity = f"launch {number} {family}"
            yield measured(SECTION, prepared.name, quantity, seconds, predicted=cycles / limits.clock)
    finally:
        session.close()


def _sum(prepared: Prepared, found: list[Row]) -> Row:
    seconds, predicted = sum(row.value or 0.0 for row in found), sum(row.predicted or 0.0 for row in found)
    note = f"{len(found)} launches, without what lies between them"
    return Row(SECTION, prepared.name, ALL, seconds, SECONDS, predicted=predicted, note=note)


def _families(prepared: Prepared, found: list[Row], ratios: Ratios) -> Iterator[Row]:
    """The families of this model with all their ratios so far."""
    subjects = {}
    for row, (family, _) in zip(found, prepared.entry.launches, strict=True):
        subject = f"{family}, {prepared.precision}"
        subjects[subject] = True
        if row.ratio is not None:
            ratios.setdefault(subject, []).append(row.ratio)
    for subject in subjects:
        values = ratios.get(subject, [])
        if values:
            yield measured(SECTION, subject, FAMILY, values, unit=RATIO, note=f"{len(values)} launches")
