"""A launch of every family under compute-sanitizer: races, barriers that not all reach, accesses out of bounds, and
reads of what nothing wrote."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from scripts.gpu_check.bundle import Bundle, Prepared
from scripts.gpu_check.child import run_tool, tool
from scripts.gpu_check.gpu import prepared_here
from scripts.gpu_check.row import Row
from scripts.gpu_check.run_once import DONE

SECTION = "sanitizer"
SANITIZER = "compute-sanitizer"
TOOLS: Mapping[str, float] = {"racecheck": 45.0, "synccheck": 25.0, "memcheck": 35.0, "initcheck": 25.0}
"""The seconds for each."""
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
FINDING = re.compile(r"^=========\s+(?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)(\S.*)$", re.MULTILINE)


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per tool how many errors it found, and the first one's words."""
    sanitizer = tool(SANITIZER)
    if sanitizer is None:
        note = f"{SANITIZER} is neither on PATH nor in a CUDA toolkit: races, barriers and accesses are not checked"
        yield Row(SECTION, SANITIZER, "errors", limit=0.0, note=note)
        return
    programs = chosen(list(prepared_here(bundle)))
    command = [sys.executable, "-m", "scripts.gpu_check.run_once", str(bundle.folder), *(one.name for one in programs)]
    for name, seconds in TOOLS.items():
        status, output = run_tool([sanitizer, "--tool", name, *command], f"sanitizer-{name}.log", seconds)
        ended = f"ended after {seconds:.0f} s" if status is None else f"failed with {status}" if status else ""
        yield _row(name, ended, output, len(programs))


def chosen(programs: Sequence[Prepared]) -> list[Prepared]:
    """For each family of kernels the program that has it and does the least."""
    found: dict[str, Prepared] = {}
    for one in sorted(programs, key=lambda one: sum(cycles for _, cycles in one.entry.launches)):
        for family, _ in one.entry.launches:
            found.setdefault(family, one)
    return list({one.name: one for one in found.values()}.values())


def _row(name: str, ended: str, output: str, count: int) -> Row:
    """
    Args:
        ended: how the tool ended; "" for well.
        count: of programs.
    """
    summaries, words = SUMMARY.findall(output), FINDING.findall(output)
    errors = sum(int(number) for pair in summaries for number in pair if number)
    value = float(errors) if summaries else None
    last = output.strip().splitlines()[-1:] if ended and not words else []
    parts = [f"{output.count(DONE)} of {count} programs", ended, " ".join([*words[:2], *last])[:300]]
    return Row(SECTION, name, "errors", value, limit=0.0, note=", ".join(filter(None, parts)))
