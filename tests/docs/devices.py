"""A camera and a microphone in place of those that guides use: modules named cv2 and sounddevice."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any

import numpy as np

RATE = 16000


def camera(frame: np.ndarray) -> ModuleType:
    """cv2, whose camera sees one picture for ever; `frame` is u8[H,W,3] in RGB."""
    module: Any = ModuleType("cv2")
    module.VideoCapture = lambda source: SimpleNamespace(
        read=lambda: (True, frame[:, :, ::-1].copy()), release=lambda: None
    )
    return module  # type: ignore[no-any-return]


def microphone(sound: np.ndarray) -> ModuleType:
    """sounddevice, whose microphone hears f32[samples] of 16,000 a second, and silence after it."""

    class InputStream:
        def __init__(self, *, samplerate: int, channels: int, dtype: str, blocksize: int, callback: Callable[..., Any]):
            assert (samplerate, channels, dtype) == (RATE, 1, "float32")
            self._size, self._callback = blocksize, callback

        def __enter__(self) -> InputStream:
            heard = np.concatenate([sound, np.zeros(20 * self._size, np.float32)]).astype(np.float32)
            for start in range(0, len(heard) - self._size + 1, self._size):
                self._callback(heard[start : start + self._size, None], self._size, None, None)
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            pass

    module: Any = ModuleType("sounddevice")
    module.InputStream = InputStream
    return module  # type: ignore[no-any-return]
