"""The names of `ai_edge_litert.options`, for code that changes by its import line."""

from __future__ import annotations

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

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from jitdelegate.base import npu_options  # not before: few programs name an NPU

        return getattr(npu_options, name)
