"""ldmatrix and mma, after the figures and formulas of the PTX ISA's sections on matrix fragments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numba import njit

from tests.gpu.second_route.instructions import piece, rows_of, shared
from tests.gpu.second_route.native import float_of_bits, memory
from tests.gpu.second_route.row import WARP


@piece(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 [^;]*;", is_collective=True)
def load_matrices(warp):
    """Lane 8 m + r has the address of row r of matrix m; lane l gets, of row l // 4 of each matrix, element 2 (l % 4)
    and the next one."""
    rows = rows_of(warp)
    starts = rows[:, 0].copy()
    for lane in range(WARP):
        for matrix in range(4):
            rows[lane, matrix] = memory(shared(warp) + starts[8 * matrix + lane // 4], 4, np.uint32)[lane % 4]


@piece(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16 [^;]*;", is_collective=True)
def load_columns_of_matrices(warp):
    """The same of the matrices transposed: of column l // 4, elements 2 (l % 4) and the next one."""
    rows = rows_of(warp)
    starts = rows[:, 0].copy()
    for lane in range(WARP):
        for matrix in range(4):
            first, column = 8 * matrix + 2 * (lane % 4), lane // 4
            low = memory(shared(warp) + starts[first], 8, np.uint16)[column]
            high = memory(shared(warp) + starts[first + 1], 8, np.uint16)[column]
            rows[lane, matrix] = np.uint32(high) << 16 | low


# Row and column of element i of a lane, with g its groupID, lane >> 2, and t its threadID_in_group, lane % 4.
A_16X8_HALVES = njit(lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)))
B_8_HALVES = njit(lambda g, t, i: (t * 2 + i, g))
A_16X16_HALVES = njit(lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)))
B_16_HALVES = njit(lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g))
A_16X8_WORDS = njit(lambda g, t, i: (g if i == 0 or i == 2 else g + 8, t if i < 2 else t + 4))
B_8_WORDS = njit(lambda g, t, i: (t if i == 0 else t + 4, g))
A_8X16_BYTES = njit(lambda g, t, i: (g, t * 4 + i))
B_16_BYTES = njit(lambda g, t, i: (t * 4 + i, g))
A_16X32_BYTES = njit(lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)))
B_32_BYTES = njit(lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g))
C = njit(lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)))


@njit
def half(bits):
    """What a float16 is worth: its exponent, unless it is the largest, is 112 less than as a float32's."""
    worth = float_of_bits((bits & 0x7FFF) << 13) * 2.0**112
    if bits & 0x7C00 == 0x7C00:
        worth = np.nan if bits & 0x3FF else np.inf
    return -worth if bits >> 15 else worth


BFLOAT16 = njit(lambda bits: np.float64(float_of_bits(bits << 16)))
TF32 = njit(lambda bits: np.float64(float_of_bits(bits & 0xFFFFE000)))
S8 = njit(lambda bits: np.int64(np.int8(bits)))
U8 = njit(lambda bits: np.int64(bits))


def _multiply(rows: int, depth: int, bits: int, worths: Any, places: Any, number: Any, total: Any) -> Any:
    """D = A B + C of matrices [rows, depth], [depth, 8] and [rows, 8], whose sums are of type `number`.

    The ISA leaves order and precision of sums of floats open, from float32 on: here they are of float64, and rounded
    once, to nearest. Sums of integers wrap.
    """
    parts, mask = 32 // bits, (1 << bits) - 1
    count_a, count_b, count_c = rows * depth // WARP, depth * 8 // WARP, rows * 8 // WARP
    start_b, start_c = count_a // parts, (count_a + count_b) // parts
    (worth_a, worth_b), (place_a, place_b) = worths, places

    def multiply(warp):
        words = rows_of(warp)
        sums = words.view(number)
        a, b = np.zeros((rows, depth), total), np.zeros((depth, 8), total)
        for lane in range(WARP):
            for i in range(count_a):
                a[place_a(lane >> 2, lane % 4, i)] = worth_a(words[lane, i // parts] >> bits * (i % parts) & mask)
            for i in range(count_b):
                b[place_b(lane >> 2, lane % 4, i)] = worth_b(
                    words[lane, start_b + i // parts] >> bits * (i % parts) & mask
                )
        for lane in range(WARP):
            for i in range(count_c):
                row, column = C(lane >> 2, lane % 4, i)
                products = total(0)
                for k in range(depth):
                    products += a[row, k] * b[k, column]
                sums[lane, i] = sums[lane, start_c + i] + products

    return multiply


FLOATS, INTEGERS = (np.float32, np.float64), (np.int32, np.int64)
FORMS = {
    "m16n8k8.row.col.f32.f16.f16.f32": (16, 8, 16, (half, half), (A_16X8_HALVES, B_8_HALVES), *FLOATS),
    "m16n8k16.row.col.f32.f16.f16.f32": (16, 16, 16, (half, half), (A_16X16_HALVES, B_16_HALVES), *FLOATS),
    "m16n8k16.row.col.f32.bf16.bf16.f32": (16, 16, 16, (BFLOAT16,) * 2, (A_16X16_HALVES, B_16_HALVES), *FLOATS),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (16, 8, 32, (TF32, TF32), (A_16X8_WORDS, B_8_WORDS), *FLOATS),
    "m8n8k16.row.col.s32.s8.s8.s32": (8, 16, 8, (S8, S8), (A_8X16_BYTES, B_16_BYTES), *INTEGERS),
    "m8n8k16.row.col.s32.u8.s8.s32": (8, 16, 8, (U8, S8), (A_8X16_BYTES, B_16_BYTES), *INTEGERS),
    "m16n8k32.row.col.s32.s8.s8.s32": (16, 32, 8, (S8, S8), (A_16X32_BYTES, B_32_BYTES), *INTEGERS),
    "m16n8k32.row.col.s32.u8.s8.s32": (16, 32, 8, (U8, S8), (A_16X32_BYTES, B_32_BYTES), *INTEGERS),
}
for _name, _form in FORMS.items():
    piece(re.escape(f"mma.sync.aligned.{_name} ") + "[^;]*;", is_collective=True)(_multiply(*_form))
