"""Tiles for float32 multiply-adds: their shape and their estimated time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jitdelegate.targets.cuda.code.cost import COPIED, cycles
from jitdelegate.targets.cuda.code.gpu import REGISTERS, Gpu
from jitdelegate.targets.cuda.multiply.quads import FLOAT, QUAD

LANES_DOWN, LANES_ACROSS = 4, 8
"""Arrangement of a warp's lanes over its rows and columns."""
SHARED_BYTES = 48 * 1024
"""Most bytes of a ring of tiles: every GPU grants a block this much by default, and two such blocks fit on most."""
MANY_SUMS = 64
"""Sums per thread from which on a thread needs over 128 registers in all."""
TURN_CYCLES = 120
"""Cycles per tile of K beside the multiplications, if no resource is the bottleneck: barrier, first loads from shared
memory. Estimated from instruction latencies, like the two below."""
COMBINE_CYCLES = 6000
"""Cost of a second launch, which adds up parts of K and waits for the first one."""
ENDS_CYCLES = 2500
"""Cycles before the first and after the last multiplication of a block: three dependent reads of memory, a store."""
OTHER_INSTRUCTIONS = 60
"""Instructions of a warp per tile of K beside multiplications and loads from shared memory: copies, addresses, the
barrier."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How the warps of a block divide a tile of the output and of K.

    Attributes:
        warps_down, warps_across: warps over rows (pixels) and columns (output channels).
        slices: groups of warps that split the steps of K of each tile; their sums are added up in the end.
        height, width: sums of a lane; a warp has LANES_DOWN times as many rows and LANES_ACROSS times as many columns.
        steps: steps of K; a tile's data and weights have one or more quads per thread.
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
        """Distance between rows of data in shared memory, in floats: the rows of four lanes lie in different banks."""
        return self.steps + QUAD

    @property
    def data_bytes(self) -> int:
        """Bytes of data in a slot, before the weights."""
        return self.rows * self.row_pitch * FLOAT

    @property
    def stage_bytes(self) -> int:
        return self.data_bytes + self.steps * self.columns * FLOAT

    @property
    def products(self) -> int:
        """Multiply-adds per tile of K."""
        return self.rows * self.columns * self.steps

    @property
    def copied_bytes(self) -> int:
        """Bytes read from global memory per tile of K."""
        return (self.rows + self.columns) * self.steps * FLOAT

    @property
    def loads(self) -> int:
        """16-byte loads from shared memory of a warp per tile of K."""
        return self.steps // self.slices // QUAD * (self.height + self.width)

    @property
    def shared_cycles(self) -> int:
        """Cycles that a multiprocessor spends on these loads, two per load."""
        return self.threads // 32 * self.loads * 2

    @property
    def issue_cycles(self) -> float:
        """Cycles that four schedulers need to issue all instructions per tile of K, each one per cycle."""
        return self.threads // 32 * (self.products / self.threads + self.loads + OTHER_INSTRUCTIONS) / 4

    @property
    def most_stages(self) -> int:
        """Number of slots of the ring where copies are asynchronous."""
        return min(SHARED_BYTES // self.stage_bytes, 4)

    @property
    def sums(self) -> int:
        """Number of sums of a lane."""
        return self.height * self.width

    @property
    def has_many_sums(self) -> bool:
        """Whether a thread needs over 128 registers."""
        return self.sums >= MANY_SUMS

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has registers for, judged by the registers of compiled kernels."""
        return REGISTERS // ((168 if self.has_many_sums else 128) * self.threads)

    def cycles(self, gpu: Gpu, parts: int, pixels: int, outputs: int, steps: int, groups: int) -> float:
        """Estimated cycles of all blocks of a problem, without the launch that adds up parts of K."""
        blocks = -(-pixels // self.rows) * -(-outputs // self.columns) * groups * parts
        turns = -(-steps // (self.steps * parts))
        turn = max(self.products / gpu.lanes, self.issue_cycles, self.shared_cycles, self.copied_bytes / COPIED)
        return cycles(gpu, blocks, self.resident, turns, turn, turn + TURN_CYCLES, ENDS_CYCLES)


TILES = (
    Tile(4, 1, 1, 8, 8, 16),  # 128 x 64
    Tile(2, 1, 2, 8, 8, 16),  # 64 x 64
    Tile(2, 1, 4, 8, 4, 32),  # 64 x 32
    Tile(1, 1, 4, 8, 8, 32),  # 32 x 64
    Tile(1, 1, 8, 8, 4, 64),  # 32 x 32
    Tile(1, 1, 4, 4, 8, 64),  # 16 x 64
    Tile(1, 1, 8, 4, 4, 64),  # 16 x 32
)
"""Large tiles first: of equally good tiles the first is chosen."""


def packed(matrices: np.ndarray, tile: Tile) -> Iterator[np.ndarray]:
    """[groups, K, N] as [K, columns of a tile] for each group and tile of columns."""
    for matrix in matrices:
        for first in range(0, matrix.shape[1], tile.columns):
            yield matrix[:, first : first + tile.columns]
