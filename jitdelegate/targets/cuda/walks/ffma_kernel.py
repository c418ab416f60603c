"""Device code of Contract in float32 without tensor cores: copy tiles of K, multiply them, add up the sums of the
warps, store.

Tiles of data and weights lie in a ring of slots in shared memory. A lane reads its rows of data and its columns of
weights for four steps of K with 16-byte loads, and uses each loaded number four to eight times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.multiply import ffma_tile
from jitdelegate.targets.cuda.multiply.ffma_tile import LANES_ACROSS, LANES_DOWN, Tile, packed
from jitdelegate.targets.cuda.multiply.quads import FLOAT, QUAD, Quads, ThreadTile, held
from jitdelegate.targets.cuda.multiply.tensor_core import Padded
from jitdelegate.targets.cuda.sources.pixel_gather import TableEntry
from jitdelegate.targets.cuda.walks.contract_kernel import ContractArguments, ContractKernel, ContractTemplate


@dataclass(frozen=True, eq=False, slots=True)
class Ffma(ContractTemplate):
    """A product of pixels by channels, with float32 multiply-adds.

    Attributes:
        is_asynchronous: whether copies to shared memory bypass registers.
    """

    family: ClassVar[str] = "contract_ffma"
    tile: Tile
    is_asynchronous: bool

    @property
    def steps(self) -> int:
        return self.tile.steps

    @property
    def stages(self) -> int:
        return self.tile.most_stages if self.is_asynchronous else 2

    @property
    def pieces(self) -> int:
        """Chunks of data that a thread copies per tile of K; it keeps the position of each chunk's pixel."""
        return self.tile.rows * self.tile.steps // self.width // self.threads

    @property
    def min_blocks(self) -> int:
        """Resident blocks that the registers suffice for, where this limit on registers causes no spills."""
        return 1 if self.tile.has_many_sums or self.pieces > 4 else self.tile.resident

    @property
    def layout(self) -> Padded:
        return Padded(self.tile.row_pitch * FLOAT)

    def packed(self, matrices: np.ndarray) -> Iterable[np.ndarray]:
        return packed(matrices, self.tile)

    @property
    def combine_cycles(self) -> int:
        return ffma_tile.COMBINE_CYCLES

    def cycles(self, gpu: Gpu, parts: int, pixels: int, outputs: int, steps: int, groups: int) -> float:
        return self.tile.cycles(gpu, parts, pixels, outputs, steps, groups)

    def write(self, code: Code, *arguments: Any) -> None:
        FfmaKernel(code, self, ContractArguments.of(arguments)).write()


class FfmaKernel(ContractKernel):
    """Writes the kernel of one template."""

    template: Ffma
    finished = QUAD

    def locate(self) -> None:
        """Neighbouring lanes share columns, and lanes two apart share rows: this halves the time of 16-byte loads of
        both."""
        tile, thread = self.tile, self.thread
        lane, warp = thread & 31, thread >> 5
        down, across = lane & 1 | lane >> 4 << 1, lane >> 1 & LANES_ACROSS - 1
        self.slice = warp // (tile.warps_down * tile.warps_across)
        within = warp % (tile.warps_down * tile.warps_across)
        row = within // tile.warps_across * (LANES_DOWN * tile.height) + down
        column = within % tile.warps_across * (LANES_ACROSS * tile.width) + across * QUAD
        left = Quads(self.code, row, LANES_DOWN, tile.height, tile.row_pitch * FLOAT, turned=False)
        right = Quads(self.code, column, LANES_ACROSS, tile.width, tile.columns * FLOAT, turned=True)
        steps = tile.steps // tile.slices
        skipped = self.slice * (steps * FLOAT), self.slice * (steps * tile.columns * FLOAT)
        self.multiply = ThreadTile(left, right, skipped, steps, held(left, right))

    def swizzled(self, row: Value, column: Value) -> Value:
        return column ^ ((row & 1) << 4)

    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        copy()
        advance()
        return self.accumulate(sums, slot)

    def through_registers(self) -> list[Value]:
        code, zero = self.code, self.code.integer(0)
        rows, entries, (entry,) = self.rows(), self.entries(zero), self.entries(code.integer(1))
        weights = self.weights.fetch(zero, zero < self.tiles)
        code.await_launches()
        self.put(self.data.fetch(rows, entries), weights, self.shared)
        initial = [zero, entry.offset, entry.taps, *self.multiply.nothing()]
        with code.carried(self.tiles, initial) as (tile, now, following):
            code.barrier()
            data = self.data.fetch(rows, [TableEntry(now[1], now[2])])
            weights = self.weights.fetch(tile + 1, tile + 1 < self.tiles)
            (entry,) = self.entries(tile + 2)
            following[:3] = self.next_slot(now[0]), entry.offset, entry.taps
            following[3:] = self.accumulate(now[3:], self.shared + now[0])
            self.put(data, weights, self.shared + following[0])
        return following[3:]
