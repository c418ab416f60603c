"""Every program again and again in every order of its launches: all outputs have to be equal, bit for bit.

Before each run, the memory that it writes is filled with NaN, so that a launch that begins before what it needs is
there cannot find the right values of the run before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from jitdelegate.runtime.cuda.session import CudaSession
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.gpu import open_in_order, outputs_of
from scripts.gpu_check.one_by_one import Child, one_by_one, programs_of
from scripts.gpu_check.row import Row

SECTION = "orders"
DIFFER, AS_COMPILED = "runs that differ", "as compiled"
SECONDS = 4.0
"""For one program, after which fewer runs suffice; a quarter for a batch, whose launches are those of an image."""
ORDERS = {
    AS_COMPILED: (True, True),
    "one after the end of another": (False, False),
    "beginning early": (True, False),
    "with branches": (False, True),
}
"""By name, whether launches begin early, and whether they have branches."""


def rows(bundle: Bundle, most: str = "") -> Iterator[Row]:
    """One row per program, networks first, images before batches: how many runs gave other outputs than the first.

    Args:
        most: runs in each order, where they are less than the bundle says.
    """
    repeats = min(int(most), bundle.repeats) if most else bundle.repeats
    child = Child()
    programs = sorted(child.run(programs_of, bundle), key=lambda one: (one.case.group != MODEL, one.case.batch))
    yield from one_by_one(child, programs, partial(measure, repeats=repeats), _failed)


def _failed(prepared: Prepared, reason: str) -> Row:
    return Row(SECTION, prepared.name, DIFFER, limit=0.0, note=reason)


def measure(prepared: Prepared, *, repeats: int) -> list[Row]:
    """What `rows` says, of one program. Orders take turns.

    Args:
        repeats: runs in each order.
    Raises:
        JitDelegateError: it cannot be opened or run.
    """
    differing: Counter[str] = Counter()
    inputs, runs = prepared.inputs, 0
    with in_each_order(prepared) as sessions:
        end = time.monotonic() + SECONDS / min(prepared.case.batch, 4)
        first = outputs_of(sessions[AS_COMPILED], prepared, inputs)
        while runs < repeats and (not runs or time.monotonic() < end):
            differing.update(name for name, one in sessions.items() if outputs_of(one, prepared, inputs) != first)
            runs += 1
    words = [
        f"{runs} runs in each of {len(sessions)} orders",
        *(f"{count} {name}" for name, count in differing.items()),
    ]
    return [Row(SECTION, prepared.name, DIFFER, float(differing.total()), limit=0.0, note=", ".join(words))]


@contextmanager
def in_each_order(prepared: Prepared) -> Iterator[dict[str, CudaSession]]:
    """The program in each order that is another one than those before, by name.

    Raises:
        JitDelegateError: it cannot be opened.
    """
    found: dict[str, CudaSession] = {}
    with ExitStack() as opened:
        for name, (early, branches) in ORDERS.items():
            session = opened.enter_context(closing(open_in_order(prepared, early=early, branches=branches)))
            if all(session.program.launches != one.program.launches for one in found.values()):
                found[name] = session
        yield found
