"""Every family of kernels under compute-sanitizer: races, barriers that not all reach, accesses out of bounds, and
reads of what nothing wrote."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from scripts.gpu_check.bundle import FORM, Bundle, Prepared
from scripts.gpu_check.child import run_tool, tool
from scripts.gpu_check.gpu import prepared_here
from scripts.gpu_check.row import Row
from scripts.gpu_check.run_once import DONE

SECTION = "sanitizer"
SANITIZER = "compute-sanitizer"
TOOLS: Mapping[str, float] = {"racecheck": 45.0, "synccheck": 25.0, "memcheck": 35.0, "initcheck": 25.0}
"""The seconds for each."""
WORKING = 0.75
"""The share of them after which no further program begins, so that the tool can sum up what it found."""
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards?)\b(?! were not printed)")
FINDING = re.compile(r"^========= +(?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)(\S.*)$", re.MULTILINE)


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
        watched = [sanitizer, "--tool", name, *command, "--seconds", str(WORKING * seconds)]
        status, output = run_tool(watched, f"sanitizer-{name}.log", seconds)
        ended = f"ended after {seconds:.0f} s" if status is None else f"failed with {status}" if status else ""
        yield _row(name, ended, output, len(programs))


def chosen(programs: Sequence[Prepared]) -> list[Prepared]:
    """For each family of kernels and precision the program that has it and does the least, then the one of a few
    operators that does the most: its loops turn, and it has several blocks."""
    least = sorted(programs, key=lambda one: sum(cycles for _, cycles in one.entry.launches))
    most = [one for one in reversed(least) if one.case.group == FORM]
    found: dict[str, Prepared] = {}
    for ranked in (least, most):
        first: dict[tuple[str, str], Prepared] = {}
        for one in ranked:
            for family, _ in one.entry.launches:
                first.setdefault((family, one.precision), one)
        found.update({one.name: one for one in first.values()})
    return list(found.values())


def _row(name: str, ended: str, output: str, count: int) -> Row:
    """
    Args:
        ended: how the tool ended; "" for well.
        count: of programs.
    """
    summaries, words, done = SUMMARY.findall(output), FINDING.findall(output), output.count(DONE)
    errors = sum(map(int, summaries))
    is_clean = bool(summaries) and not ended and done == count  # a process that dies has few errors, too
    value = float(errors) if errors or is_clean else None
    last = output.strip().splitlines()[-1:] if ended and not words else []
    parts = [f"{done} of {count} programs", ended, " ".join([*words[:2], *last])[:300]]
    return Row(SECTION, name, "errors", value, limit=0.0, note=", ".join(filter(None, parts)))
