"""The names of `ai_edge_litert.gpu_options`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.option_groups import GpuOptions

__all__ = ["GpuOptions"]
