"""Which sections there are, what matters most first, and how long each may take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.row import Row


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


SECTIONS = (
    Section("device", "device_facts", 20),
    Section("correctness", "correctness", 90),
    Section("latency", "latency", 60),
    Section("module load", "module_load", 20),
    Section("warm start", "warm_start", 40),
    Section("side by side, float16", "side_by_side", 220, ("float16",)),
    Section("cold compile", "cold_compile", 70),
    Section("WebGPU", "webgpu", 40),
    Section("side by side, float32", "side_by_side", 150, ("float32",)),
)
BUDGET = 440.0
"""Seconds for all together; what comes last is cut short where those before it took their full time."""
