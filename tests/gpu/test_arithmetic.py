"""What arithmetic instructions compute at the edges, as the PTX manual says.

`tests/targets/test_cuda_second_route.py` checks what kernels compute elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import apply, run

RNG = np.random.default_rng(0)
S32 = RNG.integers(-(2**31), 2**31, 32).astype(np.int32)
T32 = RNG.integers(-(2**31), 2**31, 32).astype(np.int32)
S64 = RNG.integers(-(2**63), 2**63, 32)
T64 = RNG.integers(-(2**63), 2**63, 32)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("mul.hi.s32", ((S32.astype(np.int64) * T32) >> 32).astype(np.int32)),
        ("rem.s32", np.fmod(S32, T32)),
        ("div.s32", np.trunc(S32.astype(np.float64) / T32).astype(np.int32)),
    ],
)
def test_high_halves_and_quotients_of_signed_integers_are_exact(opcode, expected):
    np.testing.assert_array_equal(apply(opcode, ["s32"] * 3, S32, T32), expected)


@pytest.mark.parametrize("kind", ["s64", "u64"])
def test_the_high_half_of_a_64_bit_product_is_exact(kind):
    a, b = (S64, T64) if kind == "s64" else (S64.view(np.uint64), T64.view(np.uint64))
    expected = [(int(x) * int(y)) >> 64 for x, y in zip(a, b, strict=True)]
    assert apply(f"mul.hi.{kind}", [kind] * 3, a, b).tolist() == expected


@pytest.mark.parametrize(
    ("opcode", "values", "expected"),
    [
        ("shl.b32", ([1, 1, 1], [4, 32, 40]), [16, 0, 0]),
        ("shr.u32", ([0x80000000] * 3, [31, 32, 99]), [1, 0, 0]),
        ("shr.s32", ([0x80000000] * 2, [31, 99]), [0xFFFFFFFF, 0xFFFFFFFF]),
        ("bfe.u32", ([0xABCD1234] * 3, [8, 28, 0], [8, 8, 0]), [0x12, 0xA, 0]),
        ("bfe.s32", ([0xABCD1234] * 2, [4, 16], [4, 4]), [3, 0xFFFFFFFD]),
        ("bfi.b32", ([0xFF, 0xFF], [0, 0x12345678], [4, 28], [8, 8]), [0xFF0, 0xF2345678]),
        ("prmt.b32", ([0x33221100] * 2, [0x77665544] * 2, [0x7610, 0x5040]), [0x77661100, 0x55004400]),
        ("prmt.b32", ([0x80], [0], [0x0008]), [0x808080FF]),
        ("shf.l.wrap.b32", ([0x12345678], [0xABCDEF01], [8]), [0xCDEF0112]),
        ("shf.r.wrap.b32", ([0x12345678], [0xABCDEF01], [40]), [0x01123456]),
        ("shf.r.clamp.b32", ([0x12345678], [0xABCDEF01], [40]), [0xABCDEF01]),
        ("dp2a.lo.u32.u32", ([0x00030002], [0x07050B0D], [1]), [1 + 2 * 13 + 3 * 11]),
    ],
)
def test_bits_move_as_the_manual_says(opcode, values, expected):
    arrays = [np.array(value, np.uint32) for value in values]
    assert apply(opcode, ["u32"] * (1 + len(arrays)), *arrays).tolist() == expected


def test_directed_rounding_picks_the_neighbour_on_its_side():
    one, tiny = np.array([1.0, -1.0], np.float32), np.array([2.0**-30, -(2.0**-30)], np.float32)
    above, below = np.nextafter(np.float32(1), np.float32(2)), np.nextafter(np.float32(-1), np.float32(-2))
    assert apply("add.rp.f32", ["f32"] * 3, one, tiny).tolist() == [above, -1]
    assert apply("add.rm.f32", ["f32"] * 3, one, tiny).tolist() == [1, below]
    assert apply("add.rz.f32", ["f32"] * 3, one, tiny).tolist() == [1, -1]


def test_nan_loses_in_min_and_max_unless_asked_for():
    a, b = np.array([np.nan, 1], np.float32), np.array([2, np.nan], np.float32)
    assert apply("max.f32", ["f32"] * 3, a, b).tolist() == [2, 1]
    assert np.isnan(apply("max.NaN.f32", ["f32"] * 3, a, b)).all()
    zeros = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    assert np.signbit(apply("min.f32", ["f32"] * 3, *zeros)[0])
    assert not np.signbit(apply("max.f32", ["f32"] * 3, *zeros)[0])


def test_flushing_and_saturation():
    tiny = np.array([1e-40, 2.0], np.float32)
    one = np.ones(2, np.float32)
    assert apply("mul.ftz.f32", ["f32"] * 3, tiny, one).tolist() == [0, 2]
    assert apply("mul.f32", ["f32"] * 3, tiny, one)[0] > 0
    assert apply("add.sat.f32", ["f32"] * 3, np.array([np.nan, -3, 0.25], "f4"), np.zeros(3, "f4")).tolist() == [
        0,
        0,
        0.25,
    ]


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("lt", [1, 0, 0, 0]),
        ("ltu", [1, 1, 0, 0]),
        ("ne", [1, 0, 1, 0]),
        ("neu", [1, 1, 1, 0]),
        ("num", [1, 0, 1, 1]),
        ("nan", [0, 1, 0, 0]),
    ],
)
def test_comparisons_of_nan_are_ordered_or_not(comparison, expected):
    a = np.array([1, np.nan, 3, 2], np.float32)
    body = f"""
    mad.wide.u32 %d20, %r0, 4, %d0; ld.global.f32 %f1, [%d20];
    setp.{comparison}.f32 %p1, %f1, 0f40000000; selp.u32 %r1, 1, 0, %p1;
    mad.wide.u32 %d20, %r0, 4, %d1; st.global.b32 [%d20], %r1;
    """
    assert run(body, a, threads=4).tolist() == expected
