"""Copies tiles of matrices computed at run time to shared memory, as they lie: lines of neighbours in memory.

Where the GPU has asynchronous copies and memory is aligned, `begin` starts them. Elsewhere `begin` loads to registers,
while another tile is worked on, and `finish` converts and stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, joined, load_where, pack
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, copy_async
from jitdelegate.targets.maths.cast import cast

FEWEST_BYTES = 4
"""Fewest bytes of an asynchronous copy: a word."""
WORDS = CHUNK // FEWEST_BYTES
"""Words of a chunk."""


@dataclass(frozen=True, slots=True)
class LineTile:
    """A tile of `lines` lines of `run` elements, each a whole number of 16-byte chunks.

    Between two lines lie 16 bytes, and a line is an even number of chunks: the same chunk of eight neighbouring lines
    lies in different banks of shared memory.

    Attributes:
        source: how elements are stored in device memory; target: in shared memory.
        width: elements of one access to device memory; it divides the number of elements of a line.
        threads: threads that copy.
        is_async: whether the GPU copies by itself.
    """

    source: Element
    target: Element
    lines: int
    run: int
    width: int
    threads: int
    is_async: bool

    @property
    def unit(self) -> int:
        """Elements of a chunk."""
        return CHUNK // self.target.nbytes

    @property
    def units(self) -> int:
        """Chunks of the tile."""
        return self.lines * self.across

    @property
    def across(self) -> int:
        """Chunks of a line."""
        return self.run // self.unit

    @property
    def is_regular(self) -> bool:
        """Whether all chunks of a thread are at the same position of their lines."""
        return self.threads % self.across == 0

    @property
    def pitch(self) -> int:
        """Bytes between lines in shared memory."""
        return self.run * self.target.nbytes + CHUNK

    @property
    def nbytes(self) -> int:
        return self.lines * self.pitch

    @property
    def rounds(self) -> int:
        """Chunks of a thread."""
        return -(-self.units // self.threads)

    @property
    def held(self) -> int:
        """Registers between `begin` and `finish`."""
        if self.copies:
            return 0
        return self.rounds * (self.unit if self.converts or self.access * self.source.nbytes < FEWEST_BYTES else WORDS)

    @property
    def offset_registers(self) -> int:
        """Registers for the places of a thread's chunks."""
        return self.rounds * (1 if self.is_regular else 4)

    @property
    def access(self) -> int:
        """Elements of an access."""
        return min(self.width, self.unit)

    @property
    def converts(self) -> bool:
        """Whether elements change their type on the way."""
        return self.source is not self.target

    @property
    def copies(self) -> bool:
        """Whether asynchronous copies are used: elements stay as they are, and accesses are wide enough."""
        return self.is_async and not self.converts and self.access * self.source.nbytes >= FEWEST_BYTES


@dataclass(frozen=True, slots=True)
class Lines:
    """A matrix in device memory.

    Attributes:
        start: index of its first element, in elements; pitch: elements between lines.
        count, length: number of lines, and of elements in each.
        zero: what is subtracted from elements that become int32; None to subtract nothing.
    """

    data: Value
    start: Value
    pitch: Value
    count: Value
    length: Value
    zero: Value | None = None


class LineLoader:
    """A thread's part of each tile: every `threads`-th chunk.

    Args:
        thread: number of this thread among those that copy.
        shared: shared address of the tile.
    """

    def __init__(self, code: Code, tile: LineTile, lines: Lines, thread: Value, shared: Value) -> None:
        self.code, self.tile, self.lines, self.thread = code, tile, lines, thread
        self.positions = [self._position(number) for number in range(tile.rounds)]
        self.missing = tile.units % tile.threads  # chunks of the last round, 0 where it is complete
        self.starts = [lines.start + line * lines.pitch + at for line, at in self.positions]
        self.to = [shared + line * tile.pitch + at * tile.target.nbytes for line, at in self.positions]

    def _position(self, number: int) -> tuple[Value, Value]:
        """The line and the first element of a thread's chunk."""
        tile, across = self.tile, self.tile.across
        if tile.is_regular:
            return self.thread // across + number * (tile.threads // across), self.thread % across * tile.unit
        chunk = self.thread + number * tile.threads
        return chunk // across, chunk % across * tile.unit

    def begin(self, line: Value, at: Value, slot: Value | int = 0) -> list[Value]:
        """Begins to load the tile from line `line` and element `at` of each line on; outside the matrix are zeros.
        Returns what `finish` takes; `slot` are bytes from the tile's first slot to the one that it is copied to."""
        tile, passed, values = self.tile, line * self.lines.pitch + at, list[Value]()
        for number, (own, first) in enumerate(self.positions):
            exists = line + own < self.lines.count
            for step in range(0, tile.unit, tile.access):
                inside = exists & (at + first + step < self.lines.length)
                index = self.starts[number] + passed + step
                if tile.copies:
                    with self._present(number):
                        self._copy(self.to[number] + slot + step * tile.target.nbytes, index, inside)
                else:
                    values += self._load(
                        inside & (self.thread < self.missing) if self._is_last(number) else inside, index
                    )
        return values

    def _copy(self, to: Value, index: Value, inside: Value) -> None:
        nbytes = self.tile.source.nbytes
        source = self.code.advanced(self.lines.data, index, nbytes)
        copy_async(self.code, to, source, self.tile.access * nbytes, inside=inside)

    def _load(self, inside: Value, index: Value) -> list[Value]:
        """The elements of one access: numbers if they are to be converted, else whole words or single halves."""
        tile = self.tile
        if tile.converts:
            return load_where(self.code, tile.source, inside, self.lines.data, index, tile.access)
        nbytes = tile.access * tile.source.nbytes
        bits = 8 * min(nbytes, FEWEST_BYTES)
        words = max(nbytes // FEWEST_BYTES, 1)
        return self.code.load_where(inside, self.lines.data, index * tile.source.nbytes, words, bits)

    def finish(self, loaded: Sequence[Value], slot: Value | int = 0) -> None:
        """Stores what `begin` loaded. Copies have to be waited for besides."""
        count = len(loaded) // len(self.positions)
        for number, at in enumerate(range(0, len(loaded), count or 1)):
            with self._present(number):
                self.code.store(self._words(loaded[at : at + count]), self.to[number] + slot, 0)

    def _words(self, values: Sequence[Value]) -> Sequence[Value]:
        if self.tile.target is Element.INT32:
            wide = [cast(self.code, value, self.tile.source.dtype, "int32") for value in values]
            return wide if self.lines.zero is None else [value - self.lines.zero for value in wide]
        if self.tile.converts and self.tile.target is not Element.FLOAT32:
            return pack(self.code, self.tile.target, values)
        if len(values) == WORDS:
            return values
        return [joined(self.code, pair, FEWEST_BYTES) for pair in zip(values[::2], values[1::2], strict=True)]

    def _is_last(self, number: int) -> bool:
        return bool(self.missing) and number == len(self.positions) - 1

    @contextmanager
    def _present(self, number: int) -> Iterator[None]:
        if not self._is_last(number):
            yield
            return
        with self.code.when(self.thread < self.missing):
            yield
