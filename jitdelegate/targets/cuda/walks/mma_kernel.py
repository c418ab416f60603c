"""Device code of Contract on tensor cores, of floats by precision "float16", "bfloat16" or "tf32", or of 8-bit
integers: copy tiles of K, multiply them, combine, store.

Tiles of data and weights lie one after another in a ring of slots in shared memory. The sums go through shared memory
too: there the sums of warps that split K are added up, and each thread finishes runs of neighbouring channels with wide
accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import I16, I32, Code, Value
from jitdelegate.targets.cuda.code.element import Element, load, load_where, pack, resized
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.narrow_integers import floats_of_nibbles
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.multiply.mma_tile import Tile
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand, Swizzle, WarpTile, nothing
from jitdelegate.targets.cuda.sources.phases import PhaseSizes
from jitdelegate.targets.cuda.sources.pixel_gather import PixelRow, TableEntry
from jitdelegate.targets.cuda.sources.tile_loader import Chunks, DataLoader, WeightLoader
from jitdelegate.targets.cuda.walks.contract_kernel import (
    FLOAT,
    ContractArguments,
    ContractKernel,
    ContractSizes,
    ContractTemplate,
    added,
)
from jitdelegate.targets.maths.cast import cast

QUAD = WORD = 4


@dataclass(frozen=True, eq=False, slots=True)
class Mma(ContractTemplate):
    """A product of pixels by channels, on tensor cores.

    Attributes:
        has_async_copy: whether the GPU has cp.async and whole mma steps.
        has_halo: whether pixels outside the image are not zeros.
        weights: the element type of weights; beside floats, others than float32 are converted on the way to shared
            memory.
    """

    family: ClassVar[str] = "contract_mma"
    uses_tensor_cores: ClassVar[bool] = True
    constants: ClassVar[frozenset[int]] = frozenset({2, 3, 4, 5, 6})
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
    def warp_tile(self) -> WarpTile:
        """The part of the tile that one warp multiplies."""
        tile = self.tile
        return WarpTile(
            self.operand,
            tile.rows // tile.warps[0],
            tile.columns // tile.warps[1],
            tile.row_bytes // STEP // tile.warps[2],
            tile.row_bytes,
            self.has_async_copy,
        )

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        halo, phases = ("pointer",) * self.has_halo, ("pointer",) * self.is_scattered
        return *("pointer",) * 5, halo, phases, extra, ContractSizes, () if self.is_scattered else (PhaseSizes,)

    def write(
        self,
        code: Code,
        output: Value,
        data: Value,
        weights: Value,
        bias: Value,
        table: Value,
        halo: Sequence[Value],
        phases: Sequence[Value],
        extra: Sequence[Value],
        sizes: ContractSizes,
        phase: Sequence[PhaseSizes],
    ) -> None:
        """Args:
        weights: [phases, groups, tiles of N, tiles of K].
        bias: [phases, groups, N padded to whole tiles].
        halo: 16 bytes of the value of pixels outside the image.
        phases: int32[phases, RECORD] for a scattered problem.
        phase: the only phase of any other problem.
        """
        arguments = ContractArguments(output, data, weights, bias, table, extra)
        MmaKernel(code, self, arguments, sizes, phases[0] if phases else phase[0], halo[0] if halo else None).write()


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
            halo=kernel.halo,
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


class MmaWeightLoader(WeightLoader):
    """Loads narrow weights as floats, through registers."""

    def __init__(self, template: Mma, *arguments: Any) -> None:
        self.template = template
        super().__init__(*arguments)

    def fetch(self, tile: Value) -> Chunks:
        each = CHUNK // self.template.operand.element.nbytes
        numbers = self.nbytes // CHUNK * each
        first = (self.first_tile + tile) * numbers + self.thread * each
        return [self._chunk(first + at // CHUNK * each) for at in self.places]

    def _chunk(self, place: Value) -> list[Value]:
        """The numbers of a chunk, which begin at number `place` of all weights."""
        code, element = self.code, self.template.operand.element
        values = self._floats(place, CHUNK // element.nbytes)
        return pack(code, element, values) if element.is_narrow_float else values

    def _floats(self, place: Value, count: int) -> list[Value]:
        code, stored = self.code, self.template.weights
        if stored is Element.INT4:
            (word,) = code.load(self.weights, place // 2, I32 if count > QUAD else I16)
            return floats_of_nibbles(code, word)
        found = load_run(code, stored, self.weights, place, count)
        return [cast(code, one, stored.dtype, "float32") for one in found]


class MmaKernel(ContractKernel):
    """Writes the kernel of one template."""

    def __init__(
        self,
        code: Code,
        template: Mma,
        arguments: ContractArguments,
        sizes: ContractSizes,
        phase: PhaseSizes | Value,
        halo: Value | None = None,
    ) -> None:
        super().__init__(code, template, arguments, sizes, phase)
        self.template, self.is_asynchronous, self.halo = template, template.is_asynchronous, halo
        phase, skipped, tile = self.phase, self.skipped, template.tile
        self.first = phase.entry + skipped
        self.tiles = code.minimum(phase.tiles - skipped, phase.share)
        if template.is_scattered:
            panels = code.special("nctaid.z") // sizes.blocks * code.special("nctaid.y")
            self.bias_panel = self.part * panels + self.panel
        self.find_data()
        first = phase.weight + self.panel * phase.tiles + skipped
        nbytes = tile.columns * tile.row_bytes
        loader = partial(MmaWeightLoader, template) if template.converts_weights else WeightLoader
        self.weights = loader(code, arguments.weights, first, self.thread, tile.threads, nbytes)
        self._locate_warp()

    def find_data(self) -> None:
        """Sets what brings tiles of data to shared memory."""
        self.data = MmaDataLoader(self)

    def _locate_warp(self) -> None:
        """Sets which rows, columns and slice of each tile of K this thread's warp multiplies."""
        warp_rows, warp_columns, _ = self.tile.warps
        lane, warp = self.thread & 31, self.thread >> 5
        self.slice = warp // (warp_rows * warp_columns)
        within = warp % (warp_rows * warp_columns)
        self.row = within // warp_columns * (self.tile.rows // warp_rows)
        self.column = within % warp_columns * (self.tile.columns // warp_columns)
        shape = self.shape = self.template.warp_tile
        self.starts = shape.left_start(lane, self.row, self.slice), shape.right_start(lane, self.column, self.slice)

    def write(self) -> None:
        """Writes the whole kernel."""
        sums = self.multiply()
        self.code.barrier()
        self._share_sums(sums)
        self.code.barrier()
        if self.cluster > 1:
            self._fold()
            self.code.cluster_barrier()
        self._finish()
        if self.cluster > 1:
            self.code.cluster_barrier()

    def weights_slot(self, slot: Value) -> Value:
        place: Value = slot + self.tile.rows * self.tile.row_bytes
        return place

    def accumulate(self, sums: Sequence[Value], slot: Value, meanwhile: Callable[[], None] = nothing) -> list[Value]:
        return self.shape.accumulate(self.code, sums, slot, self.weights_slot(slot), self.starts, meanwhile)

    def nothing(self) -> list[Value]:
        return [self.code.constant(self.template.sums.dtype, 0)] * self.shape.sums

    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        added = self.accumulate(sums, self.shared + slot, copy)
        advance()
        return added

    def through_registers(self) -> list[Value]:
        code, rows, first = self.code, self.rows(), self.code.integer(0)
        entries, weights = self.data.entries(self.first), self.weights.fetch(first)
        code.await_launches()
        self.put(self.data.fetch(rows, entries), weights, self.shared)
        initial = [code.integer(0), *self.nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(rows, tile)
            following[1:] = self.accumulate(now[1:], self.shared + now[0])
            following[0] = self.next_slot(now[0])
            self.put(*fetched, self.shared + following[0])
        code.barrier()
        return self.accumulate(following[1:], self.shared + following[0])

    def _fetch(self, rows: Sequence[PixelRow], tile: Value) -> tuple[Chunks, Chunks]:
        return self.data.fetch(rows, self.data.entries(self.first + tile)), self.weights.fetch(tile)

    # sums to the output

    def _share_sums(self, sums: Sequence[Value]) -> None:
        """Stores this thread's sums to shared memory, two neighbouring columns at a time, where `_sums` reads them."""
        lane, columns = self.thread & 31, self.shape.columns
        row, column = self.row + (lane >> 2), self.column + ((lane & 3) << 1)
        for at in range(0, len(sums), 2):
            fragment, half = at // 4, at % 4 // 2
            down = fragment // (columns // 8) * 16 + half * 8
            place = self._sum_place(self.slice, row, column + fragment % (columns // 8) * 8)
            self.code.store(sums[at : at + 2], place, down * self.tile.columns * FLOAT)

    def _sum_place(self, number: Value | int, row: Value, column: Value) -> Value:
        """Shared address of a sum of slice `number`; runs of 8 columns are swizzled so that stores of fragments have no
        bank conflicts."""
        tile = self.tile
        swizzled = column ^ ((row & min(3, tile.columns // 8 - 1)) << 3)
        place: Value = (
            self.shared + (row * tile.columns + swizzled) * FLOAT + number * (tile.rows * tile.columns * FLOAT)
        )
        return place

    def _fold(self) -> None:
        """Adds up the slices of K of this block, where the other blocks of the cluster read the sums."""
        if self.tile.warps[2] == 1:
            return
        runs = self.tile.columns // QUAD
        column, first, pitch = self.thread % runs * QUAD, self.thread // runs, self.tile.threads // runs
        with self.code.loop(self.tile.rows, start=first, step=pitch) as row:
            sums = added([self._slice(number, row, column, QUAD) for number in range(self.tile.warps[2])])
            self.code.store(sums, self._sum_place(0, row, column), 0)

    def _finish(self) -> None:
        """Adds the bias, applies the epilogue and stores the results; each thread takes runs of neighbouring channels,
        and the blocks of a cluster take turns with the rows."""
        code, tile = self.code, self.tile
        runs = tile.columns // self.run
        assert tile.threads % runs == 0, tile
        column = self.thread % runs * self.run
        channel = code.special("ctaid.y") * tile.columns + column
        first, pitch = self.thread // runs, tile.threads // runs * self.cluster
        if self.cluster > 1:
            first = first * self.cluster + self.part
        bias = self.bias(column, self.run)
        with code.when(channel < self.sizes.outputs), code.loop(-(-tile.rows // pitch)) as turn:
            row = first + turn * pitch
            exists, pixel = self.pixel(row)
            inside = exists if tile.rows % pitch == 0 else exists & (row < tile.rows)
            with code.when(inside):
                self.store(self._sums(row, column, bias), pixel, self.group * self.sizes.outputs + channel)

    def _sums(self, row: Value, column: Value, bias: Sequence[Value]) -> list[Value]:
        """The sums of one run of columns, added up over all slices of K."""
        if self.cluster > 1:
            place = self._sum_place(0, row, column)
            slices = [self.load_sums(place, rank, self.run) for rank in range(self.cluster)]
        else:
            slices = [self._slice(number, row, column, self.run) for number in range(self.tile.warps[2])]
        return added([*slices, bias] if bias else slices)

    def _slice(self, number: int, row: Value, column: Value, count: int) -> list[Value]:
        place = self._sum_place(number, row, column)
        return load_run(self.code, self.template.sums, place, self.code.integer(0), count)
