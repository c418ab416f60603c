"""The names of `ai_edge_litert.compiled_model`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.api.compiled_model import CompiledModel
from jitdelegate.api.environment import Environment, EnvironmentOptions
from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.base.flags import Accelerator, CpuKernelMode, HardwareAccelerator
from jitdelegate.base.option_groups import CpuOptions, GpuOptions, IntelOpenVinoOptions, Options, QualcommOptions

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
