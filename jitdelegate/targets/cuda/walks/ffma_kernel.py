"""Device code of Contract in float32 without tensor cores: copy tiles of K, multiply them, add up the sums of the
warps, store.

Tiles of data and weights lie in a ring of slots in shared memory. A lane reads its rows of data and its columns of
weights for four steps of K with 16-byte loads, and uses each loaded number four to eight times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.targets.cuda.code.device_code import F32, Code, Value
from jitdelegate.targets.cuda.code.element import Element, load_where
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.narrow_integers import floats_of_nibbles
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.multiply.ffma_tile import LANES_ACROSS, LANES_DOWN, QUAD, Tile
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


@dataclass(frozen=True, eq=False, slots=True)
class Ffma(ContractTemplate):
    """A product of pixels by channels, with float32 multiply-adds.

    Attributes:
        is_asynchronous: whether copies to shared memory bypass registers.
        weights: the element type of weights; others than float32 are converted on the way to shared memory.
    """

    family: ClassVar[str] = "contract_ffma"
    constants: ClassVar[frozenset[int]] = frozenset({2, 3, 4, 5})
    source: Element
    output: Element
    tile: Tile
    width: int
    run: int
    is_direct: bool
    is_scattered: bool
    is_asynchronous: bool
    is_part: bool
    weights: Element
    epilogue: Epilogue
    cluster: int = 1

    @property
    def stages(self) -> int:
        return self.tile.most_stages if self.is_asynchronous else 2

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the ring, or of the sums that later take its place."""
        tile = self.tile
        return max(self.stages * tile.stage_bytes, tile.meeting * tile.rows * tile.columns * FLOAT)

    @property
    def pieces(self) -> int:
        """Chunks of data that a thread copies per tile of K; it keeps the position of each chunk's pixel."""
        return self.tile.rows * self.tile.steps // self.width // self.threads

    @property
    def min_blocks(self) -> int:
        """Resident blocks that the registers suffice for, where this limit on registers causes no spills."""
        return 1 if self.tile.has_many_sums or self.pieces > 4 else self.tile.resident

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        return *("pointer",) * 6, extra, ContractSizes, () if self.is_scattered else (PhaseSizes,)

    def write(
        self,
        code: Code,
        output: Value,
        data: Value,
        weights: Value,
        bias: Value,
        table: Value,
        phases: Value,
        extra: Sequence[Value],
        sizes: ContractSizes,
        phase: Sequence[PhaseSizes],
    ) -> None:
        """Args:
        weights: [phases, groups, tiles of N, tiles of K, steps of a tile, columns of a tile].
        phases: int32[phases, RECORD] for a scattered problem.
        phase: the only phase of any other problem.
        """
        arguments = ContractArguments(output, data, weights, bias, table, extra)
        FfmaKernel(code, self, arguments, sizes, phase[0] if phase else phases).write()


class FfmaDataLoader(DataLoader):
    """Loads data in rows of `row_pitch` floats."""

    def __init__(self, kernel: FfmaKernel) -> None:
        tile, width = kernel.tile, kernel.template.width
        self.row_pitch, self.width = tile.row_pitch, width
        super().__init__(
            kernel.code,
            kernel.gather,
            kernel.template.source,
            kernel.arguments.data,
            kernel.thread,
            tile.threads,
            tile.rows,
            tile.steps // width,
            width * FLOAT,
            in_rows=True,
        )
        self.start = (self.row * self.row_pitch + self.unit * width) * FLOAT

    def place(self, at: int, nbytes: int) -> Value:
        place: Value = self.start + (at * self.pitch * self.row_pitch * FLOAT + nbytes)
        return place

    def fetch(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry]) -> Chunks:
        return [self._chunk(row, entry) for row in rows for entry in entries]

    def _chunk(self, row: PixelRow, entry: TableEntry) -> list[Value]:
        inside, index = self.gather.chunk(row, entry)
        return load_where(self.code, self.source, inside, self.data, index, self.width)


