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
    IntelOpenVinoOptions,
    Options,
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
