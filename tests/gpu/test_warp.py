"""Lanes of a warp that look at each other, atomics, divergence and calls."""

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
        ("up.b32 %r9|%p1, %r0, 3, 0x0", np.where(LANE >= 3, LANE - 3, LANE)),
        ("down.b32 %r9|%p1, %r0, 3, 0x1f", np.where(LANE + 3 < 32, LANE + 3, LANE)),
        ("bfly.b32 %r9|%p1, %r0, 5, 0x1f", LANE ^ 5),
        ("idx.b32 %r9|%p1, %r0, 7, 0x1f", np.full(32, 7)),
        ("idx.b32 %r9|%p1, %r0, 2, 0x181f", LANE // 8 * 8 + 2),
        ("down.b32 %r9|%p1, %r0, 1, 0x1c1f", np.where(LANE % 4 < 3, LANE + 1, LANE)),
    ],
)
def test_shuffles_read_the_lane_the_manual_names(form, expected):
    found = run(f"shfl.sync.{form}, -1; {STORE}")
    np.testing.assert_array_equal(found, expected)


def test_a_shuffle_says_whether_its_source_was_in_range():
    found = run(f"shfl.sync.down.b32 %r1|%p1, %r0, 4, 0x1f, -1; selp.u32 %r9, 1, 0, %p1; {STORE}")
    np.testing.assert_array_equal(found, LANE + 4 < 32)


def test_votes_count_active_lanes_only():
    body = (
        """setp.lt.u32 %p1, %r0, 8; setp.gt.u32 %p2, %r0, 4; mov.u32 %r9, 0; @!%p1 bra L;
    vote.sync.ballot.b32 %r9, %p2, 0xff; vote.sync.any.pred %p3, %p2, 0xff; vote.sync.all.pred %p4, %p2, 0xff;
    selp.u32 %r1, 0x1000, 0, %p3; selp.u32 %r2, 0x2000, 0, %p4; or.b32 %r9, %r9, %r1; or.b32 %r9, %r9, %r2;
    activemask.b32 %r3; shl.b32 %r3, %r3, 16; or.b32 %r9, %r9, %r3; L:"""
        + STORE
    )
    np.testing.assert_array_equal(run(body), np.where(LANE < 8, 0xFF10E0, 0))


def test_lanes_find_their_equals():
    found = run(f"and.b32 %r1, %r0, 1; match.any.sync.b32 %r9, %r1, -1; {STORE}")
    np.testing.assert_array_equal(found, np.where(LANE % 2, 0xAAAAAAAA, 0x55555555))


def test_a_warp_reduces_in_one_instruction():
    assert set(run(f"redux.sync.add.s32 %r9, %r0, -1; {STORE}").tolist()) == {31 * 16}


def test_atomics_see_each_other():
    body = f"""setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [count], 100; bar.sync 0;
    mov.u32 %r1, count; atom.shared.add.u32 %r9, [%r1], 1; {STORE}"""
    memory = Memory()
    target = memory.allocate(256)
    text = kernel(body, ["u64"], module=".shared .align 4 .u32 count;")
    Module(text).launch("k", (1,), (64,), [target], memory=memory)
    assert sorted(memory.array(target, np.uint32, 64).tolist()) == list(range(100, 164))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("add.f32", 33.0), ("max.u32", np.uint32(0x3F800000).view(np.float32))],
)
def test_reductions_reach_global_memory(operation, expected):
    memory = Memory()
    target = memory.place(np.ones(1, np.float32))
    body = f"red.global.{operation} [%d0], 0f3F800000;"
    Module(kernel(body, ["u64"])).launch("k", (1,), (32,), [target], memory=memory)
    assert memory.array(target, np.float32, 1)[0] == expected


def test_compare_and_swap_lets_one_lane_win():
    memory = Memory()
    flag, target = memory.place(np.zeros(1, np.uint32)), memory.allocate(128)
    body = "add.u32 %r1, %r0, 5; atom.global.cas.b32 %r9, [%d1], 0, %r1;" + STORE
    Module(kernel(body, ["u64", "u64"])).launch("k", (1,), (32,), [target, flag], memory=memory)
    assert memory.array(target, np.uint32, 32).tolist() == [0, *[5] * 31]
    assert memory.array(flag, np.uint32, 1)[0] == 5


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


