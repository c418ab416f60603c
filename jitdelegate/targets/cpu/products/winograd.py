"""Windows of 3 by 3 bytes by Winograd's algorithm: four results by sixteen products a channel instead of thirty-six.

Each tile of 4 by 4 pixels becomes sixteen numbers of 16 bits a channel, and so do the weights. Sixteen matrix products,
one for each of these positions, give what becomes 2 by 2 results. Weights are four times as large, so that they are
integers, and sums are divided by four in the end: results are the same, bit for bit.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (https://arxiv.org/abs/1509.09308).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import add

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.epilogue import Epilogue, numbers_pointer, stream_pointers
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory, channel_vector, odd_lines, split
from jitdelegate.targets.cpu.code.narrow import without_cast
from jitdelegate.targets.cpu.code.vector_ir import Value
from jitdelegate.targets.cpu.multiply.pairs import WordPairs
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.products.chunks import Chunks, worth
from jitdelegate.targets.cpu.sources.filters import ContractFilters
from jitdelegate.targets.cpu.sources.indirect_gemm import Sweep
from jitdelegate.targets.cpu.sources.panels import PanelGroup, pack, panel_groups
from jitdelegate.targets.cpu.walks.tile import MatrixTileShape, matrix_tile_function
from jitdelegate.targets.cpu.walks.winograd_tiles import (
    GROUP,
    SIDE,
    STEP,
    ResultShape,
    TileRow,
    data_function,
    result_function,
)

FILTER = np.array([(2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)])
"""Three taps -> four numbers, twice as large as the algorithm's."""
POSITIONS = SIDE * SIDE
SUMS = Epilogue(source="int32", dtype="int32")
MOST = 1 << 29
"""Sums of smaller magnitude fit an int32 when they are four times as large."""
FEWEST_TILES = 16
"""Fewest tiles of a chunk: each chunk reads all weights."""
DIRECT_COST, DATA_COST, RESULT_COST = 0.85, 60, 70
"""Instructions for a vector's products of a channel and their sum in the direct way, some of which multiply bytes; for
the data of a tile in a group of channels; and for its results in a vector."""


