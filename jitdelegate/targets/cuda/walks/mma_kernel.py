"""Device code of Contract on tensor cores, of floats by precision "float16", "bfloat16" or "tf32", or of 8-bit
integers: copy tiles of K, multiply them, combine, store.

Tiles of data and weights lie one after another in a ring of slots in shared memory. The sums go through shared memory
too: there the sums of warps that split K are added up, and each thread finishes runs of neighbouring channels with wide
accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jitdelegate.targets.cuda.code.device_code import I32, Code, Value
from jitdelegate.targets.cuda.code.element import WORD, Element, load, load_where, pack, resized
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.multiply import mma_tile
from jitdelegate.targets.cuda.multiply.fragments import Fragments, WarpTile
from jitdelegate.targets.cuda.multiply.mma_tile import Tile, packed
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand, Swizzle, check_operand
from jitdelegate.targets.cuda.sources.pixel_gather import PixelRow, TableEntry
from jitdelegate.targets.cuda.sources.tile_loader import Chunks, DataLoader
from jitdelegate.targets.cuda.walks.contract_kernel import ContractArguments, ContractKernel, ContractTemplate


@dataclass(frozen=True, eq=False, slots=True)
class Mma(ContractTemplate):
    """A product of pixels by channels, on tensor cores.

    Attributes:
        has_async_copy: whether the GPU has cp.async and whole mma steps.
        has_halo: whether pixels outside the image are not zeros.
        weights: beside floats, others than float32 are converted on the way to shared memory.
    """

    family: ClassVar[str] = "contract_mma"
    uses_tensor_cores: ClassVar[bool] = True
    operand: Operand
    source: Element
    output: Element
    tile: Tile
    width: int
    run: int
    is_direct: bool
    is_scattered: bool
    is_part: bool
    has_async_copy: bool
    has_halo: bool
    weights: Element
    epilogue: Epilogue
    cluster: int = 1

    @property
    def sums(self) -> Element:
        return self.operand.sums

    @property
    def stored(self) -> Element:
        return self.operand.element

    @property
    def way(self) -> str:
        return self.operand.value

    @property
    def halos(self) -> int:
        return int(self.has_halo)

    @property
    def steps(self) -> int:
        return self.tile.row_bytes // self.stored.nbytes

    @property
    def unit_bytes(self) -> int:
        """Bytes of a chunk of the table in shared memory."""
        return self.width * self.operand.element.nbytes

    @property
    def is_asynchronous(self) -> bool:
        """Whether data is copied unchanged by cp.async; otherwise it goes through registers."""
        return self.has_async_copy and not self.converts and not self.converts_weights and self.unit_bytes >= 4

    @property
    def converts(self) -> bool:
        """Whether data is stored in another type than tensor cores read."""
        return self.source is not self.operand.element

    @property
    def converts_weights(self) -> bool:
        """Whether weights beside data of floats are narrower than float32 in memory."""
        return self.weights is not Element.FLOAT32 and not self.operand.is_integer

    @property
    def packing(self) -> tuple[Any, ...]:
        return self.tile, self.operand

    def packed(self, matrices: np.ndarray) -> Iterable[np.ndarray]:
        return [packed(matrices, self.tile, self.operand)]

    @property
    def combine_cycles(self) -> int:
        return mma_tile.COMBINE_CYCLES

    def check(self, gpu: Gpu) -> None:
        check_operand(gpu, self.operand)

    def cycles(self, gpu: Gpu, parts: int, pixels: int, outputs: int, steps: int, groups: int) -> float:
        k_bytes = steps * self.stored.nbytes
        return self.tile.cycles(gpu, parts, pixels, outputs, k_bytes, groups, self.unit_bytes)

    def write(self, code: Code, *arguments: Any) -> None:
        MmaKernel(code, self, ContractArguments.of(arguments)).write()


class MmaDataLoader(DataLoader):
    """Loads data in swizzled rows of 16-byte chunks."""

    def __init__(self, kernel: MmaKernel) -> None:
        template, tile = kernel.template, kernel.tile
        self.template, self.swizzle = template, Swizzle(tile.row_bytes)
        super().__init__(
            kernel.code,
            kernel.gather,
            template.source,
            kernel.arguments.data,
            kernel.thread,
            tile.threads,
            tile.rows,
            tile.row_bytes // template.unit_bytes,
            template.unit_bytes,
            in_rows=template.unit_bytes == CHUNK,
            halo=kernel.arguments.halo[0] if template.has_halo else None,
        )
        first, count = self.unit * self.unit_bytes // CHUNK, max(self.own * self.unit_bytes // CHUNK, 1)
        chunks = [self.swizzle.place(self.row, first + number) for number in range(count)]
        self.chunks = [self.code.kept(chunk) for chunk in chunks] if template.is_asynchronous else chunks
        if self.halo is not None:
            (self.outside,) = self.code.load(self.halo, 0, I32)

    def rows(self, first: Value, channel: Value) -> list[PixelRow]:
        pixels = [first + self.row + at for at in self.places]
        return [self.gather.row(pixel, channel) for pixel in pixels]

    def place(self, at: int, nbytes: int) -> Value:
        return self.chunks[nbytes // CHUNK] + (at * self.pitch * self.swizzle.row_bytes + nbytes % CHUNK)

    def fetch(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry]) -> Chunks:
        group = CHUNK // self.unit_bytes
        groups = [entries[at : at + group] for at in range(0, len(entries), group)]
        return [self._chunk(row, some) for row in rows for some in groups]

    def _chunk(self, row: PixelRow, entries: Sequence[TableEntry]) -> list[Value]:
        template, code = self.template, self.code
        places = [self.gather.chunk(row, entry) for entry in entries]
        if self.unit_bytes >= WORD and not template.converts:
            return [word for place in places for word in self._words(*place)]
        if template.operand.is_integer:
            each = WORD // self.unit_bytes
            return [self._joined(places[at : at + each]) for at in range(0, len(places), each)]
        step = min(template.width, self.source.widest)
        values = [
            value
            for inside, index in places
            for at in range(0, template.width, step)
            for value in load_where(code, self.source, inside, self.data, index + at, step)
        ]
        return pack(code, template.operand.element, values)

    def _words(self, inside: Value, index: Value) -> list[Value]:
        """A chunk as int32s, each filled with the halo's value outside the image."""
        code = self.code
        words = code.load_where(inside, self.data, index * self.source.nbytes, self.unit_bytes // WORD)
        return words if self.halo is None else [code.select(inside, word, self.outside) for word in words]

    def _joined(self, places: Sequence[tuple[Value, Value]]) -> Value:
        """Chunks of one or two integers of 8 bits as one int32, the first one lowest."""
        code, element = self.code, Element.INT16 if self.unit_bytes > 1 else Element.INT8
        word, bits = code.integer(0), 8 * self.unit_bytes
        for at, (inside, index) in enumerate(places):
            (found,) = load(code, element, self.data, code.select(inside, index, 0) // self.unit_bytes)
            outside = code.integer(0) if self.halo is None else self.outside & ((1 << bits) - 1)
            word = word | (code.select(inside, resized(code, found, I32), outside) << at * bits)
        return word


class MmaKernel(ContractKernel):
    """Writes the kernel of one template."""

    template: Mma

    def find_data(self) -> None:
        self.data = MmaDataLoader(self)

    def locate(self) -> None:
        template, tile, (down, across, slices) = self.template, self.tile, self.tile.warps
        lane, warp = self.thread & 31, self.thread >> 5
        self.slice, within = warp // (down * across), warp % (down * across)
        rows, columns, steps = tile.rows // down, tile.columns // across, tile.row_bytes // STEP // slices
        row, column = within // across * rows, within % across * columns
        fragments = Fragments(self.code, template.operand, lane, template.has_async_copy)
        layout, size = Swizzle(tile.row_bytes), (rows, columns, steps)
        self.multiply = WarpTile.of(fragments, layout, size, row, column, self.slice)
        self.finished = template.run

    def swizzled(self, row: Value, column: Value) -> Value:
        mask = int(min(3, self.tile.columns // 8 - 1))
        return column ^ ((row & mask) << 3)

    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        added = self.accumulate(sums, slot, copy)
        advance()
        return added

    def through_registers(self) -> list[Value]:
        code, rows, first = self.code, self.rows(), self.code.integer(0)
        entries, weights = self.data.entries(self.first), self.weights.fetch(first)
        code.await_launches()
        self.put(self.data.fetch(rows, entries), weights, self.shared)
        initial = [code.integer(0), *self.multiply.nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            data, weights = self.data.fetch(rows, self.data.entries(self.first + tile)), self.weights.fetch(tile)
            following[1:] = self.accumulate(now[1:], self.shared + now[0])
            following[0] = self.next_slot(now[0])
            self.put(data, weights, self.shared + following[0])
        code.barrier()
        return self.accumulate(following[1:], self.shared + following[0])
