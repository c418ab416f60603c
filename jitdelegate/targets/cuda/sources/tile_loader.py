"""Loads one thread's part of each tile of a contraction: chunks of data, found by the table, and chunks of weights.

On GPUs with asynchronous copies, `copy` begins them. On others, `fetch` loads a tile to registers while another tile is
multiplied, and `put` stores it in shared memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from jitdelegate.targets.cuda.code.device_code import I16, I32, Code, Value
from jitdelegate.targets.cuda.code.element import WORD, Element, load_where, pack
from jitdelegate.targets.cuda.code.epilogue import load_run
from jitdelegate.targets.cuda.code.narrow_integers import floats_of_nibbles
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, copy_async
from jitdelegate.targets.cuda.sources.pixel_gather import PixelGather, PixelRow, TableEntry
from jitdelegate.targets.maths.cast import cast

Chunks = list[list[Value]]
"""The values that `fetch` loads: each list is 16 bytes, or fewer for data."""


class DataLoader(ABC):
    """A thread's part of each tile of data: some rows of some neighbouring chunks of the table ("units").

    Args:
        source: element type of data.
        rows, units: size of a tile.
        unit_bytes: bytes of a unit in shared memory.
        in_rows: whether neighbouring threads have neighbouring units of a row. Otherwise they have neighbouring rows of
            the same units, so that a thread fills whole 16-byte chunks of shared memory.
        halo: pointer to 16 bytes of the value of pixels outside the image; None for zeros.
    """

    def __init__(
        self,
        code: Code,
        gather: PixelGather,
        source: Element,
        data: Value,
        thread: Value,
        threads: int,
        rows: int,
        units: int,
        unit_bytes: int,
        *,
        in_rows: bool,
        halo: Value | None = None,
    ) -> None:
        self.code, self.gather, self.source, self.data, self.halo = code, gather, source, data, halo
        self.units, self.unit_bytes = units, unit_bytes
        if in_rows:
            self.pitch, self.own = threads // units, 1
            self.row, self.unit = thread // units, thread % units
        else:
            self.pitch, self.own = rows, units * rows // threads
            self.row, self.unit = thread % rows, thread // rows * self.own
        self.places = range(0, rows, self.pitch)
        assert rows % self.pitch == 0

    def rows(self, first: Value, channel: Value) -> list[PixelRow]:
        """The pixels of this thread's rows; `first` is the tile's first pixel."""
        return [self.gather.row(first + self.row + at, channel) for at in self.places]

    def entries(self, tile: Value) -> list[TableEntry]:
        """The table's entries for this thread's units of a tile of K."""
        return self.gather.entries(tile * self.units + self.unit, self.own)

    def copy(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry], slot: Value) -> None:
        """Begins to copy this thread's part of a tile to the shared address `slot`."""
        for number, entry in enumerate(entries):
            tap = self.code.advanced(self.data, entry.offset, self.source.nbytes)
            for at, row in enumerate(rows):
                to = slot + self.place(at, number * self.unit_bytes)
                begin = self.code.advanced(tap, row.element, self.source.nbytes)
                inside = self.gather.is_inside(row, entry)
                copy_async(self.code, to, begin, self.unit_bytes, inside=inside, halo=self.halo)

    @abstractmethod
    def place(self, at: int, nbytes: int) -> Value:
        """Offset from the tile's start, in bytes: this thread's row number `at`, `nbytes` after its first unit."""

    @abstractmethod
    def fetch(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry]) -> Chunks:
        """This thread's part of a tile, in the form that shared memory holds."""

    def put(self, chunks: Chunks, slot: Value) -> None:
        """Stores fetched chunks to the tile at the shared address `slot`."""
        each = max(self.own * self.unit_bytes // CHUNK, 1)
        for at, chunk in enumerate(chunks):
            self.code.store(chunk, slot, self.place(at // each, at % each * CHUNK))


class WeightLoader:
    """A thread's part of each tile of weights: every `threads`-th 16-byte chunk of shared memory.

    Args:
        first_tile: number of the first tile among all weights.
        nbytes: bytes of a tile in shared memory.
        after: offset of the first weights from the address that `copy` and `put` receive, in bytes.
        stored: element type of weights in memory, where they become floats of type `target` on the way.
    """

    def __init__(
        self,
        code: Code,
        weights: Value,
        first_tile: Value,
        thread: Value,
        threads: int,
        nbytes: int,
        after: int,
        stored: Element | None,
        target: Element,
    ) -> None:
        self.code, self.weights, self.thread, self.nbytes = code, weights, thread, nbytes
        self.stored, self.target = stored, target
        self.places = range(0, nbytes, threads * CHUNK)
        assert nbytes % (threads * CHUNK) == 0
        start = thread * CHUNK
        self.first_tile, self.own, self.start = first_tile, code.advanced(weights, start, 1), start + after

    def copy(self, tile: Value, slot: Value) -> None:
        """Begins to copy this thread's part of a tile of K to the shared address `slot`."""
        source = self._source(tile)
        for at in self.places:
            copy_async(self.code, slot + self.start + at, source, CHUNK, at)

    def fetch(self, tile: Value, exists: Value | None = None) -> Chunks:
        """This thread's part of a tile; zeros where it does not exist."""
        if self.stored is None:
            source, code = self._source(tile), self.code
            if exists is None:
                return [code.load(source, at, I32, CHUNK // WORD) for at in self.places]
            return [code.load_where(exists, source, at, CHUNK // WORD) for at in self.places]
        each = CHUNK // self.target.nbytes
        first = (self.first_tile + tile) * (self.nbytes // CHUNK * each) + self.thread * each
        values = (self._floats(self.stored, first + at // CHUNK * each, each, exists) for at in self.places)
        return [pack(self.code, self.target, own) if self.target.is_narrow_float else own for own in values]

    def _floats(self, stored: Element, index: Value, count: int, exists: Value | None) -> list[Value]:
        """Neighbouring weights, from weight number `index` on."""
        code = self.code
        if stored is Element.INT4:
            bits = 4 * count
            if exists is None:
                (word,) = code.load(self.weights, index // 2, I32 if bits == 32 else I16)
            else:
                (word,) = code.load_where(exists, self.weights, index // 2, bits=bits)
            return floats_of_nibbles(code, word)
        if exists is None:
            found = load_run(code, stored, self.weights, index, count)
        else:
            found = load_where(code, stored, exists, self.weights, index, count)
        return [cast(code, one, stored.dtype, "float32") for one in found]

    def _source(self, tile: Value) -> Value:
        """Pointer to this thread's part of a tile."""
        return self.code.advanced(self.own, self.first_tile + tile, self.nbytes)

    def put(self, chunks: Chunks, slot: Value) -> None:
        """Stores fetched chunks to the tile at the shared address `slot`."""
        for at, chunk in zip(self.places, chunks, strict=True):
            self.code.store(chunk, slot + self.start, at)