class FfmaWeightLoader(WeightLoader):
    """Loads weights of type `element`; a tile past the last one reads as zeros."""

    element = Element.FLOAT32

    def fetch(self, tile: Value) -> Chunks:
        return self.fetch_where(self.code.boolean(True), tile)

    def fetch_where(self, exists: Value, tile: Value) -> Chunks:
        """This thread's part of a tile; zeros where it does not exist."""
        if self.element is Element.FLOAT32:
            source = self._source(tile)
            return [self.code.load_where(exists, source, at, QUAD) for at in self.places]
        first = (self.first_tile + tile) * (self.nbytes // FLOAT) + self.thread * QUAD
        return [self._quad(exists, first + at // FLOAT) for at in self.places]

    def _quad(self, exists: Value, index: Value) -> list[Value]:
        """Four neighbouring weights as float32."""
        if self.element is Element.INT4:
            return floats_of_nibbles(self.code, self.code.load_where(exists, self.weights, index // 2, bits=16)[0])
        found = load_where(self.code, self.element, exists, self.weights, index, QUAD)
        return [cast(self.code, one, self.element.dtype, "float32") for one in found]


class FfmaKernel(ContractKernel):
    """Writes the kernel of one template."""

    def __init__(
        self, code: Code, template: Ffma, arguments: ContractArguments, sizes: ContractSizes, phase: PhaseSizes | Value
    ) -> None:
        super().__init__(code, template, arguments, sizes, phase)
        self.template, self.is_asynchronous, tile = template, template.is_asynchronous, template.tile
        phase, skipped = self.phase, self.skipped
        self.tiles = code.minimum(phase.share, phase.tiles - skipped)
        self.first, first_weight = phase.entry + skipped, phase.weight + self.panel * phase.tiles + skipped
        self.find_data()
        nbytes, after = tile.steps * tile.columns * FLOAT, tile.rows * tile.row_pitch * FLOAT
        self.weights: FfmaWeightLoader = FfmaWeightLoader(
            code, arguments.weights, first_weight, self.thread, tile.threads, nbytes, after
        )
        self.weights.element = template.weights
        self._locate_lane()

    def find_data(self) -> None:
        """Sets what brings tiles of data to shared memory."""
        self.data = FfmaDataLoader(self)

    def _locate_lane(self) -> None:
        """Sets which rows, columns and slice of K this thread multiplies.

        Neighbouring lanes share columns, and lanes two apart share rows: this halves the time of 16-byte loads of
        both.
        """
        tile, thread = self.tile, self.thread
        lane, warp = thread & 31, thread >> 5
        down, across = lane & 1 | lane >> 4 << 1, lane >> 1 & LANES_ACROSS - 1
        self.slice = warp // (tile.warps_down * tile.warps_across)
        within = warp % (tile.warps_down * tile.warps_across)
        self.row = within // tile.warps_across * (LANES_DOWN * tile.height) + down
        self.column = within % tile.warps_across * (LANES_ACROSS * tile.width) + across * QUAD
        step = self.slice * (tile.steps // tile.slices)
        self.rows_start = (self.row * tile.row_pitch + step) * FLOAT
        self.columns_start = (tile.rows * tile.row_pitch + step * tile.columns + self.column) * FLOAT

    def write(self) -> None:
        """Writes the whole kernel."""
        self._finish(self.multiply())

    # multiplication

    def accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        tile, sums = self.tile, list(sums)
        rows, columns = slot + self.rows_start, slot + self.columns_start
        for step in range(0, tile.steps // tile.slices, QUAD):
            left = [
                self.code.load(rows, (at * LANES_DOWN * tile.row_pitch + step) * FLOAT, F32, QUAD)
                for at in range(tile.height)
            ]
            for k in range(QUAD):
                right = self._weights(columns, (step + k) * tile.columns)
                products = [(row[k], column) for row in left for column in right]
                sums = [self.code.fma(a, b, c) for (a, b), c in zip(products, sums, strict=True)]
        return sums

    def _weights(self, columns: Value, place: int) -> list[Value]:
        """One step's weights for the columns of this thread: quads, LANES_ACROSS quads apart."""
        places = range(self.tile.width // QUAD)
        quads = [self.code.load(columns, (place + at * LANES_ACROSS * QUAD) * FLOAT, F32, QUAD) for at in places]
        return [number for quad in quads for number in quad]

    def nothing(self) -> list[Value]:
        return [self.code.real(0.0)] * self.tile.sums

    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        copy()
        advance()
        return self.accumulate(sums, self.shared + slot)

    def through_registers(self) -> list[Value]:
        code, zero = self.code, self.code.integer(0)
        rows, entries, (entry,) = self.rows(), self.entries(zero), self.entries(code.integer(1))
        weights = self.weights.fetch_where(zero < self.tiles, zero)
        code.await_launches()
        self.put(self.data.fetch(rows, entries), weights, self.shared)
        initial = [zero, entry.offset, entry.taps, *self.nothing()]
        with code.carried(self.tiles, initial) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(rows, [TableEntry(now[1], now[2])], tile + 1)
            (entry,) = self.entries(tile + 2)
            following[:3] = self.next_slot(now[0]), entry.offset, entry.taps
            following[3:] = self.accumulate(now[3:], self.shared + now[0])
            self.put(*fetched, self.shared + following[0])
        return following[3:]

    def _fetch(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry], tile: Value) -> tuple[Chunks, Chunks]:
        return self.data.fetch(rows, entries), self.weights.fetch_where(tile < self.tiles, tile)

    # sums to the output

    def _finish(self, sums: Sequence[Value]) -> None:
        """Adds up the slices of K in shared memory; then every thread finishes some quads."""
        code, tile, slices = self.code, self.tile, self.tile.slices
        while slices > tile.meeting:
            slices //= 2
            sums = self._folded(sums, slices)
        code.barrier()
        with code.when(self.slice < slices):
            self._share(sums, self.slice)
        code.barrier()
        across = tile.columns // QUAD
        first, column, pitch = self.thread // across, self.thread % across * QUAD, tile.threads // across
        if self.cluster > 1:
            with code.loop(tile.rows, start=first, step=pitch) as row:
                code.store(self._total(slices, row, column), self._sum_place(0, row, column), 0)
            code.cluster_barrier()
            first, pitch = first * self.cluster + self.part, pitch * self.cluster
        bias = self.bias(column, QUAD)
        with code.loop(tile.rows, start=first, step=pitch) as row:
            exists, pixel = self.pixel(row)
            with code.when(exists):
                self._store_quad(self._complete(slices, row, column), bias, pixel, column)
        if self.cluster > 1:
            code.cluster_barrier()

    def _total(self, slices: int, row: Value, column: Value) -> list[Value]:
        """A quad of this block's sums."""
        return added([self._shared_quad(part, row, column) for part in range(slices)])

    def _complete(self, slices: int, row: Value, column: Value) -> list[Value]:
        """A quad of the sums of all blocks of the cluster."""
        if self.cluster == 1:
            return self._total(slices, row, column)
        place = self._sum_place(0, row, column)
        return added([self.load_sums(place, rank, QUAD) for rank in range(self.cluster)])

    def _folded(self, sums: Sequence[Value], half: int) -> list[Value]:
        """The sums of the slices below `half`, after adding the sums of the slices from `half` on."""
        self.code.barrier()
        with self.code.when(self.slice < 2 * half), self.code.when(self.slice >= half):
            self._share(sums, self.slice % half)
        self.code.barrier()
        other = [
            number for row, column in self._quads() for number in self._shared_quad(self.slice % half, row, column)
        ]
        return [a + b for a, b in zip(sums, other, strict=True)]

    def _quads(self) -> list[tuple[Value, Value]]:
        """The first row and column of every quad of this thread's sums."""
        rows = [self.row + at * LANES_DOWN for at in range(self.tile.height)]
        columns = [self.column + at * LANES_ACROSS * QUAD for at in range(self.tile.width // QUAD)]
        return [(row, column) for row in rows for column in columns]

    def _share(self, sums: Sequence[Value], part: Value) -> None:
        for at, (row, column) in enumerate(self._quads()):
            self.code.store(sums[at * QUAD : (at + 1) * QUAD], self._sum_place(part, row, column), 0)

    def _shared_quad(self, part: Value | int, row: Value, column: Value) -> list[Value]:
        return self.code.load(self._sum_place(part, row, column), 0, F32, QUAD)

    def _sum_place(self, part: Value | int, row: Value, column: Value) -> Value:
        """Shared address of a sum; odd rows have their halves swapped to avoid bank conflicts in a warp's stores."""
        tile = self.tile
        swizzled = column ^ ((row & 1) << 4)
        place: Value = self.shared + (row * tile.columns + swizzled) * FLOAT + part * (tile.rows * tile.columns * FLOAT)
        return place

    def _store_quad(self, sums: Sequence[Value], bias: Sequence[Value], pixel: Value, column: Value) -> None:
        """Stores a quad of the tile's columns, in runs that lie completely inside or outside the group's channels."""
        first = self.code.special("ctaid.y") * self.tile.columns + column
        for at in range(0, QUAD, self.run):
            with self.code.when(first + at < self.sizes.outputs):
                channel, chosen = self.group * self.sizes.outputs + first + at, sums[at : at + self.run]
                if bias:
                    chosen = [a + b for a, b in zip(chosen, bias[at : at + self.run], strict=True)]
                self.store(chosen, pixel, channel)
