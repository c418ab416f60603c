"""Windows of 3 by 3 pixels by Winograd's algorithms: results of a tile by fewer products than there are taps.

Each tile of the data becomes a number at some positions of each channel, and so do the weights. One matrix product for
each position gives what becomes the results of the tile. Bytes become numbers of 16 bits; weights are four times as
large, so that they are integers, and sums are divided by four in the end: results are the same, bit for bit. Those of
floats differ by rounding errors, about twice as large as those of the direct way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import add

import numpy as np

from jitdelegate.targets.cpu.code.epilogue import Epilogue, numbers_pointer, stream_pointers
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory, channel_vector, odd_lines, split
from jitdelegate.targets.cpu.code.narrow import without_cast
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.multiply.winograd_algorithm import Algorithm
from jitdelegate.targets.cpu.products.choose_winograd import FEWEST_TILES, GROUP
from jitdelegate.targets.cpu.products.chunks import Chunks, worth
from jitdelegate.targets.cpu.sources.filters import ContractFilters
from jitdelegate.targets.cpu.sources.indirect_gemm import Sweep
from jitdelegate.targets.cpu.sources.panels import PanelGroup, pack, panel_groups
from jitdelegate.targets.cpu.walks.tile import MatrixTileShape, matrix_tile_function
from jitdelegate.targets.cpu.walks.winograd_tiles import (
    DataShape,
    ResultShape,
    TileRow,
    data_function,
    result_function,
)

SCRATCH = 1 << 19
"""Bytes of numbers and sums above which a chunk of floats has no more tiles: half a second-level cache."""


def write_winograd(
    generator: Generator,
    algorithm: Algorithm,
    sweep: Sweep,
    products: Products,
    ends: tuple[Memory, Memory],
    filters: ContractFilters,
    epilogue: Epilogue,
) -> Job:
    """The job of a sweep of a Contract, by an algorithm.

    Args:
        filters: those of the sweep's channels, with the zero point folded into the bias.
    """
    bias = np.zeros(len(sweep.weights), products.accumulator) if filters.bias is None else filters.bias
    depth = filters.stored.shape[3]
    own = _Winograd(algorithm, generator, sweep, products.unpacked, *ends, depth, without_cast(epilogue).shared())
    return own.job(sweep.weights, bias)


@dataclass(frozen=True)
class _Winograd:
    """The sums of a sweep, whose data have `depth` channels."""

    algorithm: Algorithm
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
        return -(-self.sweep.columns // self.algorithm.step)

    @property
    def groups(self) -> tuple[PanelGroup, ...]:
        """The panels of a position."""
        return panel_groups(self.products, len(self.sweep.weights))

    @property
    def vectors(self) -> int:
        return sum(group.vectors * group.count for group in self.groups)

    @property
    def data_groups(self) -> tuple[tuple[int, int], ...]:
        """(channels that are transformed together, how often)."""
        if self.is_float:
            return ((self.products.lanes, -(-self.depth // self.products.lanes)),)
        groups = (GROUP, self.depth // GROUP), (self.depth % GROUP, 1)
        return tuple((lanes, count) for lanes, count in groups if lanes and count)

    @property
    def is_float(self) -> bool:
        return self.products.accumulator == "float32"

    @property
    def number_bytes(self) -> int:
        return np.dtype(self.products.stored).itemsize

    @property
    def tile_bytes(self) -> tuple[int, int]:
        """Bytes of a tile at one position: of its data, and of its sums."""
        depth = sum(lanes * count for lanes, count in self.data_groups)
        return depth * self.number_bytes, self.vectors * self.generator.vector_bytes

    def job(self, weights: np.ndarray, bias: np.ndarray) -> Job:
        """The job, of weights [O, K] and the bias [O]."""
        sweep, generator = self.sweep, self.generator
        positions, step = self.algorithm.positions, self.algorithm.step
        down = -(-sweep.rows // step)
        most = down if self.is_slice else -(-down // 2)
        chunks = Chunks.of(self.a.layout.shape[0], 0, down, min(most, -(-self.tiles_of_chunk // self.across)))
        offset, biases = self._pack(weights), channel_vector(generator.weights, bias, self.products.lanes)
        apart = tuple(odd_lines(chunks.rows * self.across * nbytes) for nbytes in self.tile_bytes)
        generator.reserve_scratch(positions * sum(apart))

        def body(kernel: Kernel) -> None:
            image, _, part = chunks.numbers(kernel)
            a, c = (
                kernel.pointer(memory) + (image * memory.layout.image + start)
                for memory, start in ((self.a, sweep.a_start), (self.c, sweep.c_start))
            )
            targets = [c, *stream_pointers(kernel, self.epilogue.streams, image)]
            data, panels, line = kernel.scratch, kernel.constants(offset), kernel.constants(biases)
            sums, row = data + positions * apart[0], part * (chunks.rows * step)

            def run(rows: int, is_last: bool) -> None:
                low = sweep.rows % step if is_last else 0
                self._transform(kernel, [a + row * sweep.a_row, data], rows, apart[0], low)
                self._multiply(kernel, [data, panels, sums], rows * self.across, apart)
                moves = [sweep.c_row, *(stream.row for stream in self.epilogue.streams)]
                at = [p + row * move for p, move in zip(targets, moves, strict=True)]
                self._finish(kernel, [sums, line, *at], rows, apart[1], low)

            kernel.f.when_last(
                part, chunks.parts, lambda: run(chunks.rows, is_last=False), lambda: run(chunks.last, is_last=True)
            )

        work = chunks.images * self.products.work(sweep.pixels, weights.size)
        return generator.job("winograd", chunks.count, body, worth=worth(work), parts=chunks.parts)

    @property
    def is_slice(self) -> bool:
        """Whether others compute further outputs, so that threads have enough chunks."""
        return len(self.sweep.weights) < self.c.layout.shape[3]

    @property
    def tiles_of_chunk(self) -> int:
        if not self.is_float:
            return FEWEST_TILES
        return max(FEWEST_TILES, SCRATCH // (self.algorithm.positions * sum(self.tile_bytes)))

    def _pack(self, weights: np.ndarray) -> int:
        """The panels of all positions, one after the other; their offset in the constants."""
        algorithm, outputs = self.algorithm, self.vectors * self.products.lanes
        taps = weights.reshape(len(weights), 3, 3, self.depth)
        along = np.einsum("iy,oyxk->oixk", algorithm.filter, taps)
        numbers = np.zeros((algorithm.side, algorithm.side, outputs, self.depth), self.products.stored)
        numbers[:, :, : len(weights)] = np.einsum("oixk,jx->ijok", along, algorithm.filter)
        steps = numbers.reshape(algorithm.positions * outputs, -1, self.products.channels)
        groups = self.groups * algorithm.positions
        return pack(self.generator, self.products, groups, steps, [(np.arange(steps.shape[1]), 0)])

    def _tiles(self, rows: int) -> TileRow:
        """A row of tiles of so many rows of results, or of all where that is 0."""
        step = self.algorithm.step
        return TileRow(self.algorithm, self.sweep.columns % step, rows or step)

    def _geometry(self, kernel: Kernel, *values: int) -> Value:
        """A constant: the number of whole tiles of a row, and further values."""
        geometry = self.sweep.columns // self.algorithm.step, *values
        return Value(kernel.f, POINTER, self.generator.integers("geometry", geometry))

    def _transform(self, kernel: Kernel, pointers: Sequence[Value], rows: int, apart: int, low: int) -> None:
        """Writes the numbers of some rows of tiles."""
        a, groups, nbytes = self.a.layout, self.data_groups, self.tile_bytes[0]
        (lanes, count), *_ = groups
        block = a.block if a.blocked else lanes * a.element
        geometry = self._geometry(kernel, a.row, a.pixel, nbytes, apart, count, block)

        def one(_: Value, image: Value, data: Value, low: int = 0) -> list[Value]:
            shape = DataShape(self._tiles(low), a.dtype, self.products.stored, tuple(lanes for lanes, _ in groups))
            kernel.f.call(data_function(kernel.generator, shape), image, data, geometry)
            return [image + self.algorithm.step * a.row, data + self.across * nbytes]

        _rows(kernel, rows, one, pointers, low)

    def _multiply(self, kernel: Kernel, pointers: Sequence[Value], tiles: int, apart: Sequence[int]) -> None:
        """Writes the sums of some tiles at all positions."""
        f, (data_bytes, sum_bytes), products = kernel.f, self.tile_bytes, self.products
        steps = self.depth // products.channels
        sums = Epilogue(source=products.accumulator, dtype=products.accumulator)

        def panel(_: Value, at: Value, to: Value, *, data: Value, group: PanelGroup) -> list[Value]:
            first, weights = f.index(0), at + group.vectors * products.bias_bytes
            for rows, count in split(tiles, products.rows[group.vectors - 1]):
                shape = MatrixTileShape(
                    products,
                    rows,
                    group.vectors,
                    masked=False,
                    epilogue=sums,
                    steps=steps,
                    a_steps=(data_bytes, products.step_bytes),
                    c_row=sum_bytes,
                )
                f.call(matrix_tile_function(kernel.generator, shape), data, weights, to, first, f.index(count))
                first = first + rows * count
            nbytes = products.panel_bytes(group.vectors, 0, steps)
            return [at + nbytes, to + group.vectors * self.generator.vector_bytes]

        def position(_: Value, data: Value, at: Value, sums: Value) -> list[Value]:
            to = sums
            for group in self.groups:
                at, to = f.loop(group.count, partial(panel, data=data, group=group), at, to)
            return [data + apart[0], at, sums + apart[1]]

        f.loop(self.algorithm.positions, position, *pointers)

    def _finish(self, kernel: Kernel, pointers: Sequence[Value], rows: int, apart: int, low: int) -> None:
        """Stores the results of some rows of tiles."""
        c, epilogue, step = self.c.layout, self.epilogue, self.algorithm.step
        outputs, lanes, nbytes = len(self.sweep.weights), self.products.lanes, self.tile_bytes[1]
        numbers, streams, line = (
            numbers_pointer(kernel, epilogue.numbers),
            epilogue.streams,
            self.generator.vector_bytes,
        )
        blocks, tail = [line, line, c.block, *(stream.block for stream in streams)], outputs % lanes
        masked = tail > 0 and (not c.blocked or epilogue.lanes_to_mask(c) > 0)
        groups = panel_groups(self.products, outputs, masked=masked, widest=1 if self.is_float else 0)
        followed = [(stream.row, stream.pixel, stream.block) for stream in streams]
        still = tuple(row == pixel == 0 for row, pixel, _ in followed)
        geometry = self._geometry(kernel, c.row, c.pixel, nbytes, apart, c.block, tail, *chain(*followed))

        def some(_: Value, *at: Value, shape: ResultShape) -> list[Value]:
            kernel.f.call(result_function(kernel.generator, shape), *at[:3], geometry, *at[3:], *numbers)
            return [p + shape.vectors * block for p, block in zip(at, blocks, strict=True)]

        def one(_: Value, *at: Value, low: int = 0) -> list[Value]:
            tiles = self._tiles(low)
            for group in groups:
                packed = 0 if self.is_float else group.columns(outputs, lanes)
                first = [group.start * block for block in blocks]
                shape = ResultShape(
                    self.products, 1, group.vectors, group.masked, epilogue, packed, tiles=tiles, still=still
                )
                kernel.f.loop(group.count, partial(some, shape=shape), *map(add, at, first))
            moves = [self.across * nbytes, 0, step * c.row, *(step * stream.row for stream in streams)]
            return [p + move for p, move in zip(at, moves, strict=True)]

        _rows(kernel, rows, one, pointers, low)


def _rows(kernel: Kernel, rows: int, one: Callable[..., list[Value]], pointers: Sequence[Value], low: int) -> None:
    """Writes `one` for some rows of tiles, the last of which has `low` rows of results, unless that is 0."""
    whole = rows - (low > 0)
    at = kernel.f.loop(whole, one, *pointers) if whole else pointers
    if low:
        one(kernel.f.index(0), *at, low=low)
