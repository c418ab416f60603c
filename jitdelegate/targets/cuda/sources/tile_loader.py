"""Loads one thread's part of each tile of a contraction: chunks of data, found by the table, and chunks of weights.

On GPUs with asynchronous copies, `copy` begins them. On others, `fetch` loads a tile to registers while another tile is
multiplied, and `put` stores it in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.targets.cuda.code.device_code import I16, I32, Code, Value
from jitdelegate.targets.cuda.code.element import WORD, Element, load, load_where, pack, resized
from jitdelegate.targets.cuda.code.epilogue import load_run
from jitdelegate.targets.cuda.code.narrow_integers import floats_of_nibbles
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, Padded, Swizzle, copy_async
from jitdelegate.targets.cuda.sources.pixel_gather import PixelGather, PixelRow, TableEntry
from jitdelegate.targets.maths.cast import cast

Chunks = list[list[Value]]
"""The values that `fetch` loads: each list is 16 bytes, or fewer for data."""


class DataLoader:
    """A thread's part of each tile of data: some rows of some neighbouring chunks of the table ("units").

    Where units are as wide as the swizzled 16-byte chunks of shared memory, or nothing is swizzled, neighbouring
    threads have neighbouring units of a row. Elsewhere they have neighbouring rows of the same units, so that a thread
    fills whole chunks.

    Args:
        source, stored: element types of data in memory, and in shared memory.
        threads: those of a block.
        rows, steps: size of a tile.
        layout: of shared memory.
        halo: pointer to 16 bytes of the value of pixels outside the image; None for zeros.
        keeps: whether the thread's offsets in shared memory stay in registers.
    """

    def __init__(
        self,
        code: Code,
        gather: PixelGather,
        data: Value,
        source: Element,
        stored: Element,
        thread: Value,
        threads: int,
        rows: int,
        steps: int,
        layout: Swizzle | Padded,
        halo: Value | None,
        *,
        keeps: bool,
    ) -> None:
        self.code, self.gather, self.data, self.source, self.stored = code, gather, data, source, stored
        self.units, self.unit_bytes, self.halo = steps // gather.width, gather.width * stored.nbytes, halo
        if isinstance(layout, Padded) or self.unit_bytes == CHUNK:
            distance, self.own = threads // self.units, 1
            self.row, self.unit = thread // self.units, thread % self.units
        else:
            distance, self.own = rows, self.units * rows // threads
            self.row, self.unit = thread % rows, thread // rows * self.own
        self.distances = range(0, rows, distance)
        assert rows % distance == 0
        self.pitch = distance * layout.pitch
        first, self.count = self.unit * self.unit_bytes, max(self.own * self.unit_bytes // CHUNK, 1)
        chunks = [layout.byte_offset(self.row, first + number * CHUNK) for number in range(self.count)]
        self.chunks = [code.kept(chunk) for chunk in chunks] if keeps else chunks
        if halo is not None:
            (self.outside,) = code.load(halo, 0, I32)

    def rows(self, first: Value, channel: Value) -> list[PixelRow]:
        """The pixels of this thread's rows; `first` is the tile's first pixel."""
        pixels = [first + self.row + distance for distance in self.distances]
        return [self.gather.row(pixel, channel) for pixel in pixels]

    def entries(self, tile: Value) -> list[TableEntry]:
        """The table's entries for this thread's units of a tile of K."""
        return self.gather.entries(tile * self.units + self.unit, self.own)

    def _address(self, slot: Value, number: int, nbytes: int) -> Value:
        """The shared address of this thread's row `number`, `nbytes` after its first unit, in a slot."""
        return slot + (self.chunks[nbytes // CHUNK] + (number * self.pitch + nbytes % CHUNK))

    def copy(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry], slot: Value) -> None:
        """Begins to copy this thread's part of a tile to the shared address `slot`."""
        for number, entry in enumerate(entries):
            tap = self.code.advanced(self.data, entry.offset, self.source.nbytes)
            for at, row in enumerate(rows):
                to = self._address(slot, at, number * self.unit_bytes)
                begin = self.code.advanced(tap, row.element, self.source.nbytes)
                inside = self.gather.is_inside(row, entry)
                copy_async(self.code, to, begin, self.unit_bytes, inside=inside, halo=self.halo)

    def put(self, chunks: Chunks, slot: Value) -> None:
        """Stores fetched chunks to the tile at the shared address `slot`."""
        for at, chunk in enumerate(chunks):
            self.code.store(chunk, self._address(slot, at // self.count, at % self.count * CHUNK), 0)

    def fetch(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry]) -> Chunks:
        """This thread's part of a tile, in the form that shared memory holds."""
        together = CHUNK // self.unit_bytes
        groups = [entries[at : at + together] for at in range(0, len(entries), together)]
        return [self._chunk(row, some) for row in rows for some in groups]

    def _chunk(self, row: PixelRow, entries: Sequence[TableEntry]) -> list[Value]:
        code, source, width = self.code, self.source, self.gather.width
        units = [self.gather.chunk(row, entry) for entry in entries]
        if self.unit_bytes >= WORD and source is self.stored:
            return [word for unit in units for word in self._words(*unit)]
        if source.dtype != "float32":
            together = WORD // self.unit_bytes
            return [self._joined(units[at : at + together]) for at in range(0, len(units), together)]
        step = min(width, source.widest)
        values = [
            value
            for inside, index in units
            for at in range(0, width, step)
            for value in load_where(code, source, inside, self.data, index + at, step)
        ]
        return pack(code, self.stored, values) if self.stored.is_narrow_float else values

    def _words(self, inside: Value, index: Value) -> list[Value]:
        """A unit as int32s, each filled with the halo's value outside the image."""
        code = self.code
        words = code.load_where(inside, self.data, index * self.source.nbytes, self.unit_bytes // WORD)
        return words if self.halo is None else [code.select(inside, word, self.outside) for word in words]

    def _joined(self, units: Sequence[tuple[Value, Value]]) -> Value:
        """Units of one or two integers of 8 bits as one int32, the first one lowest."""
        code, element = self.code, Element.INT16 if self.unit_bytes > 1 else Element.INT8
        word, bits = code.integer(0), 8 * self.unit_bytes
        for at, (inside, index) in enumerate(units):
            (unit,) = load(code, element, self.data, code.select(inside, index, 0) // self.unit_bytes)
            outside = code.integer(0) if self.halo is None else self.outside & ((1 << bits) - 1)
            word = word | (code.select(inside, resized(code, unit, I32), outside) << at * bits)
        return word


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
        self.offsets = range(0, nbytes, threads * CHUNK)
        assert nbytes % (threads * CHUNK) == 0
        start = thread * CHUNK
        self.first_tile, self.own, self.start = first_tile, code.advanced(weights, start, 1), start + after

    def copy(self, tile: Value, slot: Value) -> None:
        """Begins to copy this thread's part of a tile of K to the shared address `slot`."""
        source = self._source(tile)
        for at in self.offsets:
            copy_async(self.code, slot + self.start + at, source, CHUNK, at)

    def fetch(self, tile: Value, exists: Value | None = None) -> Chunks:
        """This thread's part of a tile; zeros where it does not exist."""
        if self.stored is None:
            source, code = self._source(tile), self.code
            if exists is None:
                return [code.load(source, at, I32, CHUNK // WORD) for at in self.offsets]
            return [code.load_where(exists, source, at, CHUNK // WORD) for at in self.offsets]
        count = CHUNK // self.target.nbytes
        first = (self.first_tile + tile) * (self.nbytes // CHUNK * count) + self.thread * count
        values = (self._floats(self.stored, first + at // CHUNK * count, count, exists) for at in self.offsets)
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
            weights = load_run(code, stored, self.weights, index, count)
        else:
            weights = load_where(code, stored, exists, self.weights, index, count)
        return [cast(code, one, stored.dtype, "float32") for one in weights]

    def _source(self, tile: Value) -> Value:
        return self.code.advanced(self.own, self.first_tile + tile, self.nbytes)

    def put(self, chunks: Chunks, slot: Value) -> None:
        """Stores fetched chunks to the tile at the shared address `slot`."""
        for at, chunk in zip(self.offsets, chunks, strict=True):
            self.code.store(chunk, slot + self.start, at)
