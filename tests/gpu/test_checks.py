"""The simulator finds every mistake that it looks for, and names its position."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import kernel
from tests.gpu.simulator import Memory, Module, SimulationError

SHARED = ".shared .align 16 .b8 tile[1024];"
SCHEDULES = pytest.mark.parametrize("schedule", ["lockstep", "random"])


def refusal(body: str, threads: int = 64, blocks: int = 1, module: str = SHARED, **options) -> SimulationError:
    """What the kernel is refused for; it has one pointer, to 64 written floats, in %d0."""
    memory = Memory()
    pointer = memory.place(np.zeros(64, np.float32))
    with pytest.raises(SimulationError) as caught:
        run(body, memory, pointer, threads, blocks, module, **options)
    return caught.value


def run(body, memory, pointer, threads=64, blocks=1, module=SHARED, **options):
    """Runs a body over blocks."""
    Module(kernel(body, ["u64"], module=module)).launch("k", (blocks,), (threads,), [pointer], memory=memory, **options)


def accepted(body: str, threads: int = 64, blocks: int = 1, **options) -> None:
    """Runs a body that must not be refused."""
    memory = Memory()
    run(body, memory, memory.place(np.zeros(64, np.float32)), threads, blocks, **options)


ADDRESS = "mad.wide.u32 %d1, %r0, 4, %d0;"
SLOT = "mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;"


def test_a_read_past_the_end_names_line_block_and_thread():
    error = refusal(f"{ADDRESS}\nld.global.f32 %f1, [%d1+4];")
    assert (error.kind, error.thread, error.block, error.kernel) == ("out of bounds", (63, 0, 0), (0, 0, 0), "k")
    assert "byte 256 of allocation 0 of 256 bytes" in str(error)
    assert f"line {error.line}" in str(error)
    assert "ld.global.f32 %f1, [%d1+4]" in str(error)


def test_a_write_before_the_start_is_found():
    assert refusal(f"{ADDRESS} st.global.f32 [%d1+-4], 0f00000000;").thread == (0, 0, 0)


def test_a_predicate_keeps_lanes_from_memory():
    accepted(f"{ADDRESS} setp.lt.u32 %p1, %r0, 63; @%p1 ld.global.f32 %f1, [%d1+4];")
    accepted(f"{ADDRESS} setp.ge.u32 %p1, %r0, 63; @!%p1 ld.global.f32 %f1, [%d1+4];")


def test_misaligned_vectors_are_found():
    assert refusal("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d0+8];").kind == "misaligned"
    assert refusal("st.shared.v2.u32 [tile+4], {%r0, %r0};", threads=1).kind == "misaligned"


def test_shared_memory_ends():
    error = refusal("st.shared.u32 [tile+1024], %r0;", threads=1)
    assert error.kind == "out of bounds"
    assert "byte 1024 of 1024 bytes of shared memory" in error.message


def test_dynamic_shared_memory_has_the_size_of_the_launch():
    module = ".extern .shared .align 16 .b8 dynamic[];"
    body = "st.shared.u32 [dynamic+12], %r0;"
    accepted(body, threads=1, module=module, shared_bytes=16)
    assert refusal(body, threads=1, module=module, shared_bytes=12).kind == "out of bounds"


def test_never_written_memory_is_found():
    assert refusal("ld.shared.u32 %r1, [tile];", threads=1).kind == "uninitialised"
    memory = Memory()
    body = "ld.global.u32 %r1, [%d0];"
    with pytest.raises(SimulationError, match="uninitialised"):
        run(body, memory, memory.allocate(4))
    lenient = Memory(check_uninitialised=False)
    run(body, lenient, lenient.allocate(4))


MEETINGS = {
    "a read of what another warp wrote": f"""{SLOT} st.shared.u32 [%r2], %r0; {{barrier}}
    xor.b32 %r3, %r0, 32; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.u32 %r4, [%r3];""",
    "a write over what another warp reads": f"""{SLOT} st.shared.u32 [%r2], %r0; bar.sync 0;
    ld.shared.u32 %r3, [%r2]; {{barrier}}
    xor.b32 %r4, %r0, 32; mad.lo.u32 %r4, %r4, 4, %r1; st.shared.u32 [%r4], %r3;""",
    **{
        f"a write of thread {writer}, one of several readers": f"""setp.eq.u32 %p1, %r0, 0;
    @%p1 st.shared.u32 [tile], 7; bar.sync 0; ld.shared.u32 %r1, [tile]; {{barrier}}
    setp.eq.u32 %p2, %r0, {writer}; @%p2 st.shared.u32 [tile], 8;"""
        for writer in (0, 32)
    },
}


@SCHEDULES
@pytest.mark.parametrize("meeting", MEETINGS)
def test_warps_that_meet_in_shared_memory_need_a_barrier(meeting, schedule):
    body = MEETINGS[meeting]
    kinds = ("race", "uninitialised") if meeting.startswith("a read") else ("race",)  # it may come before all writes
    assert refusal(body.replace("{barrier}", ""), schedule=schedule).kind in kinds
    accepted(body.replace("{barrier}", "bar.sync 0;"), schedule=schedule)


NEIGHBOUR = "xor.b32 %r3, %r0, 1; mad.lo.u32 %r3, %r3, 4, %r1;"


@SCHEDULES
@pytest.mark.parametrize(
    "body",
    [
        f"{SLOT} {NEIGHBOUR} st.shared.u32 [%r2], %r0; {{barrier}} ld.shared.u32 %r4, [%r3];",
        f"{SLOT} {NEIGHBOUR} st.shared.u32 [%r2], %r0; bar.sync 0; "
        "ld.shared.u32 %r4, [%r3]; {barrier} st.shared.u32 [%r2], %r0;",
        f"{SLOT} {NEIGHBOUR} st.shared.u32 [%r2], %r0; {{barrier}} st.shared.u32 [%r3], %r0;",
    ],
    ids=["read after write", "write after read", "write after write"],
)
def test_lanes_of_one_warp_need_a_barrier_of_the_warp(body, schedule):
    assert refusal(body.replace("{barrier}", ""), schedule=schedule).kind == "race"
    assert refusal(body.replace("{barrier}", "shfl.sync.bfly.b32 %r5, %r0, 1, 0x1f, -1;"), schedule=schedule)
    accepted(body.replace("{barrier}", "bar.warp.sync -1;"), schedule=schedule)
    accepted(body.replace("{barrier}", "bar.sync 0;"), schedule=schedule)


@SCHEDULES
def test_a_barrier_of_the_warp_is_none_of_the_block(schedule):
    body = f"{SLOT} xor.b32 %r3, %r0, 32; mad.lo.u32 %r3, %r3, 4, %r1; st.shared.u32 [%r2], %r0; {{barrier}} "
    body += "st.shared.u32 [%r3], %r0;"
    assert refusal(body.replace("{barrier}", "bar.warp.sync -1;"), schedule=schedule).kind == "race"
    accepted(body.replace("{barrier}", "bar.sync 0;"), schedule=schedule)


@SCHEDULES
def test_a_barrier_of_some_lanes_orders_nothing_for_others(schedule):
    body = f"""{SLOT} st.shared.u32 [%r2], %r0; bar.sync 0; setp.eq.u32 %p1, %r0, 0;
    @%p1 ld.shared.u32 %r4, [%r1+4]; @!%p1 bar.warp.sync 0xfffffffe; @!%p1 st.shared.u32 [%r2], %r0;"""
    assert refusal(body, threads=32, schedule=schedule).kind == "race"


@SCHEDULES
@pytest.mark.parametrize("lane", [0, 31])
@pytest.mark.parametrize("space", ["global.u32 [%d0]", "shared.u32 [tile]"])
def test_equal_writes_of_a_warp_are_those_of_all_its_lanes(space, lane, schedule):
    body = f"st.{space}, 7; {{barrier}} setp.eq.u32 %p1, %r0, {lane}; @%p1 st.{space}, 9;"
    assert refusal(body.replace("{barrier}", ""), threads=32, schedule=schedule).kind == "race"
    accepted(body.replace("{barrier}", "bar.warp.sync -1;"), threads=32, schedule=schedule)


def test_a_matrix_is_read_by_the_whole_warp():
    body = f"""{SLOT} mad.lo.u32 %r2, %r0, 16, %r1; st.shared.v4.u32 [%r2], {{%r0, %r0, %r0, %r0}}; BARRIER
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r3, %r4, %r5, %r6}}, [%r2];"""
    assert refusal(body.replace("BARRIER", ""), threads=32).kind == "race"
    accepted(body.replace("BARRIER", "bar.warp.sync -1;"), threads=32)


@SCHEDULES
@pytest.mark.parametrize("other", [1, 32])
def test_threads_that_meet_in_global_memory_need_a_barrier(other, schedule):
    body = f"""{ADDRESS} xor.b32 %r1, %r0, {other}; mad.wide.u32 %d2, %r1, 4, %d0;
    st.global.u32 [%d1], %r0; {{barrier}} ld.global.u32 %r2, [%d2];"""
    assert refusal(body.replace("{barrier}", ""), schedule=schedule).kind == "race"
    accepted(body.replace("{barrier}", "bar.sync 0;"), schedule=schedule)
    warp = body.replace("{barrier}", "bar.warp.sync -1;")
    if other < 32:
        accepted(warp, schedule=schedule)
    else:
        assert refusal(warp, schedule=schedule).kind == "race"


@SCHEDULES
@pytest.mark.parametrize("space", ["global.u32 [%d0]", "shared.u32 [tile]"])
def test_two_writers_of_one_word_are_a_race_unless_of_one_warp_and_equal(space, schedule):
    assert refusal(f"st.{space}, 7;", schedule=schedule).kind == "race"
    assert refusal(f"st.{space}, %r0;", threads=32, schedule=schedule).kind == "race"
    accepted(f"st.{space}, 7;", threads=32, schedule=schedule)


@pytest.mark.parametrize("order", ["{write} bar.sync 0; {read}", "{read} bar.sync 0; {write}"])
def test_what_a_launch_writes_is_not_constant(order):
    body = order.format(read="ld.global.nc.f32 %f1, [%d1];", write="st.global.f32 [%d1], 0f00000000;")
    assert "ld.global.nc" in refusal(f"{ADDRESS} {body}").message
    accepted(f"{ADDRESS} {body.replace('.nc', '')}")


def test_neighbouring_bytes_of_two_warps_are_no_race():
    accepted("mov.u32 %r1, tile; add.u32 %r2, %r1, %r0; st.shared.u8 [%r2], %r0;")
    accepted("mov.u32 %r1, tile; mul.lo.u32 %r2, %r0, 3; add.u32 %r2, %r2, %r1; st.shared.u8 [%r2], %r0;")


def test_races_are_overlooked_on_request():
    accepted("st.shared.u32 [tile], %r0;", check_races=False)


@SCHEDULES
def test_blocks_that_meet_in_global_memory_are_a_race(schedule):
    assert refusal(f"{ADDRESS} st.global.f32 [%d1], 0f00000000;", blocks=2, schedule=schedule).kind == "race"
    accepted(f"{ADDRESS} ld.global.f32 %f1, [%d1];", blocks=2, schedule=schedule)


@SCHEDULES
def test_a_barrier_some_threads_miss_is_found(schedule):
    error = refusal("setp.lt.u32 %p1, %r0, 32; @%p1 bra L; bar.sync 0; L:", schedule=schedule)
    assert error.kind == "barrier divergence"
    assert refusal("setp.lt.u32 %p1, %r0, 16; @%p1 bar.sync 0;", schedule=schedule).kind == "barrier divergence"


def test_different_barriers_do_not_match():
    body = "setp.lt.u32 %p1, %r0, 32; @%p1 bra L; bar.sync 0; bra M; L: bar.sync 0; M:"
    error = refusal(body)
    assert error.kind == "barrier divergence"
    assert "wait at line" in error.message


COPY = "mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %d1, %r0, 16, %d0;"
START = f"{COPY} cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.commit_group;"
DONE = "cp.async.commit_group; cp.async.wait_group 0;"
READ = "ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r2];"


def test_copies_are_there_after_the_wait_and_not_before():
    accepted(f"{START} cp.async.wait_group 0; {READ}", threads=16)
    accepted(f"{START} cp.async.commit_group; cp.async.wait_group 1; {READ}", threads=16)
    accepted(f"{COPY} cp.async.ca.shared.global [%r2], [%d1], 8; {DONE} ld.shared.u32 %r3, [%r2];", threads=16)
    assert refusal(f"{START} {READ}", threads=16).kind == "in flight"
    assert refusal(f"{START} cp.async.wait_group 1; {READ}", threads=16).kind == "in flight"
    assert refusal(START, threads=16).kind == "in flight"  # the block's shared memory may be another one's then


def test_a_wait_counts_for_the_threads_that_wait():
    body = (
        f"{START} setp.lt.u32 %p1, %r0, 8; @%p1 cp.async.wait_group 0; setp.lt.u32 %p2, %r0, {{readers}}; @%p2 {READ}"
        " cp.async.wait_group 0;"
    )
    accepted(body.replace("{readers}", "8"), threads=16)
    assert refusal(body.replace("{readers}", "9"), threads=16).thread == (8, 0, 0)


def test_copies_leave_the_old_content_until_the_wait():
    body = f"{COPY} st.shared.u32 [%r2], 7; {START} ld.shared.u32 %r3, [%r2]; {DONE} st.global.u32 [%d1], %r3;"
    memory = Memory()
    pointer = memory.place(np.zeros(64, np.float32))
    run(body, memory, pointer, threads=1, check_races=False)
    assert memory.array(pointer, np.uint32, 1)[0] == 7
    assert refusal(body, threads=1).kind == "in flight"


def test_copies_of_other_warps_need_a_barrier_after_the_wait():
    body = f"""{COPY} setp.lt.u32 %p1, %r0, 16; @%p1 cp.async.cg.shared.global [%r2], [%d1], 16;
    {DONE} {{barrier}} and.b32 %r0, %r0, 15; mad.lo.u32 %r2, %r0, 16, %r1; {READ}"""
    assert refusal(body.replace("{barrier}", "")).kind == "race"
    accepted(body.replace("{barrier}", "bar.sync 0;"))


def test_the_source_size_bounds_what_a_copy_reads():
    body = f"""{COPY} setp.lt.u32 %p1, %r0, 16; selp.b32 %r7, 16, 0, %p1;
    cp.async.cg.shared.global [%r2], [%d1], 16{{size}}; {DONE} {READ}"""
    accepted(body.replace("{size}", ", %r7"), threads=32)
    assert refusal(body.replace("{size}", ""), threads=32).kind == "out of bounds"


def test_lanes_that_do_not_come_are_missed():
    body = "setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 0x1f, 0xffffffff;"
    assert refusal(body, threads=32).kind == "warp divergence"
    accepted("setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 0x1f, 0xffff;", threads=32)


def test_a_warp_barrier_needs_its_lanes():
    body = "setp.lt.u32 %p1, %r0, 16; @%p1 bar.warp.sync {mask};"
    accepted(body.replace("{mask}", "0xffff"), threads=32)
    assert refusal(body.replace("{mask}", "-1"), threads=32).kind == "warp divergence"


def test_a_trap_is_reported():
    error = refusal("setp.eq.u32 %p1, %r0, 40; @%p1 trap;")
    assert (error.kind, error.thread) == ("trap", (40, 0, 0))


@SCHEDULES
def test_blocks_of_odd_sizes_have_no_more_threads_than_asked_for(schedule):
    memory = Memory()
    pointer = memory.allocate(4 * 45 * 7)
    body = "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 45, %r0; mad.wide.u32 %d1, %r1, 4, %d0;"
    run(f"{body} st.global.u32 [%d1], %r1; bar.sync 0;", memory, pointer, threads=45, blocks=7, schedule=schedule)
    assert memory.array(pointer, np.uint32, 45 * 7).tolist() == list(range(45 * 7))


def test_an_unknown_instruction_is_named_when_it_is_reached():
    error = refusal("tcgen05.alloc.b32 %r1, %r2;", threads=32)
    assert error.kind == "unknown instruction"
    assert "tcgen05.alloc" in str(error)
    accepted("bra END; tcgen05.alloc.b32 %r1, %r2; END:", threads=32)


FOREIGN = [
    "add.cc.u32 %r1, %r2, %r3",
    "mad.hi.u32 %r1, %r2, %r3, %r4",
    "max.relu.f32 %f1, %f2, %f3",
    "add.f16x2 %r1, %r2, %r3",
    "dp2a.hi.u32.u32 %r1, %r2, %r3, %r4",
    "prmt.b32.f4e %r1, %r2, %r3, %r4",
    "setp.lt.and.u32 %p1, %r1, %r2, %p2",
    "cvt.rz.f16.f32 %h1, %f1",
    "cvt.rn.tf32.f32 %r1, %f1",
    "cvt.rn.relu.f16x2.f32 %r1, %f1, %f2",
    "cvta.shared.u64 %d1, %d0",
    "mapa.u64 %d1, %d0, %r1",
    "ld.u32 %r1, [%d0]",
    "atom.global.add.u32 %r1, [%d0], 1",
    "cp.async.bulk.commit_group",
    "cp.async.ca.shared.global [tile], [%d0], 12",
    "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r1}, [tile]",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r3, %r4, %r5, %r6}, {%r7, %r8}, {%r1, %r2}",
    "bar.sync 1",
    "griddepcontrol.other",
]
"""Forms of instructions that no kernel has."""


@pytest.mark.parametrize("text", FOREIGN)
def test_a_form_that_no_kernel_has_is_refused(text):
    assert refusal(f"{text};", threads=32).kind == "unknown instruction"


@pytest.mark.parametrize("text", ["add.f32 %f1, %h1, %f2;", "add.f32.f16 %f1, %f2, %f2;", "max.u32 %r1, %d1, %r2;"])
def test_an_operand_as_wide_as_none_of_the_instructions_types_is_refused(text):
    assert "as wide" in str(refusal(text, threads=32))


def test_an_endless_loop_ends():
    assert refusal("L: bra L;", limit=1000).kind == "limit"


def test_a_launch_that_cannot_be_is_refused():
    assert refusal("", threads=2048).kind == "launch"
    assert refusal("", schedule="other").kind == "launch"
    assert refusal("", threads=32, shared_bytes=228 << 10).kind == "launch"
    accepted("", threads=32, shared_bytes=226 << 10)
    assert refusal("", threads=32, module=".shared .align 16 .b8 tile[49168];").kind == "launch"


@pytest.mark.parametrize(("architecture", "most"), [("sm_75", 64), ("sm_86", 99), ("sm_90a", 227)])
def test_each_architecture_has_its_shared_memory(architecture, most):
    text = kernel("").replace("sm_90", architecture)
    Module(text).launch("k", (1,), (32,), [], most << 10, memory=Memory())
    with pytest.raises(SimulationError, match=f"at most 49152 and {most << 10}"):
        Module(text).launch("k", (1,), (32,), [], (most << 10) + 16, memory=Memory())


@pytest.mark.parametrize(("grid", "block"), [((1, 65536), (32,)), ((1, 1, 65536), (32,)), ((1,), (1, 1, 65))])
def test_a_grid_and_a_block_have_an_end(grid, block):
    with pytest.raises(SimulationError, match="launch"):
        Module(kernel("")).launch("k", grid, block, [], memory=Memory())


def test_text_that_is_no_ptx_is_refused():
    with pytest.raises(SimulationError, match="syntax"):
        Module(kernel("add.s32 %r1, %r2 + 3 4, 5;"))
