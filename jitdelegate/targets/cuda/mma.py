"""Contract on tensor cores, precision "float16", "bfloat16" or "tf32": the tile that suits a problem, its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.targets.cuda.conv_problem import PLACE_SIZES, SOURCE_SIZES, Phase, Problem
from jitdelegate.targets.cuda.cost import COPIED
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import Element, common_width
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.mma_kernel import FLOAT, OWN_SIZES, Arguments, MmaKernel
from jitdelegate.targets.cuda.split_k import write_combine
from jitdelegate.targets.cuda.template import Definition, Kind, NoPointer, Pointer, Template, TensorPointer
from jitdelegate.targets.cuda.tensor_core import CHUNK, STEP, Operand, Swizzle, WarpTile
from jitdelegate.targets.cuda.writer import Writer

REGISTERS = 65536
"""Of a multiprocessor, on every supported GPU."""
OTHER_REGISTERS = 88
"""What a thread needs beside its sums, at most."""
PRODUCTS = 1024
"""Multiplications of 16-bit numbers that a multiprocessor begins in a cycle, on GPUs for data centres."""
TURN_CYCLES = 180
"""From one barrier of a pipeline to the next, if nothing is in short supply: matrices from shared memory, a chain of
products for each step, the barrier. Estimated from instruction latencies."""
ENDS_CYCLES = 1500
"""Before the first and after the last multiplication of a block: three reads of memory in a row, a store."""
COMBINE_CYCLES = 3500
"""One more launch."""
FEWEST_TILES = 4
"""Tiles of K that are worth a block of their own."""
SHORTEST_ROW = 64
"""Bytes of K in a tile at least."""
FINISHED = 8
"""Sums that a multiprocessor takes through shared memory and epilogue in a cycle."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block multiplies: `rows` pixels by `columns` output channels, `row_bytes` of K at a time.

    Attributes:
        warps: along rows, columns and K; warps along K share out every tile's K and add up in the end.
        stages: slots of the ring in shared memory.
    """

    rows: int
    columns: int
    warps: tuple[int, int, int]
    row_bytes: int
    stages: int

    @property
    def threads(self) -> int:
        return 32 * prod(self.warps)

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.columns) * self.row_bytes

    @property
    def shared_bytes(self) -> int:
        """Of the ring, or of the sums that later take its place."""
        return max(self.stages * self.stage_bytes, self.rows * self.columns * FLOAT * self.warps[2])

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.rows * self.columns * self.warps[2] // self.threads

    def shortened(self, k_bytes: int) -> Tile:
        """The tile with rows no longer than K needs, as far as its warps still have a step each."""
        least = max(SHORTEST_ROW, self.warps[2] * STEP)
        row_bytes = self.row_bytes
        while row_bytes // 2 >= max(least, k_bytes):
            row_bytes //= 2
        return replace(self, row_bytes=row_bytes)

    def resident(self, gpu: Gpu) -> int:
        """Blocks of it that a multiprocessor runs at a time."""
        by_registers = REGISTERS // (self.threads * (self.sums + OTHER_REGISTERS))
        return max(min(by_registers, gpu.shared_bytes // self.shared_bytes), 1)

    def cycles(self, gpu: Gpu, parts: int, pixels: int, outputs: int, k_bytes: int, groups: int) -> float:
        """An estimate of how long all blocks of a problem take, without adding up what those that share out K found."""
        blocks = -(-pixels // self.rows) * -(-outputs // self.columns) * groups * parts
        each = -(-blocks // gpu.multiprocessors)  # of the busiest multiprocessor
        turns = -(-k_bytes // (self.row_bytes * parts))
        products = self.rows * self.columns * self.row_bytes / 2 / PRODUCTS
        ends = self.rows * self.columns * self.warps[2] / FINISHED
        busy = each * (turns * max(products, self.stage_bytes / COPIED) + ends)
        waiting = -(-each // self.resident(gpu)) * (turns * TURN_CYCLES + ends + ENDS_CYCLES)
        return max(busy, waiting)


TILES = (
    Tile(128, 128, (2, 2, 1), 64, 4),
    Tile(128, 64, (2, 2, 1), 64, 4),
    Tile(64, 64, (2, 2, 1), 128, 3),
    Tile(64, 32, (2, 1, 2), 128, 4),
    Tile(32, 32, (1, 1, 4), 256, 3),
    Tile(16, 32, (1, 1, 8), 256, 4),
)
"""Large ones first: of equals the first one is taken."""
LARGEST_NARROW = 64 * 64
"""Elements of a tile whose threads copy less than 16 bytes at a time; larger ones lack registers for it."""


@dataclass(frozen=True, eq=False, slots=True)
class Mma(Template):
    """Pixels by channels on tensor cores.

    Attributes:
        source, output: how data and results are stored.
        width: elements of a chunk of the table.
        run: neighbouring channels that a thread finishes and stores together.
        is_direct, is_scattered: as `Problem` has them.
        is_part: whether it stores plain sums of a part of K, for `Combine`.
        has_async_copy: whether the GPU has cp.async and whole mma steps.
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
    epilogue: Epilogue

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def uses_tensor_cores(self) -> bool:
        return True

    @property
    def unit_bytes(self) -> int:
        """Of a chunk of the table, in shared memory."""
        return self.width * self.operand.element.nbytes

    @property
    def is_asynchronous(self) -> bool:
        """Whether data is copied as it is, by cp.async; otherwise it passes registers."""
        return self.has_async_copy and not self.converts and self.unit_bytes >= 4

    @property
    def converts(self) -> bool:
        """Whether data is stored otherwise than tensor cores read it."""
        return self.source is not self.operand.element

    @property
    def warp_tile(self) -> WarpTile:
        """The part of one warp."""
        tile = self.tile
        return WarpTile(
            self.operand,
            tile.rows // tile.warps[0],
            tile.columns // tile.warps[1],
            tile.row_bytes // STEP // tile.warps[2],
            tile.row_bytes,
            self.has_async_copy,
        )

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def contract(
            code: Code,
            output: Value,
            data: Value,
            weights: Value,
            bias: Value,
            table: Value,
            extra: Sequence[Value],
            sizes: Sequence[Value],
        ) -> None:
            MmaKernel(code, self, Arguments(output, data, weights, bias, table, extra, sizes)).write()

        def kernel(output, data, weights, bias, table, extra, sizes):  # type: ignore[no-untyped-def]
            contract(output, data, weights, bias, table, extra, sizes)

        sizes = OWN_SIZES + SOURCE_SIZES + (PLACE_SIZES if self.is_scattered else 0)
        many: tuple[Kind, ...] = (("pointer", len(self.epilogue.operands)), ("int32", sizes))
        return Definition(kernel, ("pointer",) * 5 + many)


