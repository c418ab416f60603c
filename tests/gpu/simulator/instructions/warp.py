"""shfl, vote, match, activemask, elect, redux and bar.warp: lanes of a warp that look at each other."""

from __future__ import annotations

import numpy as np

from tests.gpu.simulator.decode import Decoder, Get, Step, instruction, items, types_of
from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.order import WARP
from tests.gpu.simulator.syntax import Instruction, Sink
from tests.gpu.simulator.types import TYPES, Array

B32, U32, PRED = TYPES["b32"], TYPES["u32"], TYPES["pred"]
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
    targets = items(instruction.operands[0])
    put = decoder.put(targets[0], B32)
    put_valid = decoder.put(targets[1], PRED) if len(targets) > 1 else None
    value, distance, clamp = (decoder.get(operand, B32) for operand in instruction.operands[1:4])
    mask = decoder.get(instruction.operands[4], U32)

    def step(group: Group) -> None:
        require_members(group, mask)
        values = warps(group.every(value(group)))
        source, valid = shuffle_source(mode, warps(group.every(distance(group))), warps(group.every(clamp(group))))
        _require_active_source(group, source)
        put(group, np.take_along_axis(values, source, axis=1).reshape(-1))
        if put_valid:
            put_valid(group, valid.reshape(-1))

    return step


def shuffle_source(mode: str, distance: Array, clamp: Array) -> tuple[Array, Array]:
    """(lane to read, whether it lies in range), [warp, lane], as the PTX manual computes them."""
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
    return np.where(valid, source, LANES), valid


def _require_active_source(group: Group, source: Array) -> None:
    active = warps(group.active.mask)
    bad = active & ~np.take_along_axis(active, source, axis=1)
    if bad.any():
        raise Fault("warp divergence", "reads a lane that is not active", np.flatnonzero(bad.reshape(-1))[0])


@instruction("vote")
def _vote(decoder: Decoder, instruction: Instruction) -> Step:
    mode = next(part for part in instruction.parts if part in ("ballot", "any", "all", "uni"))
    condition = decoder.condition(instruction.operands[1])
    put = decoder.put(instruction.operands[0], B32 if mode == "ballot" else PRED)
    mask = decoder.get(instruction.operands[2], U32)

    def step(group: Group) -> None:
        require_members(group, mask)
        active = warps(group.active.mask)
        votes = active & warps(group.every(condition(group)))
        any_lane, every_lane = votes.any(axis=1), (votes | ~active).all(axis=1)
        if mode == "ballot":
            put(group, _to_mask(votes))
        else:
            result = {"any": any_lane, "all": every_lane, "uni": every_lane | ~any_lane}[mode]
            put(group, np.repeat(result, WARP))

    return step


@instruction("activemask")
def _activemask(decoder: Decoder, instruction: Instruction) -> Step:
    put = decoder.put(instruction.operands[0], B32)
    return lambda group: put(group, _to_mask(warps(group.active.mask)))


@instruction("match")
def _match(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    targets = items(instruction.operands[0])
    put = decoder.put(targets[0], B32)
    value, mask = decoder.get_raw(instruction.operands[1], kind), decoder.get(instruction.operands[2], U32)
    put_all = decoder.put(targets[1], PRED) if len(targets) > 1 else None

    def step(group: Group) -> None:
        require_members(group, mask)
        active, values = warps(group.active.mask), warps(group.every(value(group)))
        equal = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        if "any" in instruction.parts:
            words = (equal.astype(np.uint64) << LANES.astype(np.uint64)).sum(axis=2).astype(np.uint32)
            put(group, words.reshape(-1))
            return
        agreed = (equal | ~active[:, None, :]).all(axis=2).reshape(-1)
        put(group, np.where(agreed, _to_mask(active), np.uint32(0)))
        if put_all:
            put_all(group, agreed)

    return step


@instruction("redux")
def _redux(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    ufuncs = {
        "add": np.add, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    ufunc = ufuncs[next(part for part in instruction.parts if part in ufuncs)]
    put, value = decoder.put(instruction.operands[0], kind), decoder.get(instruction.operands[1], kind)
    mask = decoder.get(instruction.operands[2], U32)

    def step(group: Group) -> None:
        require_members(group, mask)
        values = warps(group.every(value(group)))
        result = values[:, 0].copy()
        for row, active in enumerate(warps(group.active.mask)):
            if active.any():
                result[row] = ufunc.reduce(values[row][active])
        put(group, np.repeat(result, WARP))

    return step


@instruction("elect")
def _elect(decoder: Decoder, instruction: Instruction) -> Step:
    leader, chosen = items(instruction.operands[0])
    put_leader = None if isinstance(leader, Sink) else decoder.put(leader, B32)
    put, mask = decoder.put(chosen, PRED), decoder.get(instruction.operands[1], U32)

    def step(group: Group) -> None:
        require_members(group, mask)
        first = np.repeat(warps(group.active.mask).argmax(axis=1), WARP).astype(np.uint32)
        put(group, first == np.tile(LANES, group.size // WARP))
        if put_leader:
            put_leader(group, first)

    return step


def warp_barrier(decoder: Decoder, instruction: Instruction) -> Step:
    """bar.warp.sync: all lanes of the mask must be here, and see what each other did before. Only a barrier of all
    living lanes counts as one: which lanes met at others is not kept."""
    mask = decoder.get(instruction.operands[0], U32)

    def step(group: Group) -> None:
        require_members(group, mask)
        whole = warps(group.active.mask == group.live).all(axis=1)
        group.pass_barrier(np.repeat(whole, WARP) & group.active.mask, group.clock.tick(), whole_block=False)

    return step
