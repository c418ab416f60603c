"""The names of `ai_edge_litert.options`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.litert_options import (
    Accelerator,
    CpuKernelMode,
    CpuOptions,
    GpuOptions,
    HardwareAccelerator,
    IntelOpenVinoOptions,
    Options,
    QualcommOptions,
)

__all__ = [
    "Accelerator",
    "CpuKernelMode",
    "CpuOptions",
    "GpuOptions",
    "HardwareAccelerator",
    "IntelOpenVinoOptions",
    "Options",
    "QualcommOptions",
]
