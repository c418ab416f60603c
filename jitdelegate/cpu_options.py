"""The names of `ai_edge_litert.cpu_options`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.flags import CpuKernelMode
from jitdelegate.base.option_groups import CpuOptions

__all__ = ["CpuKernelMode", "CpuOptions"]
