"""The end of a kernel: applies the epilogue to the results and stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue


@dataclass(frozen=True, slots=True)
class Output:
    """An output of pixels and channels.

    Attributes:
        base: pointer to the output, stored as `element`.
        extra: pointers to the epilogue operands.
        pitch: elements between neighbouring pixels.
    """

    code: Code
    epilogue: Epilogue
    element: Element
    base: Value
    extra: Sequence[Value]
    pitch: Value

    def store(
        self, results: Sequence[Value], pixel: Value, channel: Value, at: int = 0, start: Value | None = None
    ) -> None:
        """Applies the epilogue to the results for neighbouring channels of one pixel, from `channel + at` on, and
        stores them.

        Args:
            start: the pixel's first element in memory; without it, pixels are `pitch` elements apart.
        """
        start = pixel * self.pitch if start is None else start
        values = self.applied(results, pixel, channel + at)
        store(self.code, self.element, values, self.base, start + channel + at)

    def applied(self, results: Sequence[Value], pixel: Value, channel: Value) -> list[Value]:
        """The results for neighbouring channels of one pixel, after the epilogue."""
        return self.epilogue.apply(self.code, results, pixel, channel, self.extra)
