"""ldmatrix and mma.sync."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, items
from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.fragments import Layout, a_layout, b_layout, c_layout
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.order import WARP
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import TYPES, Array, bf16_values

B32 = TYPES["b32"]
ROW_BYTES = 16


def whole_warps(group: Group) -> Array:
    """Numbers of the active warps; Fault where one is here in part."""
    active = group.active.mask.reshape(-1, WARP)
    here = active.any(axis=1)
    torn = here & ~active.all(axis=1)
    if torn.any():
        lane = int(np.flatnonzero(torn)[0]) * WARP + int(np.argmin(active[np.argmax(torn)]))
        raise Fault("warp divergence", "all 32 lanes of a warp must come here together", lane)
    return np.flatnonzero(here)


# ---------------------------------------------------------------------- matrices in shared memory


@instruction("ldmatrix")
def _ldmatrix(decoder: Decoder, instruction: Instruction) -> Step:
    puts = [decoder.put_active(item, B32) for item in items(instruction.operands[0])]
    transposed = _matrix_form(decoder, instruction, len(puts))
    where = decoder.address(instruction.operands[1])

    def step(group: Group) -> None:
        warps = whole_warps(group)
        addresses = where(group).reshape(-1, WARP)
        for number, put in enumerate(puts):
            rows = slice(8 * number, 8 * number + 8)
            lanes = (warps[:, None] * WARP + np.arange(WARP)[rows]).reshape(-1)
            starts = addresses[:, rows].reshape(-1)
            columns = group.shared.load_lanes(group, lanes, starts, 4, ROW_BYTES // 4, together=True)
            put(group, _to_lanes(np.stack(columns, axis=1), transposed))

    return step


def _to_lanes(rows: Array, transposed: bool) -> Array:
    """Rows uint32[matrix * 8, 4] -> one uint32 a lane: lane l holds row l // 4, elements 2 (l % 4) and the next."""
    if transposed:
        halves = rows.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
        rows = np.ascontiguousarray(halves).view(np.uint32)
    return np.ascontiguousarray(rows).reshape(-1)


def _matrix_form(decoder: Decoder, instruction: Instruction, count: int) -> bool:
    """Whether the matrices are transposed; SimulationError for forms other than m8n8 of 16-bit elements."""
    if "m8n8" not in instruction.parts or "b16" not in instruction.parts or f"x{count}" not in instruction.parts:
        raise decoder.unknown(instruction)
    return "trans" in instruction.parts


# ---------------------------------------------------------------------- mma.sync


@dataclass(frozen=True)
class Element:
    """An input type of mma: its width, and how registers become float64, so that sums are rounded once."""

    bits: int
    values: Callable[[Array], Array]


def _tf32_values(raw: Array) -> Array:
    return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


ELEMENTS = {
    "f16": Element(16, lambda raw: raw.view(np.float16).astype(np.float64)),
    "bf16": Element(16, lambda raw: bf16_values(raw.view(np.uint16)).astype(np.float64)),
    "tf32": Element(32, _tf32_values),
    "s8": Element(8, lambda raw: raw.view(np.int8).astype(np.float64)),
    "u8": Element(8, lambda raw: raw.view(np.uint8).astype(np.float64)),
}
SHAPES = {
    "m16n8k8": ("f16", "bf16", "tf32"),
    "m16n8k16": ("f16", "bf16", "s8", "u8"),
    "m16n8k32": ("s8", "u8"),
    "m8n8k16": ("s8", "u8"),
}


@instruction("mma")
def _mma(decoder: Decoder, instruction: Instruction) -> Step:
    shape = next(part for part in instruction.parts if re.fullmatch(r"m\d+n\d+k\d+", part))
    result, first, second, addend = [part for part in instruction.parts if part in TYPES][-4:]
    known, sums = SHAPES.get(shape, ()), "s32" if first in ("s8", "u8") else "f32"
    if first not in known or second not in known or {result, addend} != {sums} or "satfinite" in instruction.parts:
        raise decoder.unknown(instruction)
    rows, depth = int(shape[1:].partition("n")[0]), int(shape.rpartition("k")[2])
    left, right = ELEMENTS[first], ELEMENTS[second]
    a = matrices_of(decoder, instruction, 1, left, a_layout(rows, depth, left.bits))
    b = matrices_of(decoder, instruction, 2, right, b_layout(depth, right.bits))
    kind, layout = TYPES[result], c_layout(rows)
    c = matrices_of(decoder, instruction, 3, Element(32, kind.decode), layout)
    puts = [decoder.put_active(item, B32) for item in items(instruction.operands[0])]
    assert len(puts) == layout.registers

    def step(group: Group) -> None:
        whole_warps(group)
        products = np.matmul(a(group), b(group))
        whole = products.astype(np.int64) if result == "s32" else products
        words = layout.scatter(kind.encode(whole + c(group)))[..., 0]
        for number, put in enumerate(puts):
            put(group, np.ascontiguousarray(words[:, number]).reshape(-1))

    return step


def matrices_of(
    decoder: Decoder, instruction: Instruction, number: int, element: Element, layout: Layout
) -> Callable[[Group], Array]:
    """Reads A, B or C as matrices [warp, row, column]."""
    gets = [decoder.get_raw(item, B32) for item in items(instruction.operands[number])]
    assert len(gets) == layout.registers, "the number of registers does not fit the shape"

    def matrices(group: Group) -> Array:
        words = np.stack([group.of_active(get(group)).reshape(-1, WARP) for get in gets], axis=1)
        return layout.gather(element.values(words).reshape(*words.shape, layout.parts))

    return matrices
