"""The constants of a program that is compiled: one buffer, into which each is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import unpack
from typing import Any

import numpy as np
from xxhash import xxh3_128, xxh3_128_digest

from jitdelegate.program.known_constants import NO_CONSTANTS
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.shared_pages import LEAST_PAGES, whole_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.known_constants import Known, KnownConstant


LARGE = 1 << 16
"""Bytes of a constant that has its pages for itself, so that other programs of the model can share them."""


@dataclass
class Constants:
    """Constants at multiples of `align` bytes, LARGE ones at whole pages. They may be larger than all else that a
    compilation holds, so each is written straight to its offset. One that is needed again is recognised by what it is
    made of, and one that is equal to another, as rows of a matrix that are stored unchanged, is removed again. One that
    is `known` is not made: its pages are those of another program.

    Attributes:
        known: the constants of other programs, by name.
        content: the bytes, without the `shared` pages; may be appended to.
        sizes: bytes of each constant, by its offset.
        large: (first page, pages) of each constant that has its pages for itself, one after another.
        shared: runs of pages of other programs, as in `Program.shared`.
        named: the names of large constants, as in `Program.named_constants`.
    """

    align: int
    known: Known = field(default_factory=lambda: NO_CONSTANTS)
    content: bytearray = field(default_factory=bytearray)
    offsets: dict[tuple[object, ...], int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    large: list[int] = field(default_factory=list)
    shared: list[tuple[int, int, int, int]] = field(default_factory=list)
    named: list[tuple[int, int, int, int]] = field(default_factory=list)
    _taken: dict[KnownConstant, int] = field(default_factory=dict)
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
        arrangement, digest = (form, *(source.shape for source in sources)), state.digest()
        key = arrangement, digest
        if key not in self.offsets:
            is_large = sum(source.nbytes for source in sources) >= LARGE
            self.offsets[key] = self._add_large(_name(*key), make) if is_large else self._add_small(make)
        return self.offsets[key]

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return whole_bytes(self.content, self.shared)

    def read(self, offset: int) -> bytes | None:
        """The bytes of the constant at this offset; None if another program stores them."""
        lacking = 0
        for first, _, _, pages in self.shared:
            if first * PAGE <= offset < (first + pages) * PAGE:
                return None
            lacking += PAGE * pages * (first * PAGE < offset)
        return bytes(self.content[offset - lacking : offset - lacking + self.sizes[offset]])

    def of_program(self) -> dict[str, Any]:
        """The fields that a Program has too, by name."""
        return {
            "weights": self.content,
            "large_constants": tuple(self.large),
            "shared": tuple(self.shared),
            "named_constants": tuple(self.named),
        }

    def close(self, spare: int) -> None:
        """Append what code may read beyond the last constant: `spare` bytes, after the last page of a LARGE one."""
        self.content.extend(bytes(-len(self.content) % PAGE * self._ends_in_large + spare))

    def _add_small(self, make: Callable[[], Iterable[np.ndarray]]) -> int:
        self.content.extend(bytes(-len(self.content) % (PAGE if self._ends_in_large else self.align)))
        start, self._ends_in_large = self.end, False
        self._extend(make)
        self.sizes[start] = self.end - start
        return start

    def _add_large(self, name: tuple[int, int], make: Callable[[], Iterable[np.ndarray]]) -> int:
        """The offset of a constant that is made, or of the known one with its name."""
        before, known = len(self.content), self.known.get(name)
        self.content.extend(bytes(-before % PAGE))
        start, first = self.end, len(self.content)
        if known is not None:
            same, nbytes = self._taken.setdefault(known, start), known[2]
        else:
            self._extend(make)
            with memoryview(self.content) as content, content[first:] as made:
                nbytes = len(made)
                same = self._equal.setdefault((nbytes, xxh3_128_digest(made)), start)
        pages = -(-nbytes // PAGE)
        if pages >= LEAST_PAGES:
            self.named.append((*name, same // PAGE, nbytes))
        if same != start:
            del self.content[before:]
            return same
        if known is not None:
            self._share(start // PAGE, *known[:2], pages)
        self.sizes[start] = nbytes
        self.large += (start // PAGE, pages)
        self._ends_in_large = True
        return start

    def _extend(self, make: Callable[[], Iterable[np.ndarray]]) -> None:
        for part in make():
            self.content.extend(np.ascontiguousarray(part).data.cast("B"))

    def _share(self, first: int, source: int, there: int, pages: int) -> None:
        """Take pages of another program, in one run with those before if they continue these."""
        if self.shared:
            start, number, at, length = self.shared[-1]
            if (start + length, number, at + length) == (first, source, there):
                self.shared[-1] = start, number, at, length + pages
                return
        self.shared.append((first, source, there, pages))


def _name(arrangement: object, digest: bytes) -> tuple[int, int]:
    """The name of what is made of sources with this digest, as two halves; equal in every process."""
    first, second = unpack("<qq", xxh3_128_digest(repr(arrangement).encode() + digest))
    return first, second