def write(writer: Writer, problem: Problem) -> None:
    """The launches of a contraction on tensor cores, one for each phase.

    Raises:
        CompileError: the GPU does not have the precision.
    """
    operand = Operand(writer.precision)
    if operand is not Operand.FLOAT16 and not writer.gpu.has_async_copy:
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
    """The same without an end of its own."""
    output, run = Element.FLOAT32, min(template.run, Element.FLOAT32.widest)
    return replace(template, output=output, run=run, epilogue=Epilogue(), is_part=True)


def choose(writer: Writer, problem: Problem, phase: Phase, epilogue: Epilogue) -> tuple[Mma, int]:
    """The template that suits one phase of a problem on the writer's GPU, and how many blocks share out K."""
    operand = Operand(writer.precision)
    output = writer.element(problem.output)
    template = Mma(
        operand=operand,
        source=writer.element(problem.data),
        output=output,
        tile=TILES[0],
        width=problem.width(CHUNK // operand.element.nbytes),
        run=common_width((problem.outputs,), output.widest),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        is_part=False,
        has_async_copy=writer.gpu.has_async_copy,
        epilogue=epilogue,
    )
    gpu, size = writer.gpu, _size(problem, phase, operand)
    tiles = [tile.shortened(size[2]) for tile in _fitting(template, gpu)]
    candidates = [(tile, parts) for tile in tiles for parts in _parts(tile, size[2], problem)]
    tile, parts = min(
        candidates, key=lambda one: one[0].cycles(gpu, one[1], *size) + _combining_cycles(gpu, one[1], *size)
    )
    return replace(template, tile=tile), parts


def _size(problem: Problem, phase: Phase, operand: Operand) -> tuple[int, int, int, int]:
    """(pixels, outputs, bytes of K, groups) of a phase."""
    return problem.pixels(phase), problem.outputs, phase.steps * operand.element.nbytes, problem.groups


def _combining_cycles(gpu: Gpu, parts: int, pixels: int, outputs: int, k_bytes: int, groups: int) -> float:
    """What the launch takes that adds up the results of so many parts of K."""
    results = pixels * outputs * groups
    return COMBINE_CYCLES + (parts + 1) * results * FLOAT / (COPIED * gpu.multiprocessors) if parts > 1 else 0.0


def _parts(tile: Tile, k_bytes: int, problem: Problem) -> list[int]:
    """Numbers of blocks that can share out K, none of which is left without a tile."""
    turns = max(-(-k_bytes // tile.row_bytes), 1)
    shares = [-(-turns // wanted) for wanted in (1, 2, 3, 4, 6, 8)]
    found = [-(-turns // share) for share in shares if share >= FEWEST_TILES]
    return [1] if problem.is_scattered else [1, *found]


def _fitting(template: Mma, gpu: Gpu) -> list[Tile]:
    """The tiles that the GPU's shared memory and a thread's registers have room for."""
    tiles = TILES if template.is_asynchronous else [replace(tile, stages=2) for tile in TILES]
    most = LARGEST_NARROW if template.unit_bytes < CHUNK or template.converts else TILES[0].rows * TILES[0].columns
    return [tile for tile in tiles if tile.shared_bytes <= gpu.shared_bytes and tile.rows * tile.columns <= most]


def _launch(
    writer: Writer,
    problem: Problem,
    phase: Phase,
    template: Mma,
    output: TensorPointer,
    extra: Sequence[Pointer],
    parts: int,
) -> None:
    tile, nbytes = template.tile, template.operand.element.nbytes
    tile_k = tile.row_bytes // nbytes
    matrices = phase.matrices(problem.groups, tile_k, tile.columns)
    tiles = matrices.shape[1] // tile_k
    table = NoPointer() if template.is_direct else writer.constant(problem.table(phase, template.width, tile_k))
    places = problem.place(phase) if template.is_scattered else ()
    writer.launch(
        template,
        (-(-problem.pixels(phase) // tile.rows), matrices.shape[2] // tile.columns, problem.groups * parts),
        (
            output,
            writer.pointer(problem.data),
            writer.constant(tiled(matrices, tile, template.operand)),
            writer.constant(problem.biases(tile.columns)),
            table,
            *extra,
            *(tiles, -(-tiles // parts), parts, problem.depth, problem.outputs, problem.target[3]),
            *problem.source(phase),
            *places,
        ),
        tile.shared_bytes,
        cycles=tile.cycles(writer.gpu, parts, *_size(problem, phase, template.operand)),
    )


def tiled(matrices: np.ndarray, tile: Tile, operand: Operand) -> np.ndarray:
    """f32[groups, K, N] as the kernel copies them: every tile as it lies in shared memory.

    Returns: [groups, tiles of N, tiles of K, rows of a tile, chunks of a row, elements of a chunk].
    """
    stored = operand.rounded(matrices.transpose(0, 2, 1))
    groups, columns, steps = stored.shape
    each = CHUNK // stored.itemsize
    chunks = tile.row_bytes // CHUNK
    parts = stored.reshape(groups, columns // tile.columns, tile.columns, steps // (chunks * each), chunks, each)
    rows = np.arange(tile.columns)[:, None]
    return parts.transpose(0, 1, 3, 2, 4, 5)[:, :, :, rows, np.arange(chunks) ^ Swizzle(tile.row_bytes).key(rows)]
