"""The list of sections, their time limits, and the sections of each command, the most important first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from scripts.gpu_check.bundle import BATCHES, Bundle
from scripts.gpu_check.row import Row
from scripts.gpu_check.side_by_side import COMPILED, COMPILED_GRAPH, QUICK, section_of


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the check.

    Attributes:
        name: in the results.
        module: of this package; its `rows(bundle, *arguments)` yields what it finds.
        seconds: after which it is ended; what it found until then counts.
    """

    name: str
    module: str
    seconds: float
    arguments: tuple[str, ...] = ()

    def rows(self, bundle: Bundle) -> Iterator[Row]:
        """What it finds, as it finds it."""
        found: Iterator[Row] = import_module(f"scripts.gpu_check.{self.module}").rows(bundle, *self.arguments)
        return found


BUDGET = 520.0
"""Seconds for all sections of a command; a machine that ends commands after ten minutes ends none of them."""
DEVICE = Section("device", "device_facts", 30)
WEIGHTS = Section("weights", "restore", 40)
"""Every command begins with these two."""
PEERS: Mapping[str, tuple[Section, ...]] = {
    precision: tuple(
        Section(
            section_of(precision, batch), "side_by_side", seconds, (precision, str(batch), COMPILED_GRAPH, COMPILED)
        )
        for batch, seconds in zip(BATCHES, (190, 130, 130), strict=True)
    )
    for precision in ("float16", "tf32", "float32")
}
"""In this order: the second side finds what the first one's tuning found."""
RUNS: Mapping[str, tuple[Section, ...]] = {
    "first": (
        Section("sanitizer", "sanitizer", 135),
        Section("correctness", "correctness", 45),
        Section("orders", "orders", 115, ("100",)),
        Section("constants", "constants", 25),
        Section("CompiledModel", "compiled_models", 20),
        Section("latency", "latency", 35),
        Section(section_of("float16", 1), "side_by_side", 75, ("float16", "1", QUICK)),
    ),
    "orders": (Section("orders", "orders", 430),),
    "networks": (
        Section("correctness", "correctness", 90),
        Section("orders", "orders", 160),
        Section("constants", "constants", 40),
        Section("latency", "latency", 80),
        Section("launches", "launches", 80),
    ),
    **PEERS,
    "start": (Section("warm start", "warm_start", 90),),
}
"""By the name of a command, what it runs after DEVICE and WEIGHTS."""
_ALL = sorted((DEVICE, WEIGHTS, *(section for run in RUNS.values() for section in run)), key=lambda one: one.seconds)
SECTIONS: Mapping[str, Section] = {section.name: section for section in _ALL}
"""By name, each with the most time that a command gives it."""


def seconds_of(sections: tuple[Section, ...]) -> float:
    """The most that they take together, with DEVICE and WEIGHTS before them."""
    return sum(section.seconds for section in (DEVICE, WEIGHTS, *sections))
