"""The names of `ai_edge_litert.cpu_options`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.litert_options import CpuKernelMode, CpuOptions

__all__ = ["CpuKernelMode", "CpuOptions"]
