"""Where NVIDIA's driver is, asked at every start: kept apart, since most machines have none and need not read on."""

from __future__ import annotations

import ctypes
import os

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libcuda.so.1"
DEVICES = "/dev"
DEVICE_NAMES = ("nv", "dxg")
"""How the files of NVIDIA's devices begin: nvidia0, nvmap and nvhost-... on Tegra, dxg in WSL."""


def open_library(*, asked_for: bool = True) -> Any:
    """libcuda, for `Driver`.

    Args:
        asked_for: False looks for a device's file first: searching for a library in vain takes three times as long.
    Raises:
        DeviceError: there is none.
    """
    if not asked_for and not _has_device():
        raise DeviceError(f"no NVIDIA device was found in {DEVICES}")
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver was found: {error}") from error


def _has_device() -> bool:
    try:
        return any(name.startswith(DEVICE_NAMES) for name in os.listdir(DEVICES))
    except OSError:
        return True  # nobody knows
