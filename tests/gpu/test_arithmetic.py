"""Every arithmetic instruction computes what the PTX manual says, checked against numpy or worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import apply, run

RNG = np.random.default_rng(0)
S32 = RNG.integers(-(2**31), 2**31, 32).astype(np.int32)
T32 = RNG.integers(-(2**31), 2**31, 32).astype(np.int32)
S64 = RNG.integers(-(2**63), 2**63, 32)
T64 = RNG.integers(-(2**63), 2**63, 32)
F32 = RNG.standard_normal(32).astype(np.float32)
G32 = RNG.standard_normal(32).astype(np.float32)
H32 = RNG.standard_normal(32).astype(np.float32)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("add.s32", S32 + T32),
        ("sub.s32", S32 - T32),
        ("mul.lo.s32", S32 * T32),
        ("mul.hi.s32", ((S32.astype(np.int64) * T32) >> 32).astype(np.int32)),
        ("min.s32", np.minimum(S32, T32)),
        ("max.s32", np.maximum(S32, T32)),
        ("rem.s32", np.fmod(S32, T32)),
        ("div.s32", np.trunc(S32.astype(np.float64) / T32).astype(np.int32)),
        ("and.b32", S32 & T32),
        ("or.b32", S32 | T32),
        ("xor.b32", S32 ^ T32),
    ],
)
def test_integer_instructions_wrap_and_truncate(opcode, expected):
    kind = opcode.split(".")[-1].replace("b32", "s32")
    np.testing.assert_array_equal(apply(opcode, [kind] * 3, S32, T32), expected)


@pytest.mark.parametrize("kind", ["s64", "u64"])
def test_the_high_half_of_a_64_bit_product_is_exact(kind):
    a, b = (S64, T64) if kind == "s64" else (S64.view(np.uint64), T64.view(np.uint64))
    expected = [(int(x) * int(y)) >> 64 for x, y in zip(a, b, strict=True)]
    assert apply(f"mul.hi.{kind}", [kind] * 3, a, b).tolist() == expected


def test_wide_products_keep_every_bit():
    expected = S32.astype(np.int64) * T32 + S64
    np.testing.assert_array_equal(apply("mad.wide.s32", ["s64", "s32", "s32", "s64"], S32, T32, S64), expected)


def test_unsigned_and_signed_comparison_differ():
    a, b = np.array([-1, 1], np.int32), np.array([1, -1], np.int32)
    assert apply("min.u32", ["s32"] * 3, a, b).tolist() == [1, 1]
    assert apply("min.s32", ["s32"] * 3, a, b).tolist() == [-1, -1]


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
        ("dp4a.s32.s32", ([0xFF020304], [0x01010101], [10]), [10 + 4 + 3 + 2 - 1]),
        ("dp4a.u32.s32", ([0xFF], [0xFF], [0]), [0xFFFFFF01]),
        ("dp2a.lo.u32.u32", ([0x00030002], [0x07050B0D], [1]), [1 + 2 * 13 + 3 * 11]),
    ],
)
def test_bits_move_as_the_manual_says(opcode, values, expected):
    arrays = [np.array(value, np.uint32) for value in values]
    assert apply(opcode, ["u32"] * (1 + len(arrays)), *arrays).tolist() == expected


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("add.f32", F32 + G32),
        ("sub.rn.f32", F32 - G32),
        ("mul.f32", F32 * G32),
        ("div.rn.f32", F32 / G32),
        ("div.approx.f32", F32 / G32),
        ("copysign.f32", np.copysign(G32, F32)),
    ],
)
def test_float_instructions_round_once_to_nearest(opcode, expected):
    np.testing.assert_array_equal(apply(opcode, ["f32"] * 3, F32, G32), expected)


def test_fma_rounds_once():
    exact = F32.astype(np.float64) * G32 + H32
    np.testing.assert_array_equal(apply("fma.rn.f32", ["f32"] * 4, F32, G32, H32), exact.astype(np.float32))
    one = np.array([1 + 2.0**-12], np.float32)
    assert apply("fma.rn.f32", ["f32"] * 4, one, one, np.array([-1 - 2.0**-11], np.float32))[0] == np.float32(2.0**-24)


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
    ("opcode", "function"),
    [
        ("rcp.approx.ftz.f32", lambda x: 1 / x),
        ("sqrt.rn.f32", np.sqrt),
        ("ex2.approx.ftz.f32", np.exp2),
    ],
)
def test_functions_are_right_to_the_last_bits(opcode, function):
    x = np.linspace(0.1, 4, 32).astype(np.float32)
    np.testing.assert_allclose(apply(opcode, ["f32"] * 2, x), function(x.astype(np.float64)), rtol=1e-7)


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
