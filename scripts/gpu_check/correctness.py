"""Every program against the expected outputs, networks first."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from jitdelegate.errors import JitDelegateError
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.gpu import nrmse, open_session, outputs_of
from scripts.gpu_check.one_by_one import Child, one_by_one, programs_of
from scripts.gpu_check.row import NRMSE, Row

SECTION = "correctness"


def rows(bundle: Bundle) -> Iterator[Row]:
    """One row per program, networks first, which matter most: the worst output's NRMSE."""
    child = Child()
    programs = sorted(child.run(programs_of, bundle), key=lambda prepared: prepared.case.group != MODEL)
    yield from one_by_one(child, programs, compare, _failed)


def compare(prepared: Prepared) -> list[Row]:
    """The worst output's NRMSE of the second run, with NaN in the device's memory. Before the first one nothing is
    filled, so that compute-sanitizer sees what is read and never written.

    Raises:
        JitDelegateError: the program cannot be opened or run.
    """
    session = open_session(prepared)
    types = [port.dtype for port in session.program.outputs]
    try:
        inputs = prepared.inputs
        session.invoke()
        found = outputs_of(session, prepared, inputs)
    finally:
        session.close()
    return [_row(prepared, max(map(difference, types, found, prepared.outputs)), session.graph_failure)]


def check(prepared: Prepared) -> Row:
    """The row of `compare`; one without a value where the program cannot be run."""
    try:
        return compare(prepared)[0]
    except JitDelegateError as error:
        return _failed(prepared, str(error))


def difference(dtype: str, found: bytes, expected: bytes) -> float:
    """NRMSE of floats; integers and truth values are equal (0) or wrong (infinite)."""
    if dtype == "float32":
        return nrmse(found, expected)
    return 0.0 if found == expected else inf


def _failed(prepared: Prepared, reason: str) -> Row:
    return _row(prepared, None, reason)


def _row(prepared: Prepared, value: float | None, note: str) -> Row:
    return Row(SECTION, prepared.name, prepared.case.group, value, NRMSE, limit=prepared.limit, note=note)
