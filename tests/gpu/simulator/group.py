"""A group of lanes that step together: registers, the lanes now active, and the memories they see."""

from __future__ import annotations

import numpy as np

from tests.gpu.simulator.copies import CopyQueue
from tests.gpu.simulator.order import BLOCK, Clock
from tests.gpu.simulator.spaces import GlobalSpace, SharedSpace
from tests.gpu.simulator.types import REGISTER_DTYPES, Array


class Active:
    """The lanes that execute the current instructions. `partial`: some living lane of the group is not among them."""

    __slots__ = ("_lanes", "mask", "partial")

    def __init__(self, mask: Array, partial: bool) -> None:
        self.mask, self.partial = mask, partial
        self._lanes: Array | None = None

    @property
    def lanes(self) -> Array:
        """Their numbers within the group, ascending."""
        if self._lanes is None:
            self._lanes = np.flatnonzero(self.mask)
        return self._lanes

    def split(self, condition: Array) -> tuple[Active | None, Active | None]:
        """(those for whom the condition holds, the others); None for nobody."""
        if condition.size == 1:
            return (self, None) if condition[0] else (None, self)
        inside = self.mask & condition
        if not inside.any():
            return None, self
        outside = self.mask & ~condition
        if not outside.any():
            return self, None
        return Active(inside, True), Active(outside, True)


class Group:
    """Whole warps of one or more blocks, one lane a thread; lanes past the end of a block never become active.

    Registers are arrays that are replaced, never changed: one element a lane, or one for all lanes.

    Attributes:
        early: the lanes for which launches before this one may still run; None if there are none.
        thread_tag, since_warp, since_block: who each lane is, and when its warp and its block last met at a barrier;
            see `order.py`.
    """

    def __init__(
        self,
        register_types: list[str],
        placement: Placement,
        shared: SharedSpace,
        global_space: GlobalSpace,
        parameters: Array,
        clock: Clock,
        *,
        is_dependent: bool = False,
    ) -> None:
        self.size = placement.thread.size
        self.registers = [np.zeros(1, REGISTER_DTYPES[kind]) for kind in register_types]
        self.placement = placement
        self.block_in_batch = placement.block
        self.clock = clock
        self.thread_tag = (placement.block_number + 1).astype(np.int64) * BLOCK + placement.thread
        self.since_warp, self.since_block = (np.zeros(self.size, np.int64) for _ in range(2))
        self.shared, self.global_space = shared, global_space
        self.copies = CopyQueue(self.size)
        self.arrived = np.zeros(self.size, bool)
        self.live = placement.exists.copy()
        self.active = Active(self.live, False)
        self.steps = 0
        self.parameters = parameters
        self.early = placement.exists.copy() if is_dependent else None

    def pass_barrier(self, lanes: Array, now: int, *, whole_block: bool) -> None:
        """Notes that these lanes (their mask or numbers) passed a barrier of their warp, or of their block."""
        self.since_warp[lanes] = now
        if whole_block:
            self.since_block[lanes] = now

    def await_launches(self) -> None:
        """The active lanes wait for the launches before this one."""
        if self.early is not None:
            self.early = self.early & ~self.active.mask
            if not self.early.any():
                self.early = None

    def is_early(self, lanes: Array) -> bool:
        """Whether some of these lanes have not waited."""
        return self.early is not None and bool(self.early[lanes].any())

    def put(self, slot: int, raw: Array) -> None:
        """Sets a register of the active lanes."""
        if self.active.partial:
            raw = np.where(self.active.mask, raw, self.registers[slot])
        self.registers[slot] = raw

    def put_active(self, slot: int, values: Array) -> None:
        """Sets a register from one value per active lane."""
        if values.size == self.size:
            self.registers[slot] = values
            return
        old = self.registers[slot]
        new = np.full(self.size, old[0]) if old.size == 1 else old.copy()
        new[self.active.lanes] = values
        self.registers[slot] = new

    def of_active(self, values: Array) -> Array:
        """One value per active lane."""
        lanes = self.active.lanes
        if values.shape[0] == 1:
            return np.repeat(values, lanes.size, axis=0)
        return values if lanes.size == self.size else values[lanes]

    def every(self, values: Array) -> Array:
        """One value per lane of the group."""
        return np.repeat(values, self.size) if values.shape[0] == 1 else values


class Placement:
    """Which thread of which block each lane is.

    `thread`: number within its block; `block`: number within the batch; `block_number`: number within the grid;
    `exists`: False for the lanes that fill up a block's last warp; `thread_index`, `block_index`: x, y, z as uint32.
    """

    def __init__(self, thread: Array, block: Array, block_numbers: Array, grid: Position, shape: Position) -> None:
        self.thread, self.block = thread, block
        self.block_number = block_numbers[block]
        self.grid, self.shape = grid, shape
        self.exists = thread < shape[0] * shape[1] * shape[2]
        self.thread_index = _split_index(thread, shape)
        self.block_index = _split_index(self.block_number, grid)

    def of(self, lane: int) -> tuple[Position, Position]:
        """(block, thread) of a lane as x, y, z."""
        x, y, z = (int(axis[lane]) for axis in self.block_index)
        u, v, w = (int(axis[lane]) for axis in self.thread_index)
        return (x, y, z), (u, v, w)


Position = tuple[int, int, int]


def _split_index(number: Array, shape: Position) -> tuple[Array, Array, Array]:
    x, y, _ = shape
    return tuple(axis.astype(np.uint32) for axis in (number % x, number // x % y, number // (x * y)))  # type: ignore[return-value]
