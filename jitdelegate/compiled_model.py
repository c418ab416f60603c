"""The names of `ai_edge_litert.compiled_model`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.api.compiled_model import CompiledModel
from jitdelegate.api.environment import Environment, EnvironmentOptions
from jitdelegate.api.tensor_buffer import TensorBuffer
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

if not TYPE_CHECKING:  # few programs name an NPU
    __getattr__ = late_names(__name__, __all__, "jitdelegate.base.npu_options")
