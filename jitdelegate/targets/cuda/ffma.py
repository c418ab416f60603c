"""Contract in float32 without tensor cores: which tile suits a problem, and its launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from jitdelegate.targets.cuda.conv_problem import SOURCE_SIZES, Problem
from jitdelegate.targets.cuda.cost import COPIED
from jitdelegate.targets.cuda.element import Element, common_width
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.ffma_kernel import (
    COMMON_SIZES,
    FLOAT,
    LANES_ACROSS,
    LANES_DOWN,
    OWN_SIZES,
    QUAD,
    RECORD,
    Arguments,
    FfmaKernel,
)
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.split_k import write_combine
from jitdelegate.targets.cuda.template import Definition, NoPointer, Pointer, Template, TensorPointer
from jitdelegate.targets.cuda.writer import Writer

MEETING_BYTES = 40 * 1024
"""Shared memory for the sums of slices; where it is too small for all, some are added up first."""
SHARED_BYTES = 48 * 1024
"""Of a ring of tiles: what every GPU gives a block without being asked, and two of them fit on most."""
REGISTERS = 65536
"""Of a multiprocessor, on every supported GPU."""
MANY_SUMS = 64
"""Sums of a thread that take over 128 registers, with all that is around them."""
MOST_PIECES = 8
"""Chunks whose pixels a thread has registers for."""
FEWEST_TILES = 4
"""Tiles of K that are worth a block of their own."""
TURN_CYCLES = 120
"""From one tile of K to the next beside the multiplications, if nothing is in short supply: barrier, first loads from
shared memory. Estimated from instruction latencies, like the two below."""
ENDS_CYCLES = 2500
"""Before the first and after the last multiplication of a block: three reads of memory in a row, a store."""
COMBINE_CYCLES = 6000
"""One more launch that waits for this one."""
OTHER_INSTRUCTIONS = 60
"""Of a warp for one tile of K, beside multiplications and loads from shared memory: copies, places, the barrier."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How the warps of a block share out a tile of the output and of K.

    Attributes:
        warps_down, warps_across: over rows (pixels) and columns (output channels).
        slices: groups of warps that share out the steps of K of each tile, and add up in the end.
        height, width: sums of a lane; a warp has LANES_DOWN times as many rows and LANES_ACROSS as many columns.
        steps: of K; data and weights of a tile have a quad for each thread, or several.
    """

    warps_down: int
    warps_across: int
    slices: int
    height: int
    width: int
    steps: int

    @property
    def rows(self) -> int:
        return self.warps_down * LANES_DOWN * self.height

    @property
    def columns(self) -> int:
        return self.warps_across * LANES_ACROSS * self.width

    @property
    def threads(self) -> int:
        return 32 * self.warps_down * self.warps_across * self.slices

    @property
    def row_pitch(self) -> int:
        """Floats from row to row of data in shared memory: four lanes' rows lie in different banks."""
        return self.steps + QUAD

    @property
    def stage_bytes(self) -> int:
        return (self.rows * self.row_pitch + self.steps * self.columns) * FLOAT

    @property
    def products(self) -> int:
        """Multiply-adds for one tile of K."""
        return self.rows * self.columns * self.steps

    @property
    def copied_bytes(self) -> int:
        """Read from global memory for one tile of K."""
        return (self.rows + self.columns) * self.steps * FLOAT

    @property
    def loads(self) -> int:
        """16-byte loads from shared memory that a warp needs for one tile of K."""
        return self.steps // self.slices // QUAD * (self.height + self.width)

    @property
    def shared_cycles(self) -> int:
        """What these loads take of a multiprocessor, two cycles each."""
        return self.threads // 32 * self.loads * 2

    @property
    def issue_cycles(self) -> float:
        """What issuing all instructions for one tile of K takes on four schedulers, one in a cycle on each."""
        return self.threads // 32 * (self.products / self.threads + self.loads + OTHER_INSTRUCTIONS) / 4

    @property
    def most_stages(self) -> int:
        """Slots of the ring where copies are asynchronous."""
        return min(SHARED_BYTES // self.stage_bytes, 4)

    @property
    def meeting(self) -> int:
        """How many slices' sums shared memory has room for; a power of two."""
        fits = max(MEETING_BYTES // (self.rows * self.columns * FLOAT), 1)
        return int(min(1 << fits.bit_length() - 1, self.slices))


TILES = (
    Tile(4, 1, 1, 8, 8, 16),  # 128 x 64
    Tile(2, 1, 2, 8, 8, 16),  # 64 x 64
    Tile(2, 1, 4, 8, 4, 32),  # 64 x 32
    Tile(1, 1, 4, 8, 8, 32),  # 32 x 64
    Tile(1, 1, 8, 8, 4, 32),  # 32 x 32
    Tile(1, 1, 8, 4, 4, 64),  # 16 x 32
)
"""Large ones first: of equals the first one is taken."""


@dataclass(frozen=True, eq=False, slots=True)
class Ffma(Template):
    """Pixels by channels with float32 multiply-adds.

    Attributes:
        source, output: how data and results are stored.
        width: elements of a chunk of the table.
        run: neighbouring channels that are stored together.
        is_direct, is_scattered: as `Problem` has them.
        is_asynchronous: whether copies to shared memory bypass registers.
        is_part: whether it stores plain sums of a part of K, for `Combine`.
    """

    family: ClassVar[str] = "contract_ffma"
    source: Element
    output: Element
    tile: Tile
    width: int
    run: int
    is_direct: bool
    is_scattered: bool
    is_asynchronous: bool
    is_part: bool
    epilogue: Epilogue

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def stages(self) -> int:
        """Slots of the ring of tiles in shared memory."""
        return self.tile.most_stages if self.is_asynchronous else 2

    @property
    def shared_bytes(self) -> int:
        """Of the ring, or of the sums that later take its place."""
        tile = self.tile
        return max(self.stages * tile.stage_bytes, tile.meeting * tile.rows * tile.columns * FLOAT)

    @property
    def pieces(self) -> int:
        """Chunks of data that a thread copies for each tile of K; it keeps the place of the pixel of each."""
        return self.tile.rows * self.tile.steps // self.width // self.threads

    @property
    def resident(self) -> int:
        """Blocks of it that a multiprocessor has registers for, going by what kernels were seen to take."""
        registers = 128 if self.tile.height * self.tile.width < MANY_SUMS else 168
        return REGISTERS // (registers * self.threads)

    @property
    def is_lean(self) -> bool:
        """Whether `resident` may be insisted on without running out of registers."""
        return self.tile.height * self.tile.width < MANY_SUMS and self.pieces <= 4

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def contract(code, output, data, weights, bias, table, phases, extra, sizes):  # type: ignore[no-untyped-def]
            FfmaKernel(code, self, Arguments(output, data, weights, bias, table, phases, extra, sizes)).write()

        def kernel(output, data, weights, bias, table, phases, extra, sizes):  # type: ignore[no-untyped-def]
            contract(output, data, weights, bias, table, phases, extra, sizes)

        count = COMMON_SIZES + (0 if self.is_scattered else OWN_SIZES + SOURCE_SIZES)
        tuples = ("pointer", len(self.epilogue.operands)), ("int32", count)
        return Definition(kernel, (*("pointer",) * 6, *tuples), self.resident if self.is_lean else 1)


def write(writer: Writer, problem: Problem) -> None:
    """The launches of a contraction: one, or two where blocks share out K."""
    epilogue, extra = writer.epilogue(problem.node)
    template, parts = choose(writer, problem, epilogue)
    if parts == 1:
        _launch(writer, problem, template, TensorPointer(problem.output), extra, 1)
    else:
        sums = writer.temporary(parts * prod(problem.target) * FLOAT)
        _launch(writer, problem, replace(template, epilogue=Epilogue(), is_part=True), sums, (), parts)
        write_combine(writer, problem, sums, parts)


def choose(writer: Writer, problem: Problem, epilogue: Epilogue) -> tuple[Ffma, int]:
    """The template that suits a problem on the writer's GPU, and how many blocks share out K."""
    source = writer.element(problem.data)
    template = Ffma(
        source=source,
        output=writer.element(problem.output),
        tile=TILES[0],
        width=problem.width(QUAD),
        run=common_width((problem.outputs,), QUAD),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        is_asynchronous=writer.gpu.has_async_copy and source is Element.FLOAT32,
        is_part=False,
        epilogue=epilogue,
    )
    gpu, size, results = writer.gpu, _size(problem), prod(problem.target)

    def together(one: tuple[Ffma, int]) -> float:
        return cycles(gpu, one[0], one[1], *size) + _combining_cycles(gpu, one[1], results)

    return min(_candidates(template, size[2]), key=together)


def _size(problem: Problem) -> tuple[int, int, int, int]:
    """(pixels, outputs, steps of K, groups) of the largest phase, phases counted as groups."""
    pixels, steps = (max(map(of, problem.phases)) for of in (problem.pixels, lambda phase: phase.steps))
    return pixels, problem.outputs, steps, problem.groups * len(problem.phases)


def _candidates(template: Ffma, steps: int) -> Iterator[tuple[Ffma, int]]:
    """Tiles, and numbers of blocks that share out K; none of them goes without a tile of K."""
    for tile in TILES:
        one, tiles = replace(template, tile=tile), -(-steps // tile.steps)
        if one.pieces > MOST_PIECES:
            continue
        yield one, 1
        most = 1 if template.is_scattered else tiles // FEWEST_TILES
        yield from ((one, -(-tiles // -(-tiles // parts))) for parts in (2, 3, 4, 6, 8) if parts <= most)


def cycles(gpu: Gpu, template: Ffma, parts: int, pixels: int, outputs: int, steps: int, groups: int) -> float:
    """An estimate of how long all blocks of a problem take, without adding up what those that share out K found."""
    tile = template.tile
    blocks = -(-pixels // tile.rows) * -(-outputs // tile.columns) * groups * parts
    each = -(-blocks // gpu.multiprocessors)  # of the busiest multiprocessor
    turns = -(-steps // (tile.steps * parts))
    turn = max(tile.products / gpu.lanes, tile.issue_cycles, tile.shared_cycles, tile.copied_bytes / COPIED)
    waiting = -(-each // template.resident) * (turns * (turn + TURN_CYCLES) + ENDS_CYCLES)
    return max(each * turns * turn, waiting)


def _combining_cycles(gpu: Gpu, parts: int, results: int) -> float:
    """What the launch takes that adds up so many results of so many parts of K."""
    return COMBINE_CYCLES + (parts + 1) * results * FLOAT / (COPIED * gpu.multiprocessors) if parts > 1 else 0.0


def _launch(
    writer: Writer, problem: Problem, template: Ffma, output: TensorPointer, extra: Sequence[Pointer], parts: int
) -> None:
    tile, phases = template.tile, problem.phases
    matrices = [phase.matrices(problem.groups, tile.steps, tile.columns) for phase in phases]
    tables = [problem.table(phase, template.width, tile.steps) for phase in phases]
    records = _records(problem, matrices, tile, parts)
    blocks = max(parts, len(phases))
    own = () if template.is_scattered else records[0, : OWN_SIZES + SOURCE_SIZES].tolist()
    writer.launch(
        template,
        (
            -(-max(map(problem.pixels, phases)) // tile.rows),
            matrices[0].shape[2] // tile.columns,
            problem.groups * blocks,
        ),
        (
            output,
            writer.pointer(problem.data),
            writer.constant(np.concatenate([tiled(matrix, tile) for matrix in matrices])),
            writer.constant(problem.biases(tile.columns)),
            NoPointer() if template.is_direct else writer.constant(np.concatenate(tables)),
            writer.constant(records) if template.is_scattered else NoPointer(),
            *extra,
            *(blocks, problem.depth, problem.outputs, problem.target[3]),
            *own,
        ),
        template.shared_bytes,
        cycles=cycles(writer.gpu, template, parts, *_size(problem)),
    )


def _records(problem: Problem, matrices: Sequence[np.ndarray], tile: Tile, parts: int) -> np.ndarray:
    """int32[phases, RECORD]: for each phase OWN_SIZES, `Problem.source` and `Problem.place`."""
    records = np.zeros((len(matrices), RECORD), np.int32)
    entry = weight = 0
    for record, phase, matrix in zip(records, problem.phases, matrices, strict=True):
        tiles = matrix.shape[1] // tile.steps
        numbers = (tiles, -(-tiles // parts), entry, weight, *problem.source(phase), *problem.place(phase))
        record[: len(numbers)] = numbers
        entry, weight = entry + tiles, weight + matrix.size // (tile.steps * tile.columns)
    return records


def tiled(matrices: np.ndarray, tile: Tile) -> np.ndarray:
    """f32[groups, K, N] as f32[tiles, steps of a tile, columns of a tile]: all of K, then all of N, then the groups."""
    groups, steps, columns = matrices.shape
    parts = matrices.reshape(groups, steps // tile.steps, tile.steps, columns // tile.columns, tile.columns)
    return parts.transpose(0, 3, 1, 2, 4).reshape(-1, tile.steps, tile.columns)
