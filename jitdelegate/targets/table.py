"""The targets, a row each. A row's name is that of its folder here, of `Options.target` and of `Program.target`."""

from __future__ import annotations

AUTO = "auto"
ROWS = {"cuda": True, "cpu": True, "reference": False, "litert": False}
"""Per target, whether "auto" may choose it; in the order in which it tries them."""
NAMES = (AUTO, *sorted(ROWS))
