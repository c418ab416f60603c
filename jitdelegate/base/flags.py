"""LiteRT's enumerations: HardwareAccelerator and CpuKernelMode. Numbers do as well; enum is not loaded without need."""

from __future__ import annotations

import enum

from jitdelegate.base import targets as table


class HardwareAccelerator(enum.IntFlag):
    """Flags of hardware; `Accelerator` is the same.

    Attributes:
        CPU: code for this CPU; what is not compiled runs on LiteRT.
        GPU: code for an NVIDIA GPU. Alone, it refuses a model that is not compiled whole; GPU | CPU takes what there
            is.
        NPU: nothing runs there: alone it is refused, and NPU | CPU runs on the CPU with a warning.
    """

    CPU = table.CPU
    GPU = table.GPU
    NPU = table.NPU


Accelerator = HardwareAccelerator


class CpuKernelMode(enum.IntEnum):
    """Values of `CpuOptions.kernel_mode`, which says what they mean here."""

    DELEGATE = 0
    XNNPACK = 0
    REFERENCE = 1
    BUILTIN = 2
