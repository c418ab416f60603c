"""wgmma: four warps multiply matrices that lie in shared memory (sm_90a).

The product is there at once, not after wgmma.wait_group: reading it too early is not noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, items
from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.fragments import a_layout, c_layout
from tests.gpu.simulator.group import WARP_GROUP, Group
from tests.gpu.simulator.instructions.tensor_core import (
    B32,
    ELEMENTS,
    Element,
    fragment,
    give,
    matrices_of,
    registers_of,
    whole_warps,
)
from tests.gpu.simulator.order import WARP
from tests.gpu.simulator.syntax import Immediate, Instruction, Operand, Vector
from tests.gpu.simulator.types import TYPES, Array

ROWS = 64
CHUNK = 16  # bytes that swizzling leaves together
SWIZZLES = {1: 128, 2: 64, 3: 32}  # code in the descriptor -> bytes of a row
Matrices = Callable[[Group], Array]


@instruction("wgmma")
def _wgmma(decoder: Decoder, instruction: Instruction) -> Step:
    if "mma_async" not in instruction.parts:
        return lambda group: None  # fence, commit_group, wait_group
    shape = next(part for part in instruction.parts if re.fullmatch(r"m64n\d+k\d+", part))
    columns, depth = (int(number) for number in re.findall(r"\d+", shape)[1:])
    result, first, second = [part for part in instruction.parts if part in TYPES][-3:]
    if first not in ELEMENTS or second not in ELEMENTS or depth * ELEMENTS[first].bits != 256:
        raise decoder.unknown(instruction)
    _require_plain_operands(decoder, instruction)
    kind, layout = TYPES[result], c_layout(16, 8 * TYPES[result].size, columns)
    a = _left(decoder, instruction, ELEMENTS[first], depth)
    b = _tile(decoder, instruction.operands[2], ELEMENTS[second], columns)
    c = registers_of(decoder, instruction, 0, layout)
    puts = [decoder.put_active(item, B32) for item in items(instruction.operands[0])]
    keeps = decoder.condition(instruction.operands[3])

    def step(group: Group) -> None:
        whole_warp_groups(group)
        products = np.matmul(a(group), b(group).transpose(0, 2, 1)).reshape(-1, 16, columns)
        before = kind.decode(layout.gather(fragment(group, c, layout, kind.raw)))
        kept = group.of_active(keeps(group)).reshape(-1, WARP)[:, :1, None]
        sums = products + np.where(kept, before, 0)
        give(group, puts, layout.scatter(kind.encode(sums.astype(np.int64) if result == "s32" else sums)))

    return step


def whole_warp_groups(group: Group) -> Array:
    """First lanes of the active warp groups; Fault where one is here in part."""
    whole_warps(group)
    if group.size % WARP_GROUP:
        raise Fault("warp divergence", "the warps of a block are not a multiple of four", group.active.lanes[0])
    active = group.active.mask.reshape(-1, WARP_GROUP)
    torn = active.any(axis=1) & ~active.all(axis=1)
    if torn.any():
        lane = int(np.argmax(torn)) * WARP_GROUP
        raise Fault("warp divergence", "all four warps of a warp group must come here together", lane)
    return np.flatnonzero(active.all(axis=1)) * WARP_GROUP


def _require_plain_operands(decoder: Decoder, instruction: Instruction) -> None:
    """No negated and no transposed matrices."""
    numbers = [int(operand.text) for operand in instruction.operands[4:] if isinstance(operand, Immediate)]
    if any(number != 1 for number in numbers[:2]) or any(numbers[2:]):
        raise decoder.unknown(instruction, "only matrices with K contiguous, not negated, are known")


def _left(decoder: Decoder, instruction: Instruction, element: Element, depth: int) -> Matrices:
    operand = instruction.operands[1]
    if not isinstance(operand, Vector):
        return _tile(decoder, operand, element, ROWS)
    matrices = matrices_of(decoder, instruction, 1, element, a_layout(16, depth, element.bits))
    return lambda group: matrices(group).reshape(-1, ROWS, depth)


def _tile(decoder: Decoder, operand: Operand, element: Element, rows: int) -> Matrices:
    """Reads matrices [warp group, row, k] of 32 bytes a row through the descriptor in a register."""
    get = decoder.get_raw(operand, TYPES["b64"])

    def tile(group: Group) -> Array:
        first_lanes = whole_warp_groups(group)
        descriptors = group.of_active(get(group)).reshape(-1, WARP_GROUP)
        if (descriptors != descriptors[:, :1]).any():
            lane = int(np.flatnonzero((descriptors != descriptors[:, :1]).any(axis=1))[0])
            raise Fault("warp divergence", "the lanes of a warp group give different descriptors", first_lanes[lane])
        addresses = np.stack([tile_addresses(int(one), rows) for one in descriptors[:, 0]])
        return _read(group, first_lanes, addresses, element)

    return tile


def tile_addresses(descriptor: int, rows: int) -> Array:
    """Shared addresses [row, chunk] of the 16-byte chunks of a tile of 32 bytes a row, K contiguous.

    Descriptor bits: 0-13 start, 16-29 leading, 32-45 stride byte offset, each in units of 16 bytes; 62-63 swizzle.
    """
    start, leading, stride = ((descriptor >> bit & 0x3FFF) * CHUNK for bit in (0, 16, 32))
    row, chunk = np.arange(rows)[:, None], np.arange(2)[None, :]
    swizzle = descriptor >> 62
    if swizzle == 0:  # core matrices of 8 rows of 16 bytes; `leading` bytes to the next one along K
        return start + row // 8 * stride + chunk * leading + row % 8 * CHUNK
    width = SWIZZLES[swizzle]
    linear = start + row // 8 * stride + row % 8 * width + chunk * CHUNK
    return linear ^ ((linear >> 7) % (width // CHUNK)) * CHUNK


def _read(group: Group, first_lanes: Array, addresses: Array, element: Element) -> Array:
    shape = addresses.shape
    for warp in (1, 0):  # every warp reads the tile: two of them are enough for the race check
        lanes = np.repeat(first_lanes + warp * WARP, shape[1] * shape[2])
        columns = group.shared.load_lanes(group, lanes, addresses.reshape(-1), 4, CHUNK // 4)
    words = np.stack(columns, axis=1)
    return element.values(words).reshape(shape[0], shape[1], -1)
