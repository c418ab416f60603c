"""The constants of a program that is compiled: one buffer, into which each is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from xxhash import xxh3_128, xxh3_128_digest

from jitdelegate.ir.dequantize import Dequantized
from jitdelegate.ir.graph import Tensor
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.shared_pages import unload

LARGE = 1 << 16
"""Bytes of a constant that has its pages for itself, so that other programs of the model can share them."""


def unload_constants(tensors: Iterable[Tensor]) -> None:
    """Let the system take the file's pages of constants that have been packed from the memory of this process."""
    for tensor in tensors:
        source = tensor.integers if isinstance(tensor, Dequantized) else tensor
        base: object = source.data if source is not None and source.is_constant else None
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, memoryview) and base.nbytes >= LARGE:
            unload(base)


@dataclass
class Constants:
    """Constants at multiples of `align` bytes, LARGE ones at whole pages. They may be larger than all else that a
    compilation holds, so each is written straight to its offset. One that is needed again is recognised by what it is
    made of, and one that is equal to another, as rows of a matrix that are stored unchanged, is removed again.

    Attributes:
        content: the bytes; may be appended to.
        large: (first page, pages) of each constant that has its pages for itself, one after another.
    """

    align: int
    content: bytearray = field(default_factory=bytearray)
    offsets: dict[tuple[object, ...], int] = field(default_factory=dict)
    large: list[int] = field(default_factory=list)
    _equal: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _ends_in_large: bool = False

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
        if key not in self.offsets:
            self.offsets[key] = self._append(make, is_large=sum(source.nbytes for source in sources) >= LARGE)
        return self.offsets[key]

    def close(self, spare: int) -> None:
        """Append what code may read beyond the last constant: `spare` bytes, after the last page of a LARGE one."""
        self.content.extend(bytes(-len(self.content) % PAGE * self._ends_in_large + spare))

    def _append(self, make: Callable[[], Iterable[np.ndarray]], *, is_large: bool) -> int:
        end = len(self.content)
        self.content.extend(bytes(-end % (PAGE if is_large or self._ends_in_large else self.align)))
        start = len(self.content)
        for part in make():
            self.content.extend(np.ascontiguousarray(part).data.cast("B"))
        if is_large:
            with memoryview(self.content) as content, content[start:] as made:
                same = self._equal.setdefault((len(made), xxh3_128_digest(made)), start)
            if same != start:
                del self.content[end:]
                return same
            self.large += (start // PAGE, -(-(len(self.content) - start) // PAGE))
        self._ends_in_large = is_large
        return start
