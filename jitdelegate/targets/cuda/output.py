"""The end of a kernel: applies the epilogue to the results and stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import Element, store
from jitdelegate.targets.cuda.epilogue import Epilogue


@dataclass(frozen=True, slots=True)
class Output:
    """An output of pixels and channels.

    Attributes:
        base: pointer to the output, stored as `element`.
        extra: pointers to the epilogue operands.
        channels: channels of a pixel.
    """

    code: Code
    epilogue: Epilogue
    element: Element
    base: Value
    extra: Sequence[Value]
    channels: Value

    def store(
        self, results: Sequence[Value], pixel: Value, channel: Value, at: int = 0, start: Value | None = None
    ) -> None:
        """Applies the epilogue to the results for neighbouring channels of one pixel, from `channel + at` on, and
        stores them.

        Args:
            start: the pixel's first element in memory; without it, pixels are dense.
        """
        start = pixel * self.channels if start is None else start
        values = self.epilogue.apply(self.code, results, pixel, channel + at, self.channels, self.extra)
        store(self.code, self.element, values, self.base, start + channel + at)
