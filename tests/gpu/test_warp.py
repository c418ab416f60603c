"""Lanes of a warp that look at each other, divergence, and what kernels find around them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import kernel, run
from tests.gpu.simulator import Memory, Module

STORE = "mad.wide.u32 %d20, %r0, 4, %d0; st.global.b32 [%d20], %r9;"
LANE = np.arange(32)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("up.b32 %r9, %r0, 3, 0x0", np.where(LANE >= 3, LANE - 3, LANE)),
        ("down.b32 %r9, %r0, 3, 0x1f", np.where(LANE + 3 < 32, LANE + 3, LANE)),
        ("bfly.b32 %r9, %r0, 5, 0x1f", LANE ^ 5),
        ("idx.b32 %r9, %r0, 7, 0x1f", np.full(32, 7)),
        ("idx.b32 %r9, %r0, 2, 0x181f", LANE // 8 * 8 + 2),
        ("down.b32 %r9, %r0, 1, 0x1c1f", np.where(LANE % 4 < 3, LANE + 1, LANE)),
    ],
)
def test_shuffles_read_the_lane_the_manual_names(form, expected):
    found = run(f"shfl.sync.{form}, -1; {STORE}")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("schedule", ["lockstep", "random"])
def test_lanes_leave_loops_one_by_one_and_meet_again(schedule):
    body = f"""mov.u32 %r9, 0; mov.u32 %r1, 0;
    L: setp.ge.u32 %p1, %r1, %r0; @%p1 bra M; add.u32 %r9, %r9, %r1; add.u32 %r1, %r1, 1; bra.uni L;
    M: bar.sync 0; {STORE}"""
    n = np.arange(96)
    np.testing.assert_array_equal(run(body, threads=96, schedule=schedule), n * (n - 1) // 2)


def test_a_warp_waits_for_lanes_whose_branch_stands_further_down():
    body = f"""setp.lt.u32 %p1, %r0, 5; mov.u32 %r1, %r0; @%p1 bra FAR;
    NEAR: shfl.sync.idx.b32 %r9, %r1, 3, 0x1f, -1; {STORE} ret;
    FAR: mov.u32 %r1, 100; bra NEAR;"""
    assert set(run(body).tolist()) == {100}


def test_variables_and_special_registers():
    module = """.global .align 4 .f32 one = 0f3F800000; .global .align 4 .b32 table[2] = {1, 2};"""
    body = """mov.u64 %d10, table; ld.global.u32 %r1, [%d10+4]; ld.global.u32 %r2, [table];
    mov.u64 %d11, one; cvta.to.global.u64 %d11, %d11; ld.global.f32 %f1, [%d11]; cvt.rzi.u32.f32 %r3, %f1;
    mov.u32 %r4, %ctaid.y; mov.u32 %r5, %nctaid.y; ld.param.u16 %h1, [p1]; cvt.u32.u16 %r8, %h1;
    mov.u32 %r9, 0; mad.lo.u32 %r9, %r9, 10, %r1; mad.lo.u32 %r9, %r9, 10, %r2; mad.lo.u32 %r9, %r9, 10, %r3;
    mad.lo.u32 %r9, %r9, 10, %r4; mad.lo.u32 %r9, %r9, 10, %r5; mad.lo.u32 %r9, %r9, 10, %r8;
    mad.lo.u32 %r12, %r4, 4, %r0; mad.wide.u32 %d20, %r12, 4, %d0; st.global.u32 [%d20], %r9;"""
    memory = Memory()
    target = memory.allocate(4 * 8)
    text = kernel(body, ["u64", "u16"], module=module)
    Module(text).launch("k", (1, 2), (4,), [target, 6], memory=memory)
    assert memory.array(target, np.uint32, (2, 4)).tolist() == [[211026] * 4, [211126] * 4]
