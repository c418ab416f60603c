"""The instruction sets that tests run on."""

from __future__ import annotations

from jitdelegate.targets.host import levels

LEVELS = ("generic", "x86-64-v3", "x86-64-v4")
"""Those that differ in code for floats."""
RUNNABLE = tuple(each for each in LEVELS if each in levels())
INTEGERS = levels()
"""Those that differ in code for integers."""
