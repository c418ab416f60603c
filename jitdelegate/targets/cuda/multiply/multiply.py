"""The protocol of a multiply, as walks use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from jitdelegate.targets.cuda.code.device_code import Value
from jitdelegate.targets.cuda.code.output import Held


class Multiply(Protocol):
    """The part of a tile that one thread multiplies.

    Attributes:
        held: the sums of this thread.
    """

    @property
    def held(self) -> Held: ...

    def nothing(self) -> list[Value]:
        """This thread's sums before the first tile."""

    def accumulate(
        self, sums: Sequence[Value], left: Value, right: Value, meanwhile: Callable[[], None] | None = None
    ) -> list[Value]:
        """The sums after the tiles of data and weights at two shared addresses; `meanwhile` writes code that runs
        while the first numbers are loaded."""
