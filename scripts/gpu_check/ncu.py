"""Ten kernels under NVIDIA's profiler: which units of the GPU each kept busy."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence

from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.child import run_tool, tool
from scripts.gpu_check.gpu import prepared_here
from scripts.gpu_check.row import Row

SECTION = NCU = "ncu"
KERNELS = 10
PRECISION = "float16"
SECONDS = 85.0
SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy", "MemoryWorkloadAnalysis", "WarpStateStats")
"""Of metrics; the whole output comes back as ncu-networks.csv, or what the bundle is called."""
SHOWN = (
    *("Duration", "Compute (SM) Throughput", "Memory Throughput", "DRAM Throughput", "L2 Cache Throughput"),
    *("Achieved Occupancy", "Theoretical Occupancy", "Waves Per SM", "Registers Per Thread"),
)
Chosen = tuple[Prepared, int]
"""A program and the number of one of its launches."""


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per kernel what SHOWN names; clocks and caches are left as they are in use."""
    profiler = tool(NCU)
    if profiler is None:
        yield Row(SECTION, NCU, "kernels", note="it is not installed")
        return
    kernels = chosen([one for one in prepared_here(bundle, MODEL) if one.precision == PRECISION])
    command = [profiler, "--csv", "--print-units", "base", "--profile-from-start", "off", "--clock-control", "none"]
    command += ["--cache-control", "none", *(word for name in SECTIONS for word in ("--section", name))]
    command += [sys.executable, "-m", "scripts.gpu_check.run_profiled", str(bundle.folder)]
    command += [word for prepared, number in kernels for word in (str(number), prepared.name)]
    status, output = run_tool(command, f"ncu-{bundle.name}.csv", SECONDS)
    found = profiled(output)
    if len(found) < len(kernels):
        words = output.strip().splitlines() or ["no output"]
        ended = f"ended after {SECONDS:.0f} s" if status is None else f"ended with {status}"
        yield Row(SECTION, NCU, "kernels", float(len(found)), note=f"of {len(kernels)}; {ended}: {words[-1][:300]}")
    for (prepared, number), metrics in zip(kernels, found, strict=False):
        yield from _kernel(prepared, number, metrics)


def _kernel(prepared: Prepared, number: int, metrics: Mapping[str, tuple[float, str]]) -> Iterator[Row]:
    subject = f"{prepared.name}: launch {number} {prepared.entry.launches[number][0]}"
    for name in SHOWN:
        if name in metrics:
            value, unit = metrics[name]
            yield Row(SECTION, subject, name, value, note=unit)


def chosen(programs: Sequence[Prepared]) -> list[Chosen]:
    """Of each family the launch that is expected to take longest, in single images and in large batches; then those
    that are expected to take longest at all."""
    launches = [(one, number) for one in programs for number in range(len(one.entry.launches))]
    launches.sort(key=lambda launch: launch[0].entry.launches[launch[1]][1], reverse=True)
    first: dict[tuple[str, bool], Chosen] = {}
    for one, number in launches:
        first.setdefault((one.entry.launches[number][0], one.case.batch > 1), (one, number))
    others = [launch for launch in launches if launch not in first.values()]
    return [*first.values(), *others][:KERNELS]


def profiled(output: str) -> list[dict[str, tuple[float, str]]]:
    """Per profiled kernel, in order, its metrics by name: (value, unit)."""
    lines = output.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[str, dict[str, tuple[float, str]]] = {}
    for row in csv.DictReader(lines[start:]):
        kernel = found.setdefault(row["ID"], {})
        try:
            value = float((row.get("Metric Value") or "").replace(",", ""))
        except ValueError:
            continue  # a text, or a line that is none of the table
        kernel[row["Metric Name"]] = (value, row["Metric Unit"])
    return list(found.values())
