"""The constants of the cost model that one GPU alone can tell, beside those that the package has.

`apply_constants.py` writes them to the package.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import closing

from jitdelegate.program.read import read
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.targets.cuda.code.gpu import gpu_of
from scripts.gpu_check import ceilings
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.ceilings import GROUPS, MEETING_TURNS
from scripts.gpu_check.gpu import gpu, open_in_order, open_program, prepared_here
from scripts.gpu_check.row import Row, measured
from scripts.gpu_check.sides import RUNS

SECTION = "constants"
IN_A_ROW = 100
"""Launches that do nothing in one graph."""
FEW = 3
"""Measurements of each network."""
MEETINGS = {"meetings": "cluster", "exchanges": "exchange"}
"""By family of the kernels that measure them, names of constants in cycles."""


def rows(bundle: Bundle) -> Iterator[Row]:
    """A row for each field of `gpu.Costs`, whose quantity is the architecture."""
    here = gpu_of(gpu().kind)
    for name, values in costs(bundle):
        assumed = getattr(here.costs, name)
        yield measured(SECTION, name, f"sm_{here.capability}", values, unit="", predicted=assumed)


def costs(bundle: Bundle) -> Iterator[tuple[str, list[float]]]:
    """Names and repeated measurements."""
    limits = ceilings.measure(bundle)
    yield "clock", [limits.clock / 1e9]
    full = [1e9 * seconds for seconds in limits.launch]
    yield "full_edge", full
    with closing(open_program(read(bundle.ceiling(bundle.kind(gpu()))))) as session:
        for number, launch in enumerate(session.program.launches):
            name = MEETINGS.get(ceilings.family(session.program, launch))
            if name:
                taken = [session.launch_seconds(number, 2) / 2 for _ in range(1 + GROUPS)][1:]
                yield name, [seconds / MEETING_TURNS * limits.clock for seconds in taken]
    if not gpu_of(gpu().kind).has_dependent_launch:
        return
    yield "saved_edge", early_launches(bundle)
    alone = [prepared for prepared in prepared_here(bundle, MODEL) if prepared.case.batch == 1]
    saved = [gain for prepared in alone for gain in gains(prepared)]
    if saved:
        yield "dependent_edge", [statistics.median(full) - gain for gain in saved]


def early_launches(bundle: Bundle) -> list[float]:
    """Nanoseconds from one launch that does nothing and begins early to the next one."""
    program = read(bundle.ceiling(bundle.kind(gpu())))
    nothing = program.launches[0]
    launches = (nothing, *[nothing.altered(is_dependent=True)] * (IN_A_ROW - 1))
    with closing(open_program(program.altered(launches=launches))) as session:
        return [_nanoseconds(session) / IN_A_ROW for _ in range(GROUPS)]


def gains(prepared: Prepared) -> list[float]:
    """Nanoseconds that each launch after the first one of a row saves by beginning early, FEW times; [] where
    there is none."""
    with (
        closing(open_in_order(prepared, early=True, branches=False)) as early,
        closing(open_in_order(prepared, early=False, branches=False)) as late,
    ):
        edges = sum(launch.is_dependent for launch in early.program.launches)
        if not edges:
            return []
        early.invoke()  # kernels compute on real values from now on
        late.invoke()
        return [(_nanoseconds(late) - _nanoseconds(early)) / edges for _ in range(FEW)]


def _nanoseconds(session: CudaSession) -> float:
    return 1e9 * session.run_seconds(RUNS, copies=False)[0] / RUNS
