"""The instruction sets that tests run on."""

from __future__ import annotations

from jitdelegate.base.targets import LEVELS as ROWS
from jitdelegate.targets import host
from jitdelegate.targets.host import levels

LEVELS = ("generic", "x86-64-v3", "x86-64-v4", "aarch64")
"""Those that differ in code for floats."""
RUNNABLE = tuple(each for each in LEVELS if each in levels())
INTEGERS = tuple(each for each in levels() if not ROWS[each].only_for)
"""Those that differ in code for integers."""
PAIRS = "x86-64-v4-bf16"
"""Multiplies pairs of bfloat16; not offered where that is slow, but its code runs there."""
BFLOATS = RUNNABLE
if "x86-64-v4-vbmi" in INTEGERS and "avx512_bf16" in host._flags_of_kernel():
    BFLOATS += (PAIRS,)
"""Those that differ in code for the precision bfloat16."""