def write_winograd(
    generator: Generator,
    form: Contract,
    sweep: Sweep,
    products: WordPairs,
    ends: tuple[Memory, Memory],
    filters: ContractFilters,
    epilogue: Epilogue,
) -> list[Job]:
    """The job of a sweep of a Contract; none where it is computed directly: where that is faster, or sums might wrap.

    Args:
        filters: those of the sweep's channels, with the zero point folded into the bias.
    """
    a, c = (memory.layout for memory in ends)
    depth = filters.stored.shape[3]
    if (
        (form.kernel, form.stride, form.dilation, form.groups, form.transposed) != ((3, 3), (1, 1), (1, 1), 1, False)
        or c.dtype not in ("int8", "uint8")
        or c.blocked
        or depth % (GROUP // 2)
        or not _is_faster(sweep, depth, products.lanes)
    ):
        return []
    weights, element = sweep.weights.astype(np.int64), ELEMENT_TYPES[a.dtype]
    if max(element.maximum, -element.minimum) * np.abs(weights).sum(1).max() >= MOST:
        return []
    bias = np.zeros(len(weights), np.int32) if filters.bias is None else filters.bias
    own = _Winograd(generator, sweep, products, *ends, depth, without_cast(epilogue).shared())
    return [own.job(weights, bias)]


def _is_faster(sweep: Sweep, depth: int, lanes: int) -> bool:
    vectors = -(-len(sweep.weights) // lanes)
    direct = DIRECT_COST * STEP**2 * sweep.weights.shape[1] * vectors
    own = POSITIONS * depth * vectors + RESULT_COST * vectors + DATA_COST * -(-depth // GROUP)
    are_many = sweep.rows * sweep.columns >= STEP**2 * FEWEST_TILES
    return own < direct and are_many and min(sweep.rows, sweep.columns) > STEP


@dataclass(frozen=True)
class _Winograd:
    """The sums of a sweep, whose data have `depth` channels."""

    generator: Generator
    sweep: Sweep
    products: Products
    a: Memory
    c: Memory
    depth: int
    epilogue: Epilogue

    @property
    def across(self) -> int:
        """Tiles of a row."""
        return -(-self.sweep.columns // STEP)

    @property
    def groups(self) -> tuple[PanelGroup, ...]:
        """The panels of a position."""
        return panel_groups(self.products, len(self.sweep.weights))

    @property
    def vectors(self) -> int:
        return sum(group.vectors * group.count for group in self.groups)

    @property
    def tile_bytes(self) -> tuple[int, int]:
        """Bytes of a tile at one position: of its data, and of its sums."""
        return 2 * self.depth, self.vectors * self.generator.vector_bytes

    def job(self, weights: np.ndarray, bias: np.ndarray) -> Job:
        """The job, of weights [O, K] and the bias [O]."""
        sweep, generator = self.sweep, self.generator
        down = -(-sweep.rows // STEP)
        chunks = Chunks.of(self.a.layout.shape[0], 0, down, min(-(-down // 2), -(-FEWEST_TILES // self.across)))
        offset, biases = self._pack(weights), channel_vector(generator.weights, bias, self.products.lanes)
        apart = tuple(odd_lines(chunks.rows * self.across * nbytes) for nbytes in self.tile_bytes)
        generator.reserve_scratch(POSITIONS * sum(apart))

        def body(kernel: Kernel) -> None:
            image, _, part = chunks.numbers(kernel)
            a, c = (
                kernel.pointer(memory) + (image * memory.layout.image + start)
                for memory, start in ((self.a, sweep.a_start), (self.c, sweep.c_start))
            )
            targets = [c, *stream_pointers(kernel, self.epilogue.streams, image)]
            data, panels, line = kernel.scratch, kernel.constants(offset), kernel.constants(biases)
            sums, row = data + POSITIONS * apart[0], part * (chunks.rows * STEP)

            def run(rows: int, is_last: bool) -> None:
                is_low = is_last and sweep.rows % STEP > 0
                self._transform(kernel, [a + row * sweep.a_row, data], rows, apart[0], is_low)
                self._multiply(kernel, [data, panels, sums], rows * self.across, apart)
                moves = [sweep.c_row, *(stream.row for stream in self.epilogue.streams)]
                at = [p + row * move for p, move in zip(targets, moves, strict=True)]
                self._finish(kernel, [sums, line, *at], rows, apart[1], is_low)

            kernel.f.when_last(
                part, chunks.parts, lambda: run(chunks.rows, is_last=False), lambda: run(chunks.last, is_last=True)
            )

        work = chunks.images * self.products.work(sweep.pixels, weights.size)
        return generator.job("winograd", chunks.count, body, worth=worth(work), parts=chunks.parts)

    def _pack(self, weights: np.ndarray) -> int:
        """The panels of all positions, one after the other; their offset in the constants."""
        outputs = self.vectors * self.products.lanes
        taps = weights.reshape(len(weights), 3, 3, self.depth)
        numbers = np.zeros((SIDE, SIDE, outputs, self.depth), np.int16)
        numbers[:, :, : len(weights)] = np.einsum("iy,oyxk,jx->ijok", FILTER, taps, FILTER)
        steps = numbers.reshape(POSITIONS * outputs, -1, self.products.channels)
        return pack(self.generator, self.products, self.groups * POSITIONS, steps, [(np.arange(steps.shape[1]), 0)])

    def _transform(self, kernel: Kernel, pointers: Sequence[Value], rows: int, apart: int, is_low: bool) -> None:
        """Writes the numbers of some rows of tiles."""
        a, odd, nbytes = self.a.layout, self.sweep.columns % STEP > 0, self.tile_bytes[0]

        def one(_: Value, image: Value, data: Value, is_low: bool = False) -> list[Value]:
            shape = TileRow(self.across, odd, is_low, a.row, a.pixel, nbytes, apart)
            kernel.f.call(data_function(kernel.generator, shape, a.dtype, self.depth), image, data)
            return [image + STEP * a.row, data + self.across * nbytes]

        _rows(kernel, rows, one, pointers, is_low)

    def _multiply(self, kernel: Kernel, pointers: Sequence[Value], tiles: int, apart: Sequence[int]) -> None:
        """Writes the sums of some tiles at all positions."""
        f, (data_bytes, sum_bytes), steps = kernel.f, self.tile_bytes, self.depth // self.products.channels

        def panel(_: Value, at: Value, to: Value, *, data: Value, group: PanelGroup) -> list[Value]:
            first = f.index(0)
            for rows, count in split(tiles, self.products.rows[group.vectors - 1]):
                shape = MatrixTileShape(
                    self.products,
                    rows,
                    group.vectors,
                    masked=False,
                    epilogue=SUMS,
                    steps=steps,
                    a_steps=(data_bytes, self.products.step_bytes),
                    c_row=sum_bytes,
                    has_bias=True,
                )
                f.call(matrix_tile_function(kernel.generator, shape), data, at, to, first, f.index(count))
                first = first + rows * count
            nbytes = self.products.panel_bytes(group.vectors, 0, steps)
            return [at + nbytes, to + group.vectors * self.generator.vector_bytes]

        def position(_: Value, data: Value, at: Value, sums: Value) -> list[Value]:
            to = sums
            for group in self.groups:
                at, to = f.loop(group.count, partial(panel, data=data, group=group), at, to)
            return [data + apart[0], at, sums + apart[1]]

        f.loop(POSITIONS, position, *pointers)

    def _finish(self, kernel: Kernel, pointers: Sequence[Value], rows: int, apart: int, is_low: bool) -> None:
        """Stores the results of some rows of tiles."""
        c, sweep, epilogue, odd = self.c.layout, self.sweep, self.epilogue, self.sweep.columns % STEP > 0
        lanes, tail, nbytes = self.products.lanes, len(sweep.weights) % self.products.lanes, self.tile_bytes[1]
        numbers, streams = numbers_pointer(kernel, epilogue.numbers), epilogue.streams
        outputs, line = len(sweep.weights), self.generator.vector_bytes
        blocks = [line, line, c.block, *(stream.block for stream in streams)]

        def some(_: Value, *at: Value, shape: ResultShape) -> list[Value]:
            kernel.f.call(result_function(kernel.generator, shape), *at, *numbers)
            return [p + shape.vectors * block for p, block in zip(at, blocks, strict=True)]

        def one(_: Value, *at: Value, is_low: bool = False) -> list[Value]:
            tiles = TileRow(self.across, odd, is_low, c.row, c.pixel, nbytes, apart)
            for group in panel_groups(self.products, outputs, masked=tail > 0):
                packed, first = group.columns(outputs, lanes), [group.start * block for block in blocks]
                shape = ResultShape(
                    self.products, 1, group.vectors, group.masked, epilogue, packed, tiles, c.block, tail
                )
                kernel.f.loop(group.count, partial(some, shape=shape), *map(add, at, first))
            moves = [self.across * nbytes, 0, STEP * c.row, *(STEP * stream.row for stream in streams)]
            return [p + move for p, move in zip(at, moves, strict=True)]

        _rows(kernel, rows, one, pointers, is_low)


def _rows(kernel: Kernel, rows: int, one: Callable[..., list[Value]], pointers: Sequence[Value], is_low: bool) -> None:
    """Writes `one` for some rows of tiles, the last of which may be low."""
    whole = rows - is_low
    at = kernel.f.loop(whole, one, *pointers) if whole else pointers
    if is_low:
        one(kernel.f.index(0), *at, is_low=True)
