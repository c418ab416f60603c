"""Blocks of a cluster: mapa, arrival at a barrier, and memory that another block shares (shared::cluster).

An address of another block's shared memory is the address in that block, plus RANK_STEP times one more than its rank.
"""

from __future__ import annotations

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction
from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.spaces import RANK_STEP
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import TYPES


@instruction("mapa")
def _map_address(decoder: Decoder, instruction: Instruction) -> Step:
    if instruction.parts[1:] != ("shared__cluster", "u32"):
        raise decoder.unknown(instruction, "only mapa.shared::cluster.u32 is known")
    target, source, rank = instruction.operands
    put = decoder.put(target, TYPES["u32"])
    get, get_rank = (decoder.get(operand, TYPES["u32"]) for operand in (source, rank))

    def step(group: Group) -> None:
        put(group, (get(group) + (get_rank(group) + np.uint32(1)) * np.uint32(RANK_STEP)).astype(np.uint32))

    return step


def cluster_arrival(decoder: Decoder, instruction: Instruction) -> Step:
    """barrier.cluster.arrive; the wait for the others ends a basic block."""

    def step(group: Group) -> None:
        if (group.arrived & group.active.mask).any():
            raise Fault("barrier divergence", "arrives twice without a wait", group.active.lanes[0])
        group.arrived = group.arrived | group.active.mask

    return step
