"""The names of `ai_edge_litert.cpu_kernel_mode`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.base.flags import CpuKernelMode

__all__ = ["CpuKernelMode"]
