"""The names of `ai_edge_litert.hardware_accelerator`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.flags import Accelerator, HardwareAccelerator

__all__ = ["Accelerator", "HardwareAccelerator"]
