"""The status word of a session's runs, which kernels write only where a run is refused."""

from __future__ import annotations

import ctypes

from jitdelegate.runtime.status import refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cuda.driver import Driver

_WORD = 8
_SLOTS = 1024
"""More than requests are on their way."""


class CudaStatus:
    """The word lies in pinned memory of the host that kernels reach, so that a run which is not refused costs nothing;
    where the driver lets kernels reach none, it lies on the GPU, and every run copies it.

    Attributes:
        address: of the word, for kernels.
    """

    __slots__ = ("_driver", "_is_apart", "_program", "_taken", "_words", "address")

    def __init__(
        self, program: Program, driver: Driver, own: Callable[[Any, Callable[[Any], None]], Any], stream: int
    ) -> None:
        """
        Args:
            own: takes a handle and how to release it.
            stream: the one in which all runs are.
        Raises:
            DeviceError: out of memory.
        """
        self._program, self._driver = program, driver
        room = own(driver.allocate_pinned(_WORD * (1 + _SLOTS)), driver.free_pinned)
        ctypes.memset(room, 0, _WORD * (1 + _SLOTS))
        self._words: Any = (ctypes.c_int64 * (1 + _SLOTS)).from_address(room)  # the word, then those of requests
        self._taken = 0
        self.address: int = driver.mapped(room)
        self._is_apart = not self.address
        if self._is_apart:
            self.address = own(driver.allocate(_WORD), driver.free)
            driver.clear(self.address, _WORD, stream)

    def enqueue(self, stream: int) -> None:
        """What a run has at its end."""
        if self._is_apart:
            self._driver.download(ctypes.addressof(self._words), self.address, _WORD, stream)

    def check(self, stream: int) -> None:
        """
        Raises:
            RefusedValueError: the run that was waited for is refused.
        """
        word = self._words[0]
        if word:
            self.forget(stream)
            raise refusal(self._program, word)

    def forget(self, stream: int) -> None:
        """Let the next run begin with 0; nothing is in the stream."""
        self._words[0] = 0
        if self._is_apart:
            self._driver.clear(self.address, _WORD, stream)

    def take(self, stream: int) -> Callable[[], None]:
        """Enqueue that the word of the run before is kept for its request, and is 0 for the next run; the answer raises
        as `check`, once this has been waited for."""
        slot = 1 + self._taken % _SLOTS
        self._taken += 1
        self._driver.download(ctypes.addressof(self._words) + slot * _WORD, self.address, _WORD, stream)
        self._driver.clear(self.address, _WORD, stream)

        def check() -> None:
            if self._words[slot]:
                raise refusal(self._program, self._words[slot])

        return check
