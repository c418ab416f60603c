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
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.targets.cuda.contract_kernel import FLOAT, ContractArguments, ContractKernel, ContractTemplate
from jitdelegate.targets.cuda.conv_problem import ConvProblem, Phase
from jitdelegate.targets.cuda.device_code import I32, Code, Value, reduce_tree
from jitdelegate.targets.cuda.element import Element, common_width, load, load_where, pack, resized
from jitdelegate.targets.cuda.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.mma_tile import MOST_PADDED, NARROW_TILE, SHORTEST_ROW, TILES, Tile
from jitdelegate.targets.cuda.pixel_gather import PixelRow, PlaceSizes, SourceSizes, TableEntry
from jitdelegate.targets.cuda.sizes import Kind, Number
from jitdelegate.targets.cuda.split_k import combining_cycles, write_combine
from jitdelegate.targets.cuda.template import Argument, NoPointer, TensorPointer
from jitdelegate.targets.cuda.tensor_core import CHUNK, STEP, Operand, Swizzle, WarpTile, nothing
from jitdelegate.targets.cuda.tile_loader import Chunks, DataLoader, WeightLoader
from jitdelegate.targets.cuda.writer import Writer
from jitdelegate.targets.scalar.cast import cast

COMBINE_CYCLES = 3500
"""Cost of a second launch."""
FEWEST_TILES = 4
"""Fewest tiles of K that are worth a block of their own."""
RUN = 8
"""Most neighbouring channels that a thread finishes together."""
WORD = 4
LARGEST_NARROW = 64 * 64
"""Most elements of a tile whose threads copy less than 16 bytes at a time; larger tiles lack registers for it."""


class MmaSizes(NamedTuple):
    """Sizes of a launch.

    Attributes:
        tiles, share: tiles of K in all, and tiles in a part of K.
        parts: parts of K; blocks along z per group.
        depth, outputs: data channels and output channels of a group.
        channels: channels of an output pixel.
    """

    tiles: Number
    share: Number
    parts: Number
    depth: Number
    outputs: Number
    channels: Number


