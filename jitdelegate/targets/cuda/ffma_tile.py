"""Tiles of float32 multiply-adds: their shape, and how long they take."""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.targets.cuda.cost import COPIED
from jitdelegate.targets.cuda.gpu import Gpu

FLOAT = 4
QUAD = 4
"""Neighbouring numbers in one access to shared memory."""
LANES_DOWN, LANES_ACROSS = 4, 8
"""How a warp's lanes lie over its rows and columns."""
MEETING_BYTES = 40 * 1024
"""Shared memory for the sums of slices; where it is too small for all, some are added up first."""
SHARED_BYTES = 48 * 1024
"""Of a ring of tiles: what every GPU gives a block without being asked, and two of them fit on most."""
REGISTERS = 65536
"""Of a multiprocessor, on every supported GPU."""
MANY_SUMS = 64
"""Sums of a thread that take over 128 registers, with all that is around them."""
TURN_CYCLES = 120
"""From one tile of K to the next beside the multiplications, if nothing is in short supply: barrier, first loads from
shared memory. Estimated from instruction latencies, like the two below."""
ENDS_CYCLES = 2500
"""Before the first and after the last multiplication of a block: three reads of memory in a row, a store."""
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

    @property
    def sums(self) -> int:
        """Of a lane."""
        return self.height * self.width

    @property
    def has_many_sums(self) -> bool:
        """Whether a thread takes over 128 registers."""
        return self.sums >= MANY_SUMS

    @property
    def resident(self) -> int:
        """Blocks of it that a multiprocessor has registers for, going by what kernels were seen to take."""
        return REGISTERS // ((168 if self.has_many_sums else 128) * self.threads)

    def cycles(self, gpu: Gpu, parts: int, pixels: int, outputs: int, steps: int, groups: int) -> float:
        """An estimate of how long all blocks of a problem take, without adding up what those that share out K found."""
        blocks = -(-pixels // self.rows) * -(-outputs // self.columns) * groups * parts
        each = -(-blocks // gpu.multiprocessors)  # of the busiest multiprocessor
        turns = -(-steps // (self.steps * parts))
        turn = max(self.products / gpu.lanes, self.issue_cycles, self.shared_cycles, self.copied_bytes / COPIED)
        waiting = -(-each // self.resident) * (turns * (turn + TURN_CYCLES) + ENDS_CYCLES)
        return max(each * turns * turn, waiting)


TILES = (
    Tile(4, 1, 1, 8, 8, 16),  # 128 x 64
    Tile(2, 1, 2, 8, 8, 16),  # 64 x 64
    Tile(2, 1, 4, 8, 4, 32),  # 64 x 32
    Tile(1, 1, 4, 8, 8, 32),  # 32 x 64
    Tile(1, 1, 8, 8, 4, 32),  # 32 x 32
    Tile(1, 1, 8, 4, 4, 64),  # 16 x 32
)
"""Large ones first: of equals the first one is taken."""
