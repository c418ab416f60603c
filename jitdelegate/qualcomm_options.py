"""The names of `ai_edge_litert.qualcomm_options`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.npu_options import (
    QualcommBackend,
    QualcommDspPerformanceMode,
    QualcommGraphIOTensorMemType,
    QualcommGraphPriority,
    QualcommHtpPerformanceMode,
    QualcommLogLevel,
    QualcommOptimizationLevel,
    QualcommOptions,
    QualcommProfiling,
)

__all__ = [
    "QualcommBackend",
    "QualcommDspPerformanceMode",
    "QualcommGraphIOTensorMemType",
    "QualcommGraphPriority",
    "QualcommHtpPerformanceMode",
    "QualcommLogLevel",
    "QualcommOptimizationLevel",
    "QualcommOptions",
    "QualcommProfiling",
]