@dataclass(frozen=True, eq=False, slots=True)
class Mma(ContractTemplate):
    """A product of pixels by channels, on tensor cores.

    Attributes:
        has_async_copy: whether the GPU has cp.async and whole mma steps.
        has_halo: whether pixels outside the image are not zeros.
        weights: the element type of weights; of floats, integers are converted on the way to shared memory.
    """

    family: ClassVar[str] = "contract_mma"
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
        halo = ("pointer",) * self.has_halo
        return *("pointer",) * 5, halo, extra, MmaSizes, SourceSizes, (PlaceSizes,) if self.is_scattered else ()

    def write(
        self,
        code: Code,
        output: Value,
        data: Value,
        weights: Value,
        bias: Value,
        table: Value,
        halo: Sequence[Value],
        extra: Sequence[Value],
        sizes: MmaSizes,
        source: SourceSizes,
        places: Sequence[PlaceSizes],
    ) -> None:
        """Args:
        weights: [groups, tiles of N, tiles of K].
        halo: 16 bytes of the value of pixels outside the image.
        places: for a scattered problem, the positions of its pixels in the output.
        """
        arguments = ContractArguments(output, data, weights, bias, table, extra)
        place = places[0] if places else None
        MmaKernel(code, self, arguments, sizes, source, place, halo[0] if halo else None).write()


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
        if self.halo is not None:
            (self.outside,) = self.code.load(self.halo, 0, I32)

    def rows(self, first: Value, channel: Value) -> list[PixelRow]:
        pixels = [first + self.row + at for at in self.places]
        return [self.gather.row(pixel, channel) for pixel in pixels]

    def place(self, at: int, nbytes: int) -> Value:
        chunk = self.unit * self.unit_bytes // CHUNK + nbytes // CHUNK
        return self.swizzle.place(self.row, chunk) + (at * self.pitch * self.swizzle.row_bytes + nbytes % CHUNK)

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
        source = self._source(tile)
        return [self._chunk(source + at) for at in self.places]

    def _chunk(self, place: Value) -> list[Value]:
        """The numbers of a chunk that begins `place` bytes after the first one in shared memory."""
        code, element, stored = self.code, self.template.operand.element, self.template.weights
        found = load_run(code, stored, self.weights, place // element.nbytes, CHUNK // element.nbytes)
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
        source: SourceSizes,
        place: PlaceSizes | None,
        halo: Value | None,
    ) -> None:
        self.template, self.sizes, self.halo, tile = template, sizes, halo, template.tile
        self.thread, z = code.special("tid.x"), code.special("ctaid.z")
        group, part = (z // sizes.parts, z % sizes.parts) if template.is_part else (z, code.integer(0))
        self.first = part * sizes.share
        self.tiles = code.minimum(sizes.tiles - self.first, sizes.share)
        super().__init__(
            code, template, arguments, tile.stages, sizes.depth, sizes.channels, source, place, group, part
        )
        self.data = MmaDataLoader(self)
        first = self.panel * sizes.tiles + self.first
        nbytes = tile.columns * tile.row_bytes
        loader = partial(MmaWeightLoader, template) if template.converts_weights else WeightLoader
        self.weights = loader(code, arguments.weights, first, self.thread, tile.threads, nbytes)
        self._locate_warp()

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
        is_asynchronous = self.template.is_asynchronous
        sums = self.overlapped(self._nothing()) if is_asynchronous else self._through_registers()
        self.code.barrier()
        self._share_sums(sums)
        self.code.barrier()
        self._finish()

    def copy(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry], tile: Value, slot: Value) -> None:
        place = self.shared + slot
        with self.code.when(tile < self.tiles):
            self.data.copy(rows, entries, place)
            self.weights.copy(tile, self.weights_slot(place))

    def weights_slot(self, slot: Value) -> Value:
        """The address where a slot's weights begin."""
        place: Value = slot + self.tile.rows * self.tile.row_bytes
        return place

    def _accumulate(self, sums: Sequence[Value], slot: Value, meanwhile: Callable[[], None] = nothing) -> list[Value]:
        return self.shape.accumulate(self.code, sums, slot, self.weights_slot(slot), self.starts, meanwhile)

    def _nothing(self) -> list[Value]:
        return [self.code.constant(self.template.sums.dtype, 0)] * self.shape.sums

    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        added = self._accumulate(sums, self.shared + slot, copy)
        advance()
        return added

    # copies through registers, one tile ahead

    def _through_registers(self) -> list[Value]:
        """All sums. While a tile is multiplied, the next one is loaded to registers."""
        code, rows = self.code, self.rows()
        self._put(*self._fetch(rows, code.integer(0)), self.shared)
        initial = [code.integer(0), *self._nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(rows, tile)
            following[1:] = self._accumulate(now[1:], self.shared + now[0])
            following[0] = self.next_slot(now[0])
            self._put(*fetched, self.shared + following[0])
        code.barrier()
        return self._accumulate(following[1:], self.shared + following[0])

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

    def _finish(self) -> None:
        """Adds the bias, applies the epilogue and stores the results; each thread takes runs of neighbouring
        channels."""
        code, tile = self.code, self.tile
        runs = tile.columns // self.run
        column = self.thread % runs * self.run
        channel = code.special("ctaid.y") * tile.columns + column
        first, pitch = self.thread // runs, tile.threads // runs
        bias = self.bias(column, self.run)
        with code.when(channel < self.sizes.outputs), code.loop(-(-tile.rows // pitch)) as turn:
            row = first + turn * pitch
            pixel = self.first_pixel + row
            inside = pixel < self.pixels if tile.rows % pitch == 0 else (pixel < self.pixels) & (row < tile.rows)
            with code.when(inside):
                self.store(self._sums(row, column, bias), pixel, self.group * self.sizes.outputs + channel)

    def _sums(self, row: Value, column: Value, bias: Sequence[Value]) -> list[Value]:
        """The sums of one run of columns, added up over all slices of K."""
        slices = [self._slice(number, row, column) for number in range(self.tile.warps[2])]
        slices += [bias] if bias else []
        return [reduce_tree(values, lambda a, b: a + b) for values in zip(*slices, strict=True)]

    def _slice(self, number: int, row: Value, column: Value) -> Sequence[Value]:
        place = self._sum_place(number, row, column)
        return load_run(self.code, self.template.sums, place, self.code.integer(0), self.run)


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launches of a contraction on tensor cores, one per phase.

    Raises:
        CompileError: the GPU does not support the precision.
    """
    operand = operand_of(writer, problem)
    if operand in (Operand.BFLOAT16, Operand.TF32) and not writer.gpu.has_async_copy:
        raise CompileError(f"{writer.gpu.architecture} has no {operand.value} tensor cores, expected sm_80 or later")
    epilogue, extra = writer.epilogue(problem.node)
    for phase in problem.phases:
        template, parts = choose(writer, problem, phase, epilogue)
        if parts == 1:
            _launch(writer, problem, phase, template, TensorPointer(problem.output), extra, 1)
        else:
            sums = writer.temporary(parts * problem.pixels(phase) * problem.target[3] * FLOAT)
            _launch(writer, problem, phase, _of_part(template), sums, (), parts)
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


def choose(writer: Writer, problem: ConvProblem, phase: Phase, epilogue: Epilogue) -> tuple[Mma, int]:
    """The template that suits one phase of a problem on the writer's GPU, and the number of blocks that split K."""
    operand = operand_of(writer, problem)
    output = writer.element(problem.output)
    template = Mma(
        operand=operand,
        source=writer.element(problem.data),
        output=output,
        tile=TILES[0],
        width=problem.width(CHUNK // operand.element.nbytes),
        run=common_width((problem.outputs,), min(output.widest, RUN)),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        is_part=False,
        has_async_copy=writer.gpu.has_async_copy,
        has_halo=problem.halo != 0 and not problem.is_direct,
        weights=problem.weights,
        epilogue=epilogue,
    )
    gpu, size = writer.gpu, _size(problem, phase, operand)
    tiles = [tile.shortened(size[2]) for tile in _fitting(template, gpu)]
    if operand.is_integer:
        tiles = _compact([tile.trimmed(size[2]) for tile in tiles], problem.outputs, size[2])
    candidates = [(tile, parts) for tile in tiles for parts in _parts(tile, size[2], problem)]
    results = size[0] * problem.outputs * problem.groups

    def together(one: tuple[Tile, int]) -> float:
        tile, parts = one
        return tile.cycles(gpu, parts, *size) + combining_cycles(gpu, parts, results, COMBINE_CYCLES)

    tile, parts = min(candidates, key=together)
    return replace(template, tile=tile), parts


def _compact(tiles: Sequence[Tile], outputs: int, k_bytes: int) -> list[Tile]:
    """The tiles that pad weights by little, or by the least."""
    padded = [tile.padded(outputs, k_bytes) for tile in tiles]
    most = max(MOST_PADDED, min(padded))
    return [tile for tile, times in zip(tiles, padded, strict=True) if times <= most]


def _size(problem: ConvProblem, phase: Phase, operand: Operand) -> tuple[int, int, int, int]:
    """(pixels, outputs, bytes of K, groups) of a phase."""
    return problem.pixels(phase), problem.outputs, phase.steps * operand.element.nbytes, problem.groups


def _parts(tile: Tile, k_bytes: int, problem: ConvProblem) -> list[int]:
    """Possible numbers of blocks that split K; every block has at least one tile."""
    turns = max(-(-k_bytes // tile.row_bytes), 1)
    shares = [-(-turns // wanted) for wanted in (1, 2, 3, 4, 6, 8)]
    found = [-(-turns // share) for share in shares if share >= FEWEST_TILES]
    return [1] if problem.is_scattered else [1, *found]


def _fitting(template: Mma, gpu: Gpu) -> list[Tile]:
    """The tiles that fit in the GPU's shared memory and in a thread's registers."""
    tiles: Sequence[Tile] = (*TILES, NARROW_TILE) if template.operand.is_integer else TILES
    tiles = tiles if template.is_asynchronous else [replace(tile, stages=2) for tile in tiles]
    if template.operand.is_integer and template.unit_bytes < WORD:  # a thread keeps the places of all its chunks
        tiles = [replace(tile, row_bytes=max(SHORTEST_ROW, tile.warps[2] * STEP)) for tile in tiles]
    most = LARGEST_NARROW if template.unit_bytes < CHUNK or template.converts else TILES[0].rows * TILES[0].columns
    return [tile for tile in tiles if tile.shared_bytes <= gpu.shared_bytes and tile.rows * tile.columns <= most]


def _launch(
    writer: Writer,
    problem: ConvProblem,
    phase: Phase,
    template: Mma,
    output: TensorPointer,
    extra: Sequence[Argument],
    parts: int,
) -> None:
    tile, nbytes = template.tile, template.operand.element.nbytes
    tile_k = tile.row_bytes // nbytes
    sizes = (problem.groups, tile_k, tile.columns)
    _, steps, columns = phase.matrices_shape(*sizes)
    tiles = steps // tile_k
    table = NoPointer() if template.is_direct else writer.constant(problem.table(phase, template.width, tile_k))
    writer.launch(
        template,
        (-(-problem.pixels(phase) // tile.rows), columns // tile.columns, problem.groups * parts),
        (
            output,
            writer.pointer(problem.data),
            writer.packed(
                ("tiles in shared memory", sizes, tile, template.operand),
                [phase.weights],
                lambda: [tiled(phase.matrices(*sizes), tile, template.operand)],
            ),
            writer.constant(problem.biases(phase, tile.columns)),
            table,
            (writer.constant(np.full(CHUNK, problem.halo, template.source.dtype)),) if template.has_halo else (),
            extra,
            MmaSizes(tiles, -(-tiles // parts), parts, problem.depth, problem.outputs, problem.target[3]),
            problem.source(phase),
            (problem.place(phase),) if template.is_scattered else (),
        ),
        tile.shared_bytes,
        cycles=tile.cycles(writer.gpu, parts, *_size(problem, phase, template.operand)),
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
