"""The file of NVIDIA's driver."""

from __future__ import annotations

import ctypes

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libcuda.so.1"


def open_library() -> Any:
    """libcuda, for `Driver`.

    Raises:
        DeviceError: libcuda is not installed.
    """
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver was found: {error}") from error
