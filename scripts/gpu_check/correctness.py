"""Every program against the expected outputs, networks first."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from math import inf

from jitdelegate.errors import JitDelegateError
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.gpu import nrmse, open_session, prepared_here
from scripts.gpu_check.row import NRMSE, Row

SECTION = "correctness"


def rows(bundle: Bundle) -> Iterator[Row]:
    """One row per program: the worst output's NRMSE.

    A kernel that fails takes the whole process's context with it, so programs run in a child, and the next one after a
    failure in a new child.
    """
    pool = _pool()
    try:
        programs = pool.submit(_programs, bundle).result()
        for prepared in programs:
            row = _in_child(pool, prepared)
            yield row
            if row.value is None:
                pool.shutdown()
                pool = _pool()
    finally:
        pool.shutdown()


def _pool() -> ProcessPoolExecutor:
    """One child, with one context for all of its programs. It is forked, which is safe before this process has met the
    GPU, as it never does."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("fork"))


def _programs(bundle: Bundle) -> Sequence[Prepared]:
    """What matters most first: networks before their parts."""
    return sorted(prepared_here(bundle), key=lambda prepared: prepared.case.group != MODEL)


def _in_child(pool: ProcessPoolExecutor, prepared: Prepared) -> Row:
    try:
        return pool.submit(check, prepared).result()
    except BrokenProcessPool:
        return _row(prepared, None, "the process died")


def check(prepared: Prepared) -> Row:
    """The worst output's NRMSE of two runs, the second of which finds the first one's values in the device's memory."""
    try:
        session = open_session(prepared)
        types = [port.dtype for port in session.program.outputs]
        try:
            session.invoke()
            session.reset_states(resources=True)
            session.invoke()
            found = [bytes(session.output_memory(position)) for position in range(len(prepared.case.outputs))]
        finally:
            session.close()
    except JitDelegateError as error:
        return _row(prepared, None, str(error))
    return _row(prepared, max(map(difference, types, found, prepared.outputs)), session.graph_failure)


def difference(dtype: str, found: bytes, expected: bytes) -> float:
    """NRMSE of floats; integers and truth values are equal (0) or wrong (infinite)."""
    if dtype == "float32":
        return nrmse(found, expected)
    return 0.0 if found == expected else inf


def _row(prepared: Prepared, value: float | None, note: str) -> Row:
    return Row(SECTION, prepared.name, prepared.case.group, value, NRMSE, limit=prepared.limit, note=note)
