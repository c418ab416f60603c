"""cp.async and its groups."""

from __future__ import annotations

import numpy as np

from tests.gpu.simulator.decode import Decoder, Get, Step, instruction
from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.syntax import Immediate, Instruction
from tests.gpu.simulator.types import TYPES, Array

U32 = TYPES["u32"]


@instruction("cp")
def _copy(decoder: Decoder, instruction: Instruction) -> Step:
    parts = instruction.parts
    if parts[1] != "async" or "bulk" in parts or "mbarrier" in parts:
        raise decoder.unknown(instruction)
    if "commit_group" in parts:
        return lambda group: group.copies.commit(group)
    if "wait_group" in parts:
        (count,) = instruction.operands
        assert isinstance(count, Immediate)
        newest_left = int(count.text)
        return lambda group: group.copies.wait(group, newest_left)
    return _start(decoder, instruction)


def _start(decoder: Decoder, instruction: Instruction) -> Step:
    size = instruction.operands[2]
    assert isinstance(size, Immediate)
    nbytes = int(size.text)
    if nbytes not in ((16,) if "cg" in instruction.parts else (4, 8, 16)):
        raise decoder.unknown(instruction, f"cp.async cannot copy {nbytes} bytes")
    target, source = decoder.address(instruction.operands[0]), decoder.address(instruction.operands[1])
    filled = decoder.get(instruction.operands[3], U32) if len(instruction.operands) > 3 else None

    def step(group: Group) -> None:
        offsets = group.shared.offsets(group, group.active.lanes, target(group), nbytes, "copies")
        contents = _read(group, source(group), nbytes, filled)
        group.copies.start(group, offsets, contents)

    return step


def _read(group: Group, addresses: Array, nbytes: int, filled: Get | None) -> Array:
    """The bytes to copy [active lane, nbytes]: what lies past the source size is zero and never read."""
    lanes = group.active.lanes
    sizes = np.full(lanes.size, nbytes) if filled is None else group.of_active(filled(group)).astype(np.int64)
    if (sizes > nbytes).any():
        raise Fault("out of bounds", f"the source size is more than {nbytes} bytes", lanes[np.argmax(sizes > nbytes)])
    contents = np.zeros((lanes.size, nbytes), np.uint8)
    for size in np.unique(sizes):
        if size:
            _read_rows(group, addresses, sizes == size, int(size), nbytes, contents)
    return contents


def _read_rows(group: Group, addresses: Array, rows: Array, size: int, nbytes: int, contents: Array) -> None:
    outer = group.active
    inside, _ = outer.split(_spread(group, rows))
    assert inside is not None
    group.active = inside
    crooked = addresses[rows] % nbytes != 0
    if crooked.any():
        raise Fault(
            "misaligned",
            f"cp.async of {nbytes} bytes from {addresses[rows][crooked][0]:#x}",
            inside.lanes[np.argmax(crooked)],
        )
    width = next(width for width in (8, 4, 2, 1) if size % width == 0)
    for start in range(0, size, width):
        (column,) = group.global_space.load(group, addresses[rows] + start, width, 1)
        contents[rows, start : start + width] = column[:, None].view(np.uint8)
    group.active = outer


def _spread(group: Group, rows: Array) -> Array:
    """One boolean per active lane -> one per lane of the group."""
    every = np.zeros(group.size, np.bool_)
    every[group.active.lanes] = rows
    return every
