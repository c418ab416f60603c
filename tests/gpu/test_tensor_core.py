"""Matrix fragments: every register of every lane is placed by the tables of the PTX manual, written out here."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import run
from tests.gpu.simulator.types import bf16_bits, bf16_values

RNG = np.random.default_rng(1)


def a_element(kind: str, shape: str, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element a_i, as the manual's formulas give them for each shape and type."""
    group, thread = lane >> 2, lane % 4
    if kind == "f16" and shape == "m16n8k16":
        row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
        return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)
    if kind == "f16" and shape == "m16n8k8":
        return group if i < 2 else group + 8, thread * 2 + (i & 1)
    if kind == "tf32" and shape == "m16n8k8":
        return group if i in (0, 2) else group + 8, thread if i in (0, 1) else thread + 4
    if kind == "s8" and shape == "m16n8k32":
        row = group if 0 <= i < 4 or 8 <= i < 12 else group + 8
        return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)
    if kind == "s8" and shape == "m16n8k16":
        return group if i < 4 else group + 8, thread * 4 + (i & 3)
    assert (kind, shape) == ("s8", "m8n8k16")
    return group, thread * 4 + i


def b_element(kind: str, shape: str, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element b_i."""
    group, thread = lane >> 2, lane % 4
    if kind == "f16":
        return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group
    if kind == "tf32":
        return thread if i == 0 else thread + 4, group
    return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group


def c_element(lane: int, i: int) -> tuple[int, int]:
    """Row and column of element c_i."""
    return (lane >> 2) + (8 if i >= 2 else 0), (lane % 4) * 2 + (i & 1)


def fragments(matrix, element, per_lane):
    """Matrix -> [lane, element]."""
    return np.array([[matrix[element(lane, i)] for i in range(per_lane)] for lane in range(32)])


def fill(shape: tuple[int, int], kind: str):
    """A random matrix of stored elements, and what they are worth."""
    if kind in ("s8", "u8"):
        limits = np.iinfo("int8" if kind == "s8" else "uint8")
        stored = RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(limits.dtype)
        return stored, stored.astype(np.float64)
    values = RNG.standard_normal(shape).astype(np.float32)
    if kind == "f16":
        return values.astype(np.float16), values.astype(np.float16).astype(np.float64)
    if kind == "bf16":
        return bf16_bits(values), bf16_values(bf16_bits(values)).astype(np.float64)
    stored = (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return stored, stored.astype(np.float64)


CASES = [
    ("m16n8k16", "f16", "f32"),
    ("m16n8k8", "f16", "f32"),
    ("m16n8k16", "bf16", "f32"),
    ("m16n8k8", "bf16", "f32"),
    ("m16n8k8", "tf32", "f32"),
    ("m16n8k32", "s8", "s32"),
    ("m16n8k16", "s8", "s32"),
    ("m8n8k16", "s8", "s32"),
    ("m16n8k32", "u8.s8", "s32"),
    ("m8n8k16", "u8.s8", "s32"),
]
"""Shape, type of the factors (of the left and of the right one where they differ), type of the sums."""


@pytest.mark.parametrize(("shape", "kind", "result"), CASES)
def test_mma_multiplies_the_matrices_its_fragments_hold(shape, kind, result):
    rows, depth = int(shape[1:].split("n")[0]), int(shape.split("k")[1])
    left, right = kind.split(".") if "." in kind else (kind, kind)
    a, a_worth = fill((rows, depth), left)
    b, b_worth = fill((depth, 8), right)
    c = RNG.integers(-9, 9, (rows, 8)).astype({"f32": np.float32, "s32": np.int32}[result])
    layout = "f16" if kind == "bf16" else right
    lanes_a = fragments(a, lambda lane, i: a_element(layout, shape, lane, i), rows * depth // 32)
    lanes_b = fragments(b, lambda lane, i: b_element(layout, shape, lane, i), depth * 8 // 32)
    lanes_c = fragments(c, c_element, rows * 8 // 32)
    words = [np.ascontiguousarray(part).view(np.uint32).reshape(32, -1) for part in (lanes_a, lanes_b, lanes_c)]
    found = _run_mma(shape, f"{left}.{right}", result, words).view(c.dtype).reshape(32, -1)
    expected = fragments(a_worth @ b_worth + c, c_element, rows * 8 // 32)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _run_mma(shape, kind, result, words):
    lines, operands, first = [], [], 1
    for number, part in enumerate(words):
        names = [f"%r{first + position}" for position in range(part.shape[1])]
        lines.append(f"mad.wide.u32 %d20, %r0, {4 * len(names)}, %d{number};")
        lines.extend(f"ld.global.b32 {name}, [%d20+{4 * position}];" for position, name in enumerate(names))
        operands.append("{" + ", ".join(names) + "}")
        first += len(names)
    results = [f"%r{40 + position}" for position in range(words[2].shape[1])]
    types = f"{result}.{kind}.{result}"
    lines.append(f"mma.sync.aligned.{shape}.row.col.{types} {{{', '.join(results)}}}, {', '.join(operands)};")
    lines.append(f"mad.wide.u32 %d20, %r0, {4 * len(results)}, %d3;")
    lines.extend(f"st.global.b32 [%d20+{4 * position}], {name};" for position, name in enumerate(results))
    return run("\n".join(lines), *words, count=32 * len(results))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_each_lane_two_neighbours_of_a_row(count, transposed):
    matrices = RNG.integers(0, 2**16, (4, 8, 8)).astype(np.uint16)
    registers = [f"%r{10 + number}" for number in range(count)]
    body = f"""
    .shared .align 16 .b8 tile[512];
    mad.wide.u32 %d20, %r0, 16, %d0; ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%d20];
    mov.u32 %r5, tile; mad.lo.u32 %r6, %r0, 16, %r5; st.shared.v4.u32 [%r6], {{%r1, %r2, %r3, %r4}}; bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x{count}{".trans" if transposed else ""}.shared.b16 {{{", ".join(registers)}}}, [%r6];
    mad.wide.u32 %d20, %r0, {4 * count}, %d1;
    {" ".join(f"st.global.b32 [%d20+{4 * n}], {name};" for n, name in enumerate(registers))}
    """
    found = run(body, matrices, count=32 * count).view(np.uint16).reshape(32, count, 2)
    for lane in range(32):
        for number in range(count):
            matrix = matrices[number].T if transposed else matrices[number]
            row, column = lane // 4, 2 * (lane % 4)
            assert found[lane, number].tolist() == matrix[row, column : column + 2].tolist()