def test_a_jump_table_sends_lanes_apart():
    body = f"""and.b32 %r1, %r0, 3; mov.u32 %r9, 9;
    T: .branchtargets A, B, C, A; brx.idx %r1, T;
    A: mov.u32 %r9, 1; bra E; B: mov.u32 %r9, 2; bra E; C: mov.u32 %r9, 3; E: {STORE}"""
    assert run(body).tolist() == [1, 2, 3, 1] * 8


FUNCTION = """
.func (.param .b32 result) twice(.param .b32 value, .param .b64 where)
{
.reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %d<2>;
ld.param.u32 %r1, [value]; ld.param.u64 %d1, [where];
setp.gt.u32 %p1, %r1, 10; @%p1 bra SMALL;
add.u32 %r2, %r1, %r1; st.param.b32 [result+0], %r2; ret;
SMALL: ld.global.u32 %r3, [%d1]; st.param.b32 [result+0], %r3; ret;
}
"""
CALL = """
{ .param .b32 param0; st.param.b32 [param0+0], %r0; .param .b64 param1; st.param.b64 [param1+0], %d1;
.param .b32 retval0;
call.uni (retval0), twice, (param0, param1);
ld.param.b32 %r9, [retval0+0]; }
"""


def test_device_functions_are_called_more_than_once():
    memory = Memory()
    target, constant = memory.allocate(128), memory.place(np.array([77], np.uint32))
    text = kernel(f"{CALL} mov.u32 %r0, %r9; {CALL} mov.u32 %r0, %tid.x; {STORE}", ["u64", "u64"], module=FUNCTION)
    Module(text).launch("k", (1,), (32,), [target, constant], memory=memory)
    once = [2 * n if n <= 10 else 77 for n in range(32)]
    assert memory.array(target, np.uint32, 32).tolist() == [2 * n if n <= 10 else 77 for n in once]


def test_variables_parameters_and_special_registers():
    module = """.const .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0}; .global .align 4 .f32 one = 0f3F800000;"""
    body = """mov.u64 %d10, table; ld.const.u32 %r1, [%d10+4]; ld.const.u32 %r2, [table];
    mov.u64 %d11, one; cvta.global.u64 %d11, %d11; ld.f32 %f1, [%d11]; cvt.rzi.u32.f32 %r3, %f1;
    mov.u32 %r4, %ctaid.y; mov.u32 %r5, %nctaid.y; mov.u32 %r6, %tid.y; mov.u32 %r7, %ntid.x;
    ld.param.u16 %h1, [p1]; ld.param.s8 %h2, [p2+1]; cvt.u32.u16 %r8, %h1; cvt.s32.s16 %r10, %h2;
    mov.u32 %r9, 0; mad.lo.u32 %r9, %r9, 10, %r1; mad.lo.u32 %r9, %r9, 10, %r2; mad.lo.u32 %r9, %r9, 10, %r3;
    mad.lo.u32 %r9, %r9, 10, %r4; mad.lo.u32 %r9, %r9, 10, %r5; mad.lo.u32 %r9, %r9, 10, %r6;
    mad.lo.u32 %r9, %r9, 10, %r7;
    mad.lo.u32 %r9, %r9, 10, %r8; add.s32 %r9, %r9, %r10;
    mov.u32 %r11, 2; mad.lo.u32 %r12, %r4, 2, %r6; mad.lo.u32 %r12, %r12, 4, %r0;
    mad.wide.u32 %d20, %r12, 4, %d0; st.global.u32 [%d20], %r9;"""
    text = kernel(body, ["u64", "u16"], module=module).replace(
        ".param .u16 p1", ".param .u16 p1, .param .align 2 .b8 p2[4]"
    )
    memory, module_read = Memory(), Module(text)
    assert module_read.parameters("k") == ("u64", "u16", "b8[4]")
    target = memory.allocate(4 * 16)
    module_read.launch("k", (1, 2), (4, 2), [target, 6, bytes([0, 0xFF, 0, 0])], memory=memory)
    expected = [[[21102046 - 1 + 10000 * y + 100 * v] * 4 for v in range(2)] for y in range(2)]
    np.testing.assert_array_equal(memory.array(target, np.uint32, (2, 2, 4)), np.array(expected))


def test_local_memory_belongs_to_one_lane():
    body = f""".local .align 8 .b8 depot[16]; mov.u64 %d10, depot; cvta.local.u64 %d11, %d10;
    st.local.u32 [%d10+4], %r0; ld.u32 %r9, [%d11+4]; {STORE}"""
    np.testing.assert_array_equal(run(body, threads=64), np.arange(64))
