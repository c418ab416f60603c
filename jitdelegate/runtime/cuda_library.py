"""Where NVIDIA's driver is, asked at every start: kept apart, since most machines have none and need not read on."""

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
        DeviceError: there is none.
    """
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver was found: {error}") from error
