"""Writes measured constants to the package, for the cost model: plans made by them have another digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import isfinite
from pathlib import Path

from jitdelegate.errors import ProgramError
from jitdelegate.targets.cuda.code.gpu import Costs
from jitdelegate.targets.cuda.code.tuned import measured
from scripts import update_generator_digest
from scripts.gpu_check.constants import SECTION
from scripts.gpu_check.row import Row

TABLE = Path(measured.__file__)
TEXT = '"""By architecture ("sm_90"), values of `gpu.Costs`."""\n'


def apply(rows: Sequence[Row], table: Path = TABLE) -> None:
    """Write what was measured over what the table has of other architectures, and update the generators' digest.

    Raises:
        ProgramError: the results have no constants, or some that no GPU can have.
    """
    known = {field.name for field in fields(Costs)}
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.section == SECTION and row.subject in known and row.value is not None:
            if not isfinite(row.value) or (row.value <= 0 and row.subject != "dependent_edge"):
                raise ProgramError(f"{row.subject} of {row.quantity} is {row.value:g}, expected more than 0")
            found.setdefault(row.quantity, {})[row.subject] = float(f"{row.value:.4g}")
            print(f"{row.quantity} {row.subject}: {row.predicted:g} -> {row.value:.4g}")
    if not found:
        raise ProgramError("the results have no measured constants")
    write_table({**measured.MEASURED, **found}, table)
    update_generator_digest.main([])


def write_table(values: Mapping[str, Mapping[str, float]], table: Path) -> None:
    """Write `measured.py` with these values."""
    head, start, _ = table.read_text().partition("MEASURED: Mapping[str, Mapping[str, float]] = ")
    lines = ["{"]
    for architecture, costs in sorted(values.items()):
        lines += [
            f'    "{architecture}": {{',
            *(f'        "{name}": {value},' for name, value in costs.items()),
            "    },",
        ]
    table.write_text("\n".join([f"{head}{start}{lines[0]}", *lines[1:], "}", TEXT]))
