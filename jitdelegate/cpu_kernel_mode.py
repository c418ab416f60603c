"""CpuKernelMode: LiteRT's kinds of kernels for the CPU, as in `ai_edge_litert.cpu_kernel_mode`."""

from __future__ import annotations

import enum


class CpuKernelMode(enum.IntEnum):
    """Values of `CpuOptions.kernel_mode`, which says what they mean here."""

    DELEGATE = 0
    XNNPACK = 0
    REFERENCE = 1
    BUILTIN = 2
