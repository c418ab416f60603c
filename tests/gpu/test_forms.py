"""Forms of instructions that newer GPUs and NVVM versions bring, and what a launch promises."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import apply, kernel
from tests.gpu.simulator import Memory, Module, SimulationError
from tests.gpu.simulator.types import TYPES

RNG = np.random.default_rng(5)
STORE = "mad.wide.u32 %d20, %r0, 4, %d0; st.global.b32 [%d20], %r9;"


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


def test_the_seed_decides_the_order_of_the_warps():
    def last_writer(seed: int) -> int:
        memory = Memory()
        target = memory.allocate(4)
        module, options = Module(kernel("st.global.u32 [%d0], %r0;", ["u64"])), {"seed": seed, "check_races": False}
        module.launch("k", (1,), (256,), [target], memory=memory, schedule="random", **options)
        return int(memory.array(target, np.uint32, 1)[0])

    assert last_writer(1) == last_writer(1)
    assert len({last_writer(seed) for seed in range(8)}) > 2


def test_a_kernel_says_what_it_lacks():
    memory = Memory()
    module = Module(kernel("", ["u64", "f32"]))
    assert module.kernels == ("k",)
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
