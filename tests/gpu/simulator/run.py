"""Runs a batch of blocks: strands of lanes within a group, groups in turn, barriers between them."""

from __future__ import annotations

import numpy as np

from tests.gpu.simulator.errors import Fault, SimulationError
from tests.gpu.simulator.group import Active, Group
from tests.gpu.simulator.order import WARP
from tests.gpu.simulator.program import Block, Leave
from tests.gpu.simulator.spaces import SharedSpace
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import Array

RUNNING, DONE = -1, -2
MOST_AT_ONCE = 16
"""Basic blocks of a warp before another one may have its turn, less one, where warps take turns at random."""


class Strands:
    """The lanes of one group, by the basic block they stand before.

    The strand that stands first in the text goes first, so that those who left a branch early wait for the others.
    """

    def __init__(self, group: Group, program: list[Block], kernel: str, limit: int) -> None:
        self.group, self.program, self.kernel, self.limit = group, program, kernel, limit
        self.at: dict[int, Active] = {}
        self.waiting_at = np.full(group.size, RUNNING)  # block after the barrier a lane waits at, or DONE
        self.waiting_at[~group.live] = DONE
        self.send(0, Active(group.live, False))

    def send(self, number: int, lanes: Active | None) -> None:
        """Puts lanes before a basic block, beside those already there."""
        if lanes is None:
            return
        present = self.at.get(number)
        if present is not None:
            lanes = Active(present.mask | lanes.mask, True)
        self.at[number] = lanes

    def run(self, most: int | None = None) -> None:
        """Runs until every lane waits at a barrier or is done, or has entered `most` basic blocks."""
        while self.at and most != 0:
            most = None if most is None else most - 1
            number = min(self.at) if len(self.at) == 1 else self._next()
            lanes = self.at.pop(number)
            if lanes.partial:
                lanes.partial = not np.array_equal(lanes.mask, self.group.live)
            self.group.active = lanes
            block = self.program[number]
            self._execute(block)
            self._leave(number, block, lanes)

    def _next(self) -> int:
        """The first strand, but one that lacks lanes its warps must wait for comes last."""
        first, *others = sorted(self.at)
        return next((number for number in (first, *others) if not self._lacks_lanes(number)), first)

    def _lacks_lanes(self, number: int) -> bool:
        if not self.program[number].converges:
            return False
        here = self.at[number].mask
        elsewhere = (self.waiting_at == RUNNING) & ~here
        return bool((here.reshape(-1, WARP).any(axis=1) & elsewhere.reshape(-1, WARP).any(axis=1)).any())

    def _execute(self, block: Block) -> None:
        group, place = self.group, 0
        group.steps += len(block.steps) + 1
        if group.steps > self.limit:
            raise self.error("limit", f"more than {self.limit} instructions", block.sources[:1], group.active.lanes[0])
        try:
            for place, step in enumerate(block.steps):  # noqa: B007 - the handlers below read it
                step(group)
        except Fault as fault:
            raise self.error(fault.kind, fault.message, block.sources[place : place + 1], fault.lane) from fault
        except SimulationError as error:
            where, thread = group.placement.of(int(group.active.lanes[0]))
            raise SimulationError(
                error.kind,
                error.message,
                kernel=self.kernel,
                line=error.line,
                instruction=error.instruction,
                block=where,
                thread=thread,
            ) from error

    def error(self, kind: str, message: str, source: tuple[Instruction, ...], lane: int) -> SimulationError:
        block, thread = self.group.placement.of(int(lane))
        line, text = (source[0].line, source[0].text) if source else (None, None)
        return SimulationError(
            kind, message, kernel=self.kernel, line=line, instruction=text, block=block, thread=thread
        )

    def _leave(self, number: int, block: Block, lanes: Active) -> None:
        leave = block.leave
        going: Active | None = lanes
        staying: Active | None = None
        if leave.condition is not None:
            going, staying = lanes.split(leave.condition(self.group))
        self.send(number + 1, staying)
        if going is not None:
            self._go(number, leave, going)

    def _go(self, number: int, leave: Leave, lanes: Active) -> None:
        if leave.kind == "fall":
            self.send(number + 1, lanes)
        elif leave.kind == "branch":
            self.send(leave.target, lanes)
        elif leave.kind == "barrier":
            self.waiting_at[lanes.mask] = number + 1
        elif leave.kind == "cluster":
            if not self.group.arrived[lanes.mask].all():
                source = self.program[number].sources[-1:]
                raise self.error("barrier divergence", "waits for a cluster without arriving", source, lanes.lanes[0])
            self.group.arrived = self.group.arrived & ~lanes.mask
            self.waiting_at[lanes.mask] = number + 1
        else:
            self._require_waited(number, lanes)
            self.waiting_at[lanes.mask] = DONE
            self.group.live = self.group.live & ~lanes.mask

    def _require_waited(self, number: int, lanes: Active) -> None:
        if self.group.is_early(lanes.lanes):
            message = "a thread ends that has not waited for the launches before this one"
            raise self.error("early", message, self.program[number].sources[-1:], int(lanes.lanes[0]))
        if self.group.copies.are_under_way(lanes.mask):
            message = "a thread ends, and with it its block's shared memory, before its cp.async was waited for"
            raise self.error("in flight", message, self.program[number].sources[-1:], int(lanes.lanes[0]))

    def release(self, blocks: Array) -> None:
        """Lets the waiting lanes of the released blocks (bool per block of the batch) go on."""
        released = blocks[self.group.block_in_batch] & (self.waiting_at >= 0)
        for number in np.unique(self.waiting_at[released]):
            self.send(int(number), Active(released & (self.waiting_at == number), True))
        self.waiting_at[released] = RUNNING
        self.group.pass_barrier(released, self.group.clock.now, whole_block=True)


