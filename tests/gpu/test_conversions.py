"""cvt and the packing forms of mov."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import apply, run
from tests.gpu.simulator.types import bf16_bits

HALVES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e20, -1e20, np.nan], np.float32)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("cvt.rni.s32.f32", [0, 2, 2, 0, -2, 2**31 - 1, -(2**31), 0]),
        ("cvt.rmi.s32.f32", [0, 1, 2, -1, -2, 2**31 - 1, -(2**31), 0]),
        ("cvt.rpi.s32.f32", [1, 2, 3, 0, -1, 2**31 - 1, -(2**31), 0]),
    ],
)
def test_floats_become_integers_clamped_and_nan_becomes_zero(opcode, expected):
    assert apply(opcode, ["s32", "f32"], HALVES).tolist() == expected


def test_nan_becomes_the_highest_bit_where_64_bits_are_read_or_written():
    assert apply("cvt.rzi.s64.f32", ["s64", "f32"], HALVES).tolist()[5:] == [2**63 - 1, -(2**63), -(2**63)]
    assert apply("cvt.rzi.s32.f64", ["s32", "f64"], HALVES.astype(np.float64)).tolist()[6:] == [-(2**31)] * 2


def test_floats_round_to_whole_floats():
    assert apply("cvt.rni.f32.f32", ["f32", "f32"], HALVES[:5]).tolist() == [0, 2, 2, 0, -2]


def test_integers_become_floats():
    values = np.array([2**24 + 1, -3], np.int32)
    assert apply("cvt.rn.f32.s32", ["f32", "s32"], values).tolist() == [2**24, -3]
    assert apply("cvt.rp.f32.s32", ["f32", "s32"], values).tolist() == [2**24 + 2, -3]
    assert apply("cvt.rn.f32.u32", ["f32", "s32"], values)[1] == np.float32(2**32 - 3)


def test_integers_extend_truncate_and_saturate():
    values = np.array([300, -300, 5], np.int32)
    assert apply("cvt.sat.s8.s32", ["u32", "s32"], values).view(np.int32).tolist() == [127, -128, 5]
    assert apply("cvt.sat.u8.s32", ["u32", "s32"], values).tolist() == [255, 0, 5]
    assert apply("cvt.s8.s32", ["u32", "s32"], values).view(np.int32).tolist() == [44, -44, 5]
    assert apply("cvt.u8.u32", ["u32", "s32"], values).tolist() == [44, 212, 5]
    assert apply("cvt.s64.s32", ["s64", "s32"], values).tolist() == [300, -300, 5]


def test_halves_and_bfloats():
    values = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1e-3, -2.5], np.float32)
    np.testing.assert_array_equal(apply("cvt.rn.f16.f32", ["f16", "f32"], values), values.astype(np.float16))
    np.testing.assert_array_equal(apply("cvt.f32.f16", ["f32", "f16"], values.astype(np.float16)), values.astype("f2"))
    np.testing.assert_array_equal(apply("cvt.rn.bf16.f32", ["bf16", "f32"], values), bf16_bits(values))
    assert bf16_bits(np.array([1.0, -2.5], np.float32)).tolist() == [0x3F80, 0xC020]
    assert bf16_bits(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], np.float32)).tolist() == [0x3F80, 0x3F82]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_the_first_operand_of_a_packed_conversion_lies_above(kind):
    high, low = np.array([1.0], np.float32), np.array([2.0], np.float32)
    found = apply(f"cvt.rn.{kind}x2.f32", ["b32", "f32", "f32"], high, low)
    assert found[0] == (0x3C004000 if kind == "f16" else 0x3F804000)


def test_moves_pack_and_unpack():
    body = """
    mov.b64 %d10, {0x11111111, %r0}; mov.b64 {%r1, _}, %d10; mov.b64 {_, %r2}, %d10;
    mov.b32 {%h1, %h2}, %r1; mov.b32 %r3, {%h2, 7};
    add.u32 %r4, %r2, %r3; mad.wide.u32 %d20, %r0, 4, %d0; st.global.b32 [%d20], %r4;
    """
    assert run(body, threads=3).tolist() == [0x71111, 0x71112, 0x71113]
