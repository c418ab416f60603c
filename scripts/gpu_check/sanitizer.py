"""Six kernels under compute-sanitizer: accesses out of bounds, races in shared memory, barriers that not all reach."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from scripts.gpu_check.bundle import FORM, Bundle, Prepared
from scripts.gpu_check.child import run_tool, tool
from scripts.gpu_check.gpu import prepared_here
from scripts.gpu_check.row import Row

SECTION = "sanitizer"
SANITIZER = "compute-sanitizer"
FAMILIES = ("contract_mma", "contract_ffma", "matmul_mma", "depthwise", "reduce", "softmax")
"""Of kernels that are looked at: they copy asynchronously, multiply matrices, shuffle and meet at barriers."""
TOOLS = ("memcheck", "racecheck", "synccheck")
SECONDS = 40.0
"""For one of the tools."""
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per tool how many errors it found."""
    sanitizer = tool(SANITIZER)
    if sanitizer is None:
        yield Row(SECTION, SANITIZER, "errors", note="it is not installed")
        return
    programs = chosen(list(prepared_here(bundle, FORM)))
    command = [sys.executable, "-m", "scripts.gpu_check.run_once", str(bundle.folder), *(one.name for one in programs)]
    for name in TOOLS:
        status, output = run_tool([sanitizer, "--tool", name, *command], f"sanitizer-{name}.log", SECONDS)
        yield _row(name, status, output, len(programs))


def chosen(programs: list[Prepared]) -> list[Prepared]:
    """For each of FAMILIES the program that has it and does the least."""
    found: dict[str, Prepared] = {}
    for family in FAMILIES:
        usable = [one for one in programs if any(family == name for name, _ in one.entry.launches)]
        if usable:
            least = min(usable, key=lambda one: sum(cycles for _, cycles in one.entry.launches))
            found[least.name] = least
    return list(found.values())


def _row(name: str, status: int | None, output: str, count: int) -> Row:
    summaries = SUMMARY.findall(output)
    words = output.strip().splitlines() or ["no output"]
    if not summaries:
        ended = f"ended after {SECONDS:.0f} s" if status is None else f"failed with {status}"
        return Row(SECTION, name, "errors", limit=0.0, note=f"{ended}: {words[-1][:300]}")
    errors = sum(int(number) for pair in summaries for number in pair if number)
    note = f"{count} programs" if status == 0 else f"{count} programs, failed with {status}: {words[-1][:200]}"
    return Row(SECTION, name, "errors", float(errors), limit=0.0, note=note)
