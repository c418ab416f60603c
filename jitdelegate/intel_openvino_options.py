"""The names of `ai_edge_litert.intel_openvino_options`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.npu_options import (
    IntelOpenVinoGraphBackend,
    IntelOpenVinoOptions,
    IntelOpenVinoPerformanceMode,
)

__all__ = [
    "IntelOpenVinoGraphBackend",
    "IntelOpenVinoOptions",
    "IntelOpenVinoPerformanceMode",
]
