"""The constants of a program that is compiled: one buffer, into which each is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from xxhash import xxh3_128


@dataclass
class Constants:
    """Constants at multiples of `align` bytes. They may be larger than all else that a compilation holds, so each is
    written straight to its place, and one that is needed again is recognised by what it is made of.

    Attributes:
        content: the bytes; may be appended to.
    """

    align: int
    content: bytearray = field(default_factory=bytearray)
    places: dict[tuple[object, ...], int] = field(default_factory=dict)

    def add(self, array: np.ndarray) -> int:
        """Add the row-major bytes of an array; returns their offset."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self.pack("bytes", [data], lambda: [data])

    def pack(self, form: object, sources: Sequence[np.ndarray], make: Callable[[], Iterable[np.ndarray]]) -> int:
        """Add what is made of `sources`; returns the offset of its bytes.

        Args:
            form: the arrangement, and all that it depends on besides the sources.
            make: gives arrays that are appended one after the other; a large one costs memory, many cost none.
        """
        state = xxh3_128()
        for source in sources:
            state.update(np.ascontiguousarray(source).data)
        key = form, *(source.shape for source in sources), state.digest()
        if key not in self.places:
            self.content.extend(bytes(-len(self.content) % self.align))
            self.places[key] = len(self.content)
            for part in make():
                self.content.extend(np.ascontiguousarray(part).data.cast("B"))
        return self.places[key]
