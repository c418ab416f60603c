"""The names of `ai_edge_litert.options`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.late_names import late_names
from jitdelegate.base.litert_options import (
    Accelerator,
    CpuKernelMode,
    CpuOptions,
    GpuOptions,
    HardwareAccelerator,
    Options,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.base.npu_options import (
        IntelOpenVinoGraphBackend,
        IntelOpenVinoOptions,
        IntelOpenVinoPerformanceMode,
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
    "Accelerator",
    "CpuKernelMode",
    "CpuOptions",
    "GpuOptions",
    "HardwareAccelerator",
    "IntelOpenVinoGraphBackend",
    "IntelOpenVinoOptions",
    "IntelOpenVinoPerformanceMode",
    "Options",
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

if not TYPE_CHECKING:  # few programs name an NPU
    __getattr__ = late_names(__name__, __all__, "jitdelegate.base.npu_options")
