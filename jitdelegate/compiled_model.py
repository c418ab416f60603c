"""The names of `ai_edge_litert.compiled_model`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.api.compiled_model import CompiledModel
from jitdelegate.api.environment import Environment, EnvironmentOptions
from jitdelegate.api.tensor_buffer import TensorBuffer
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
        IntelOpenVinoOptions,
        QualcommOptions,
    )

__all__ = [
    "Accelerator",
    "CompiledModel",
    "CpuKernelMode",
    "CpuOptions",
    "Environment",
    "EnvironmentOptions",
    "GpuOptions",
    "HardwareAccelerator",
    "IntelOpenVinoOptions",
    "Options",
    "QualcommOptions",
    "TensorBuffer",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from jitdelegate.base import npu_options  # not before: few programs name an NPU

        return getattr(npu_options, name)
