"""Contract on tensor cores, of floats by precision "float16", "bfloat16" or "tf32", or of 8-bit integers: copy tiles of
K, multiply them, combine, store.

Tiles of data and weights lie one after another in a ring of slots in shared memory. The sums go through shared memory
too: there the sums of warps that split K are added up, and each thread finishes runs of neighbouring channels with wide
accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.targets.cuda.choices import candidate
from jitdelegate.targets.cuda.contract_kernel import FLOAT, ContractArguments, ContractKernel, ContractTemplate, added
from jitdelegate.targets.cuda.conv_problem import ConvProblem, Phase
from jitdelegate.targets.cuda.device_code import I32, Code, Value
from jitdelegate.targets.cuda.element import Element, common_width, load, load_where, pack, resized
from jitdelegate.targets.cuda.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.mma_tile import (
    MOST_PADDED,
    SHORTEST_ROW,
    SLIM_TILES,
    TILES,
    WIDE_TILES,
    Tile,
)
from jitdelegate.targets.cuda.phases import PhaseSizes, packed, phase_of, records_of
from jitdelegate.targets.cuda.pixel_gather import PixelRow, TableEntry
from jitdelegate.targets.cuda.sizes import Kind, Number
from jitdelegate.targets.cuda.split_k import combining_cycles, meeting_cycles, possible_parts, write_combine
from jitdelegate.targets.cuda.template import Argument, NoPointer, TensorPointer, WeightsPointer
from jitdelegate.targets.cuda.tensor_core import CHUNK, STEP, Operand, Swizzle, WarpTile, nothing
from jitdelegate.targets.cuda.tile_loader import Chunks, DataLoader, WeightLoader
from jitdelegate.targets.cuda.writer import Writer
from jitdelegate.targets.scalar.cast import cast

COMBINE_CYCLES = 3500
"""Cost of a second launch."""
RUN = 8
"""Most neighbouring channels that a thread finishes together."""
QUAD = WORD = 4
MOST_ROWS = 64
"""Most rows and columns of a tile whose threads copy less than 16 bytes at a time; with more, they lack registers."""


class MmaSizes(NamedTuple):
    """Sizes of a launch for all phases.

    Attributes:
        blocks: blocks along z per group: parts of K, or phases.
        depth, outputs: data channels and output channels of a group.
        pitch: elements between output pixels; channels of a pixel where the launch stores parts of sums.
    """

    blocks: Number
    depth: Number
    outputs: Number
    pitch: Number


@dataclass(frozen=True, eq=False, slots=True)
class Mma(ContractTemplate):
    """A product of pixels by channels, on tensor cores.

    Attributes:
        has_async_copy: whether the GPU has cp.async and whole mma steps.
        has_halo: whether pixels outside the image are not zeros.
        weights: the element type of weights; of floats, integers are converted on the way to shared memory.
    """

    family: ClassVar[str] = "contract_mma"
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
    def uses_tensor_cores(self) -> bool:
        return True

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
        """Whether weights are integers beside data of floats."""
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
        return *("pointer",) * 5, halo, phases, extra, MmaSizes, () if self.is_scattered else (PhaseSizes,)

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
        sizes: MmaSizes,
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
    """Loads integer weights as floats, through registers."""

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
        code, element, stored = self.code, self.template.operand.element, self.template.weights
        found = load_run(code, stored, self.weights, place, CHUNK // element.nbytes)
        values = [cast(code, one, stored.dtype, "float32") for one in found]
        return pack(code, element, values) if element.is_narrow_float else values


class MmaKernel(ContractKernel):
    """Writes the kernel of one template."""

    def __init__(
        self,
        code: Code,
        template: Mma,
        arguments: ContractArguments,
        sizes: MmaSizes,
        phase: PhaseSizes | Value,
        halo: Value | None,
    ) -> None:
        self.template, self.sizes, self.halo, tile = template, sizes, halo, template.tile
        self.thread, z = code.special("tid.x"), code.special("ctaid.z")
        is_split = template.is_part or template.cluster > 1
        is_alone = not (is_split or template.is_scattered)
        group, part = (z, code.integer(0)) if is_alone else (z // sizes.blocks, z % sizes.blocks)
        phase, place = (phase, None) if isinstance(phase, PhaseSizes) else phase_of(code, phase, part)
        super().__init__(
            code, template, arguments, tile.stages, sizes.depth, sizes.pitch, phase.source, place, group, part
        )
        skipped = part * phase.share if is_split else code.integer(0)
        self.first = phase.entry + skipped
        self.tiles = code.minimum(phase.tiles - skipped, phase.share)
        if template.is_scattered:
            self.bias_panel = part * (code.special("nctaid.z") // sizes.blocks * code.special("nctaid.y")) + self.panel
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

    def multiply(self) -> list[Value]:
        """All sums."""
        return self.overlapped(self.nothing()) if self.template.is_asynchronous else self._through_registers()

    def copy_weights(self, tile: Value, slot: Value) -> None:
        self.weights.copy(tile, self.weights_slot(self.shared + slot))

    def weights_slot(self, slot: Value) -> Value:
        """The address where a slot's weights begin."""
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

    # copies through registers, one tile ahead

    def _through_registers(self) -> list[Value]:
        """All sums. While a tile is multiplied, the next one is loaded to registers."""
        code, rows, first = self.code, self.rows(), self.code.integer(0)
        entries, weights = self.data.entries(self.first), self.weights.fetch(first)
        code.await_launches()
        self._put(self.data.fetch(rows, entries), weights, self.shared)
        initial = [code.integer(0), *self.nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(rows, tile)
            following[1:] = self.accumulate(now[1:], self.shared + now[0])
            following[0] = self.next_slot(now[0])
            self._put(*fetched, self.shared + following[0])
        code.barrier()
        return self.accumulate(following[1:], self.shared + following[0])

    def _fetch(self, rows: Sequence[PixelRow], tile: Value) -> tuple[Chunks, Chunks]:
        return self.data.fetch(rows, self.data.entries(self.first + tile)), self.weights.fetch(tile)

    def _put(self, data: Chunks, weights: Chunks, slot: Value) -> None:
        self.data.put(data, slot)
        self.weights.put(weights, self.weights_slot(slot))

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


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launches of a contraction on tensor cores: one, or two where blocks split K.

    Raises:
        CompileError: the GPU does not support the precision.
    """
    operand = operand_of(writer, problem)
    if operand in (Operand.BFLOAT16, Operand.TF32) and not writer.gpu.has_async_copy:
        raise CompileError(f"{writer.gpu.architecture} has no {operand.value} tensor cores, expected sm_80 or later")
    epilogue, extra = writer.epilogue(problem.node)
    template, parts = choose(writer, problem, epilogue)
    if parts == template.cluster:
        _launch(writer, problem, template, TensorPointer(problem.output), extra, parts)
    else:
        sums = writer.temporary(parts * prod(problem.target) * FLOAT)
        _launch(writer, problem, _of_part(template), sums, (), parts)
        write_combine(writer, problem, sums, parts)


def _of_part(template: Mma) -> Mma:
    """The same template, but without epilogue: it stores sums of a part of K."""
    output, run = template.sums, min(template.run, template.sums.widest)
    return replace(template, output=output, run=run, epilogue=Epilogue(), is_part=True)


def operand_of(writer: Writer, problem: ConvProblem) -> Operand:
    """The type in which a problem's data and weights are multiplied."""
    if problem.sums is Element.FLOAT32:
        return Operand(writer.precision)
    return Operand(writer.element(problem.data).dtype)


def cycles(writer: Writer, problem: ConvProblem) -> float:
    """Estimated cycles of the launches of a problem."""
    return _best(writer, problem, writer.epilogue(problem.node)[0])[0]


def choose(writer: Writer, problem: ConvProblem, epilogue: Epilogue) -> tuple[Mma, int]:
    """The template that suits a problem on the writer's GPU, and the number of blocks that split K."""
    return _best(writer, problem, epilogue)[1:]


def _best(writer: Writer, problem: ConvProblem, epilogue: Epilogue) -> tuple[float, Mma, int]:
    """Estimated cycles, and what `choose` returns."""
    operand = operand_of(writer, problem)
    output = writer.element(problem.output)
    template = Mma(
        operand=operand,
        source=writer.element(problem.data),
        output=output,
        tile=TILES[0],
        width=problem.width(CHUNK // operand.element.nbytes),
        run=common_width((problem.outputs, *writer.output_grain(problem.node)), min(output.widest, RUN)),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        is_part=False,
        has_async_copy=writer.gpu.has_async_copy,
        has_halo=problem.halo != 0 and not problem.is_direct,
        weights=problem.weights,
        epilogue=epilogue,
    )
    gpu, size = writer.gpu, _size(problem, template)
    tiles = [tile.shortened(size[2]) for tile in _fitting(template, gpu)]
    if operand.is_integer:
        tiles = _compact([tile.trimmed(size[2]) for tile in tiles], problem.outputs, size[2])
    candidates = {
        candidate(tile, parts): (tile, parts) for tile in tiles for parts in _parts(gpu, tile, size[2], problem)
    }
    results = size[0] * problem.outputs * problem.groups

    def together(one: tuple[Tile, int]) -> float:
        tile, parts = one
        return tile.cycles(gpu, parts, *size) + combining_cycles(gpu, parts, results, COMBINE_CYCLES)

    elements = template.source, template.weights, output
    text = problem.text(problem.phases[0], elements, template.family, template.width, epilogue, operand.value)
    tile, parts = best = writer.choose(text, candidates, together)
    return together(best), replace(template, tile=tile, cluster=parts if gpu.has_clusters else 1), parts


def _compact(tiles: Sequence[Tile], outputs: int, k_bytes: int) -> list[Tile]:
    """The tiles that pad weights by little, or by the least."""
    padded = [tile.padded(outputs, k_bytes) for tile in tiles]
    most = max(MOST_PADDED, min(padded))
    return [tile for tile, times in zip(tiles, padded, strict=True) if times <= most]


def _size(problem: ConvProblem, template: Mma) -> tuple[int, int, int, int, int]:
    """(pixels, outputs, bytes of K, groups, bytes of a unit of data) of the largest phase, phases counted as groups."""
    pixels, steps = (max(map(of, problem.phases)) for of in (problem.pixels, lambda phase: phase.steps))
    k_bytes = steps * template.operand.element.nbytes
    return pixels, problem.outputs, k_bytes, problem.groups * len(problem.phases), template.unit_bytes


def _parts(gpu: Gpu, tile: Tile, k_bytes: int, problem: ConvProblem) -> list[int]:
    """Possible numbers of blocks that split K."""
    if problem.is_scattered:
        return [1]
    return possible_parts(gpu, -(-k_bytes // tile.row_bytes))


def _fitting(template: Mma, gpu: Gpu) -> list[Tile]:
    """The tiles that fit in the GPU's shared memory and in a thread's registers."""
    tiles: Sequence[Tile] = (*TILES, *SLIM_TILES)
    if template.is_asynchronous:
        tiles = (*WIDE_TILES, *tiles)
    else:
        tiles = [replace(tile, stages=2) for tile in tiles]
    if template.operand.is_integer and template.unit_bytes < WORD:  # a thread keeps the places of all its chunks
        tiles = [replace(tile, row_bytes=max(SHORTEST_ROW, tile.warps[2] * STEP)) for tile in tiles]
    if template.unit_bytes < CHUNK or template.converts:
        tiles = [tile for tile in tiles if tile.rows <= MOST_ROWS and tile.columns <= MOST_ROWS]
    return [tile for tile in tiles if tile.shared_bytes <= gpu.shared_bytes]


def _launch(
    writer: Writer, problem: ConvProblem, template: Mma, output: TensorPointer, extra: Sequence[Argument], parts: int
) -> None:
    tile, phases, tile_k = template.tile, problem.phases, template.tile.row_bytes // template.operand.element.nbytes
    sizes = (problem.groups, tile_k, tile.columns)
    shapes = [phase.matrices_shape(*sizes) for phase in phases]
    tables = [problem.table(phase, template.width, tile_k) for phase in phases]
    records = records_of(problem, shapes, sizes[1:], parts)
    blocks = max(parts, len(phases))
    writer.launch(
        template,
        (
            -(-max(map(problem.pixels, phases)) // tile.rows),
            shapes[0][2] // tile.columns,
            problem.groups * blocks,
        ),
        (
            output,
            writer.pointer(problem.data),
            packed_weights(writer, phases, sizes, tile, template.operand),
            writer.constant(np.concatenate([problem.biases(phase, tile.columns) for phase in phases])),
            NoPointer() if template.is_direct else writer.constant(np.concatenate(tables)),
            (writer.constant(np.full(CHUNK, problem.halo, template.source.dtype)),) if template.has_halo else (),
            (writer.constant(packed(records)),) if template.is_scattered else (),
            extra,
            MmaSizes(
                blocks,
                problem.depth,
                problem.outputs,
                problem.target[3] if template.is_part else problem.out_pitch,
            ),
            () if template.is_scattered else (records[0][0],),
        ),
        tile.shared_bytes,
        cycles=tile.cycles(writer.gpu, parts, *_size(problem, template)) + meeting_cycles(template.cluster),
    )


def packed_weights(
    writer: Writer, phases: Sequence[Phase], sizes: tuple[int, int, int], tile: Tile, operand: Operand
) -> WeightsPointer:
    """The phases' weights as the kernel copies them; `sizes` as for `Phase.matrices`."""
    return writer.packed(
        ("tiles in shared memory", sizes, tile, operand),
        [phase.weights for phase in phases],
        lambda: (tiled(phase.matrices(*sizes), tile, operand) for phase in phases),
    )


def tiled(matrices: np.ndarray, tile: Tile, operand: Operand) -> np.ndarray:
    """[groups, K, N] in the order in which the kernel copies it: each tile as it lies in shared memory.

    Returns: [groups, tiles of N, tiles of K, rows of a tile, chunks of a row, elements of a chunk].
    """
    turned = matrices.transpose(0, 2, 1)
    stored = operand.rounded(turned) if turned.dtype == np.float32 else turned
    groups, columns, steps = stored.shape
    each = CHUNK // operand.element.nbytes
    chunks = tile.row_bytes // CHUNK
    parts = stored.reshape(groups, columns // tile.columns, tile.columns, steps // (chunks * each), chunks, each)
    rows = np.arange(tile.columns)[:, None]
    return parts.transpose(0, 1, 3, 2, 4, 5)[:, :, :, rows, np.arange(chunks) ^ Swizzle(tile.row_bytes).key(rows)]