def run_batch(strands: list[Strands], shared: SharedSpace, blocks: int, rng: np.random.Generator | None) -> None:
    """Runs the groups of a batch of blocks to their end; with `rng`, some basic blocks of one and then of another."""
    while True:
        while running := [one for one in strands if one.at]:
            if rng is None:
                running[0].run()
            else:
                running[rng.integers(len(running))].run(int(rng.integers(1, MOST_AT_ONCE)))
        first, last = _barrier_range(strands, blocks)
        if (last == DONE).all():
            if shared.shadow.is_open():
                raise SimulationError("race", "a block may end while another one uses its shared memory")
            return
        _require_same_barrier(strands, first, last)
        of_cluster, together = _at_cluster_barriers(strands[0].program, last, shared.cluster.size)
        released = (last >= 0) & (~of_cluster | together)
        if not released.any():
            raise SimulationError("barrier divergence", "blocks of a cluster wait for others that do not come")
        strands[0].group.clock.tick()
        shared.shadow.on_cluster_barrier(of_cluster & together)
        for one in strands:
            one.release(released)


def _at_cluster_barriers(program: list[Block], waiting: Array, size: int) -> tuple[Array, Array]:
    """Whether each block waits at a barrier of its cluster, and whether all blocks of its cluster wait at that one."""
    of_cluster = np.array([at >= 0 and program[at - 1].leave.kind == "cluster" for at in waiting])
    by_cluster = waiting.reshape(-1, size)
    same = (by_cluster == by_cluster[:, :1]).all(axis=1)
    return of_cluster, np.repeat(same, size) & of_cluster


def _barrier_range(strands: list[Strands], blocks: int) -> tuple[Array, Array]:
    """The first and last barrier that threads of each block wait at."""
    first, last = np.full(blocks, np.iinfo(np.int64).max), np.full(blocks, DONE)
    for one in strands:
        exists = one.group.placement.exists
        block, waiting = one.group.block_in_batch[exists], one.waiting_at[exists]
        np.minimum.at(first, block, waiting)
        np.maximum.at(last, block, waiting)
    return first, last


def _require_same_barrier(strands: list[Strands], first: Array, last: Array) -> None:
    torn = first != last
    if not torn.any():
        return
    block = int(np.argmax(torn))
    for one in strands:
        lanes = np.flatnonzero((one.group.block_in_batch == block) & (one.waiting_at == last[block]))
        if lanes.size:
            source = one.program[int(last[block]) - 1].sources[-1:]
            others = "have ended" if first[block] == DONE else f"wait at line {_barrier_line(one, int(first[block]))}"
            message = f"threads wait here while others of the same block {others}"
            raise one.error("barrier divergence", message, source, int(lanes[0]))


def _barrier_line(strands: Strands, number: int) -> int:
    return strands.program[number - 1].sources[-1].line
