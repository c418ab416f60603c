"""shfl and bar.warp: lanes of a warp that look at each other."""

from __future__ import annotations

import numpy as np

from tests.gpu.simulator.decode import Decoder, Get, Step, instruction
from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.order import WARP
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import TYPES, Array

B32, U32 = TYPES["b32"], TYPES["u32"]
LANES = np.arange(WARP)


def warps(values: Array) -> Array:
    """Values of all lanes as [warp, lane]."""
    return values.reshape(-1, WARP)


def _to_mask(bits: Array) -> Array:
    """bool[warp, lane] -> one uint32 per lane, the same in the whole warp."""
    words = (bits.astype(np.uint64) << LANES.astype(np.uint64)).sum(axis=1).astype(np.uint32)
    return np.repeat(words, WARP)


def require_members(group: Group, get_mask: Get) -> None:
    """Fault "warp divergence" where a lane is named in its warp's member mask but is not here, or the reverse."""
    members = group.every(get_mask(group))
    here = _to_mask(warps(group.active.mask))
    alive = _to_mask(warps(group.live))
    wrong = group.active.mask & ((members & alive) != here)
    if wrong.any():
        lane = int(np.flatnonzero(wrong)[0])
        raise Fault(
            "warp divergence",
            f"lanes {int(members[lane]):#010x} must come here together, lanes {int(here[lane]):#010x} came",
            lane,
        )


@instruction("shfl")
def _shuffle(decoder: Decoder, instruction: Instruction) -> Step:
    mode = next(part for part in instruction.parts if part in ("up", "down", "bfly", "idx"))
    put = decoder.put(instruction.operands[0], B32)
    value, distance, clamp = (decoder.get(operand, B32) for operand in instruction.operands[1:4])
    mask = decoder.get(instruction.operands[4], U32)

    def step(group: Group) -> None:
        require_members(group, mask)
        values = warps(group.every(value(group)))
        source = shuffle_source(mode, warps(group.every(distance(group))), warps(group.every(clamp(group))))
        _require_active_source(group, source)
        put(group, np.take_along_axis(values, source, axis=1).reshape(-1))

    return step


def shuffle_source(mode: str, distance: Array, clamp: Array) -> Array:
    """The lane to read, [warp, lane], as the PTX manual computes it; its own where that is out of range."""
    segment, bound = (clamp >> 8).astype(np.int64) & 31, clamp.astype(np.int64) & 31
    step = distance.astype(np.int64) & 31
    last = (LANES & segment) | (bound & ~segment)
    source = {
        "up": LANES - step,
        "down": LANES + step,
        "bfly": LANES ^ step,
        "idx": (LANES & segment) | (step & ~segment),
    }[mode]
    valid = source >= last if mode == "up" else source <= last
    return np.where(valid, source, LANES)


def _require_active_source(group: Group, source: Array) -> None:
    active = warps(group.active.mask)
    bad = active & ~np.take_along_axis(active, source, axis=1)
    if bad.any():
        raise Fault("warp divergence", "reads a lane that is not active", np.flatnonzero(bad.reshape(-1))[0])


def warp_barrier(decoder: Decoder, instruction: Instruction) -> Step:
    """bar.warp.sync: all lanes of the mask must be here, and see what each other did before. Only a barrier of all
    living lanes counts as one: which lanes met at others is not kept."""
    mask = decoder.get(instruction.operands[0], U32)

    def step(group: Group) -> None:
        require_members(group, mask)
        whole = warps(group.active.mask == group.live).all(axis=1)
        group.pass_barrier(np.repeat(whole, WARP) & group.active.mask, group.clock.tick(), whole_block=False)

    return step
