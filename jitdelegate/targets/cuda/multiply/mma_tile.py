"""Tiles for tensor cores: their shape and their estimated time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.targets.cuda.code.cost import COPIED, cycles
from jitdelegate.targets.cuda.code.gpu import REGISTERS, Gpu
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand, Swizzle

FLOAT = 4
OTHER_REGISTERS = 88
"""Most registers that a thread needs beside its sums."""
PRODUCTS = 1024
"""Multiplications of 16-bit numbers that a multiprocessor begins per cycle, on GPUs for data centres."""
TURN_CYCLES = 180
"""Cycles from one barrier of a pipeline to the next, if no resource is the bottleneck: matrices from shared memory, a
chain of products per step, the barrier. Estimated from instruction latencies."""
COMBINE_CYCLES = 3500
"""Cost of a second launch, which adds up parts of K."""
ENDS_CYCLES = 1500
"""Cycles before the first and after the last multiplication of a block: three dependent reads of memory, a store."""
UNIT_INSTRUCTIONS = 12
"""Instructions that find, load, convert and store a unit of less than 16 bytes, counted in machine code."""
ISSUE_CYCLES = 2
"""Cycles between two instructions of a warp that is alone."""
SHORTEST_ROW = 64
"""Fewest bytes of K in a tile."""
MOST_PADDED = 1.2
"""Integer weights of a network are padded by less than this, where a tile allows it: they are read once a run."""
FINISHED = 8
"""Sums per cycle that a multiprocessor takes through shared memory and the epilogue."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a block: `rows` pixels by `columns` output channels, `row_bytes` of K at a time.

    Attributes:
        warps: warps along rows, columns and K; warps along K split each tile's K, and their sums are added in the end.
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
        """Shared memory of the ring, or of the sums that later take its place."""
        return max(self.stages * self.stage_bytes, self.rows * self.columns * FLOAT * self.warps[2])

    @property
    def data_bytes(self) -> int:
        """Bytes of data in a slot, before the weights."""
        return self.rows * self.row_bytes

    @property
    def slices(self) -> int:
        """Groups of warps that split K, each of which leaves all sums of the tile in shared memory."""
        return self.warps[2]

    @property
    def sums(self) -> int:
        """Number of sums of a thread."""
        return self.rows * self.columns * self.warps[2] // self.threads

    def shortened(self, k_bytes: int) -> Tile:
        """The tile with rows shortened to what K needs, but with at least one step per warp."""
        least = max(SHORTEST_ROW, self.warps[2] * STEP)
        row_bytes = self.row_bytes
        while row_bytes // 2 >= max(least, k_bytes):
            row_bytes //= 2
        return replace(self, row_bytes=row_bytes)

    def trimmed(self, k_bytes: int) -> Tile:
        """The tile with rows shortened until K is padded by little, but with at least one step per warp."""
        tile, least = self.shortened(k_bytes), max(SHORTEST_ROW, self.warps[2] * STEP)
        while tile.row_bytes > least and -(-k_bytes // tile.row_bytes) * tile.row_bytes > MOST_PADDED * k_bytes:
            tile = replace(tile, row_bytes=tile.row_bytes // 2)
        return tile

    def padded(self, outputs: int, k_bytes: int) -> float:
        """Weights padded to whole tiles over those that there are."""
        columns, steps = -(-outputs // self.columns) * self.columns, -(-k_bytes // self.row_bytes) * self.row_bytes
        return columns * steps / max(outputs * k_bytes, 1)

    def resident(self, gpu: Gpu) -> int:
        """Blocks with this tile that a multiprocessor runs at a time."""
        by_registers = REGISTERS // (self.threads * (self.sums + OTHER_REGISTERS))
        return max(min(by_registers, gpu.shared_bytes // self.shared_bytes), 1)

    @property
    def product_cycles(self) -> float:
        """Cycles in which a multiprocessor begins the multiplications of a tile of K."""
        return self.rows * self.columns * self.row_bytes / 2 / PRODUCTS

    @property
    def ends(self) -> float:
        """Cycles for which the end of a block keeps a multiprocessor busy."""
        return self.rows * self.columns * self.warps[2] / FINISHED

    def gathering(self, unit_bytes: int) -> int:
        """Instructions of all threads for single units of data, for each tile of K."""
        return 0 if unit_bytes >= CHUNK else self.rows * self.row_bytes // unit_bytes * UNIT_INSTRUCTIONS

    def cycles(
        self, gpu: Gpu, parts: int, pixels: int, outputs: int, k_bytes: int, groups: int, unit_bytes: int = CHUNK
    ) -> float:
        """Estimated cycles of all blocks of a problem, without the launch that adds up parts of K.

        Args:
            unit_bytes: bytes of data in shared memory for which a place is looked up.
        """
        blocks = -(-pixels // self.rows) * -(-outputs // self.columns) * groups * parts
        turns = -(-k_bytes // (self.row_bytes * parts))
        gathering = self.gathering(unit_bytes)
        turn = max(self.product_cycles + gathering / gpu.lanes, self.stage_bytes / COPIED)
        alone = TURN_CYCLES + gathering * ISSUE_CYCLES / self.threads
        return cycles(gpu, blocks, self.resident(gpu), turns, turn, alone, ENDS_CYCLES, self.ends)


WIDE_TILES = (Tile(128, 256, (2, 4, 1), 64, 4), Tile(64, 128, (2, 2, 1), 64, 4))
"""For large products besides: the first one reads each number least often, the second one suits fewer pixels."""
SLIM_TILES = (
    Tile(128, 32, (4, 1, 1), 64, 4),
    Tile(64, 32, (4, 1, 1), 64, 4),
    Tile(128, 16, (2, 1, 1), 64, 4),
    Tile(64, 16, (2, 1, 1), 64, 4),
)
"""For few output channels besides, as first convolutions have."""
TILES = (
    Tile(128, 128, (2, 2, 1), 64, 4),
    Tile(128, 64, (2, 2, 1), 64, 4),
    Tile(64, 64, (2, 2, 1), 128, 3),
    Tile(64, 32, (2, 1, 2), 128, 4),
    Tile(32, 32, (1, 1, 4), 256, 3),
    Tile(16, 32, (1, 1, 8), 256, 4),
)
"""Large tiles first: of equally good tiles the first is chosen."""


def packed(matrices: np.ndarray, tile: Tile, operand: Operand) -> np.ndarray:
    """[groups, K, N] in the order in which the kernel copies it: each tile as it lies in shared memory.

    Returns: [groups, tiles of N, tiles of K, rows of a tile, chunks of a row, elements of a chunk].
    """
    turned = matrices.transpose(0, 2, 1)
    stored = operand.rounded(turned) if turned.dtype == np.float32 else turned
    groups, columns, steps = stored.shape
    count = CHUNK // operand.element.nbytes
    chunks = tile.row_bytes // CHUNK
    parts = stored.reshape(groups, columns // tile.columns, tile.columns, steps // (chunks * count), chunks, count)
    rows = np.arange(tile.columns)[:, None]
    return parts.transpose(0, 1, 3, 2, 4, 5)[:, :, :, rows, np.arange(chunks) ^ Swizzle(tile.row_bytes).key(rows)]
