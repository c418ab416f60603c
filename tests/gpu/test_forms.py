"""Forms of instructions that newer GPUs and NVVM versions bring, and what a launch promises."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import apply, kernel, run
from tests.gpu.simulator import Memory, Module, SimulationError
from tests.gpu.simulator.types import TYPES

RNG = np.random.default_rng(5)
STORE = "mad.wide.u32 %d20, %r0, 4, %d0; st.global.b32 [%d20], %r9;"


def test_eight_elements_load_and_store_at_once():
    values = RNG.standard_normal((4, 8)).astype(np.float32)
    registers = "{" + ", ".join(f"%f{number}" for number in range(1, 9)) + "}"
    body = f"""mad.wide.u32 %d20, %r0, 32, %d0; ld.global.L1::no_allocate.L2::128B.v8.f32 {registers}, [%d20];
    mad.wide.u32 %d21, %r0, 32, %d1; st.relaxed.gpu.global.v8.f32 [%d21], {registers};"""
    found = run(body, values, threads=4, result=np.float32, count=32)
    np.testing.assert_array_equal(found.reshape(4, 8), values)


def test_pairs_of_floats_compute_side_by_side():
    a, b, c = (RNG.standard_normal((8, 2)).astype(np.float32) for _ in range(3))
    found = apply("fma.rn.f32x2", ["b64"] * 4, *(x.view(np.uint64).reshape(-1) for x in (a, b, c)))
    exact = a.astype(np.float64) * b + c
    np.testing.assert_array_equal(found.view(np.float32).reshape(8, 2), exact.astype(np.float32))


def test_the_largest_of_three():
    a, b, c = (RNG.standard_normal(32).astype(np.float32) for _ in range(3))
    np.testing.assert_array_equal(apply("max.f32", ["f32"] * 4, a, b, c), np.maximum(np.maximum(a, b), c))


@pytest.mark.parametrize(
    ("opcode", "values", "expected"),
    [
        ("mul24.lo.s32", ([0x00FFFFFF], [3]), [0xFFFFFFFD]),
        ("mad24.lo.u32", ([0x01000002], [3], [1]), [7]),
        ("mad.hi.u32", ([0x80000000], [6], [1]), [4]),
        ("dp2a.lo.u32.u32", ([0x00030002], [0x07050B0D], [1]), [1 + 2 * 13 + 3 * 11]),
        ("dp2a.hi.u32.u32", ([0x00030002], [0x07050B0D], [1]), [1 + 2 * 5 + 3 * 7]),
        ("dp4a.u32.s32", ([0xFF], [0xFF], [0]), [0xFFFFFF01]),
        ("bfind.s32", ([0xFFFFFFFF, 0xFFFFFF00],), [0xFFFFFFFF, 7]),
        ("cnot.b32", ([0, 4],), [1, 0]),
        ("slct.b32.s32", ([1, 1], [2, 2], [0, 0xFFFFFFFF]), [1, 2]),
    ],
)
def test_rarer_integer_instructions(opcode, values, expected):
    arrays = [np.array(value, np.uint32) for value in values]
    assert apply(opcode, ["u32"] * (1 + len(arrays)), *arrays).tolist() == expected


def test_bfloats_compute_with_one_rounding():
    one, small = np.array([0x3F80], np.uint16), np.array([0x3B80], np.uint16)  # 1 and 2**-8
    assert apply("add.rn.bf16", ["b16"] * 3, one, small)[0] == 0x3F80
    assert apply("fma.rn.bf16", ["b16"] * 4, one, one, one)[0] == 0x4000
    assert apply("cvt.f32.bf16", ["b32", "b16"], small)[0] == 0x3B800000


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_floats_of_two_widths_compute_in_the_wider_one(kind):
    """As NVVM writes it for Blackwell: the first operands are 16 bits wide, the last one and the result are not."""
    a, b, c = (RNG.standard_normal(32).astype(np.float32) for _ in range(3))
    (narrow_a, wide_a), (narrow_b, wide_b) = (_narrowed(kind, values) for values in (a, b))
    np.testing.assert_array_equal(apply(f"add.rn.f32.{kind}", ["f32", "b16", "f32"], narrow_a, c), wide_a + c)
    np.testing.assert_array_equal(apply(f"sub.rn.f32.{kind}", ["f32", "b16", "f32"], narrow_a, c), wide_a - c)
    exact = (wide_a.astype(np.float64) * wide_b + c).astype(np.float32)
    found = apply(f"fma.rn.f32.{kind}", ["f32", "b16", "b16", "f32"], narrow_a, narrow_b, c)
    np.testing.assert_array_equal(found, exact)


def _narrowed(kind, values):
    """Float32 numbers as 16-bit registers, and what these stand for."""
    bits = TYPES[kind].encode(values)
    return bits, TYPES[kind].decode(bits)


def test_one_lane_is_elected():
    body = f"elect.sync %r1|%p1, -1; mov.u32 %r9, 5; @%p1 mov.u32 %r9, %r1; {STORE}"
    assert run(body).tolist() == [0, *[5] * 31]


def test_a_warp_knows_whether_it_agrees():
    body = f"setp.gt.u32 %p2, %r0, 31; selp.u32 %r1, %r0, 3, %p2; match.all.sync.b32 %r9|%p1, %r1, -1; {STORE}"
    assert run(body, threads=64).tolist() == [0xFFFFFFFF] * 32 + [0] * 32


def test_lane_masks_name_the_lanes_around():
    lane = np.arange(32)
    for name, expected in (("lt", 2**lane - 1), ("ge", 2**32 - 2**lane)):
        np.testing.assert_array_equal(run(f"mov.u32 %r9, %lanemask_{name}; {STORE}"), expected)


def test_time_goes_on():
    body = f"""mov.u32 %r1, %clock; bar.sync 0; mov.u32 %r2, %clock;
    setp.gt.u32 %p1, %r2, %r1; selp.u32 %r9, 1, 0, %p1; {STORE}"""
    assert run(body).all()


def test_the_seed_decides_the_order_of_the_warps():
    def order(seed: int) -> list[int]:
        memory = Memory()
        counter, target = memory.place(np.zeros(1, np.uint32)), memory.allocate(4 * 256)
        body = f"atom.global.add.u32 %r9, [%d1], 1; {STORE}"
        module = Module(kernel(body, ["u64", "u64"]))
        module.launch("k", (1,), (256,), [target, counter], memory=memory, schedule="random", seed=seed)
        return memory.array(target, np.uint32, 256).tolist()

    assert order(1) == order(1)
    assert sorted(order(1)) == sorted(order(2)) == list(range(256))
    assert order(1) != order(2)


def test_a_kernel_says_what_it_lacks():
    memory = Memory()
    module = Module(kernel("", ["u64", "f32"]))
    assert (module.kernels, module.parameters("k")) == (("k",), ("u64", "f32"))
    with pytest.raises(SimulationError, match="1 arguments, expected 2"):
        module.launch("k", (1,), (1,), [0], memory=memory)
    with pytest.raises(SimulationError, match="no kernel 'other', the module has k"):
        module.launch("other", (1,), (1,), [], memory=memory)


def test_memory_stays_between_launches_and_modules():
    memory = Memory()
    target = memory.place(np.zeros(32, np.uint32))
    text = kernel(f"ld.global.u32 %r9, [total]; add.u32 %r9, %r9, 1; {STORE}", ["u64"])
    text = text.replace(".visible", ".global .align 4 .u32 total = 41;\n.visible", 1)
    for _ in range(3):
        Module(text).launch("k", (1,), (32,), [target], memory=memory)
    assert set(memory.array(target, np.uint32, 32).tolist()) == {42}


def test_the_host_keeps_to_its_allocations():
    memory = Memory()
    pointer = memory.place(np.arange(4, dtype=np.uint8))
    assert pointer % 256 == 0
    memory.write(pointer + 1, b"\x09")
    assert memory.read(pointer, 4) == bytes([0, 9, 2, 3])
    with pytest.raises(SimulationError, match="out of bounds"):
        memory.read(pointer, 5)
    big = memory.allocate(5_000_000)
    memory.write(big + 4_999_999, b"\x01")
    assert memory.array(pointer, np.uint8, (2, 2)).tolist() == [[0, 9], [2, 3]]
