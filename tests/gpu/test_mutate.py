"""Places for bugs, and those where a bug makes no difference.

`tests/targets/test_cuda_mutations.py` and `tests/scripts/test_mutate_kernels.py` plant bugs in the kernels."""

from __future__ import annotations

import pytest

from tests.gpu import mutate
from tests.gpu.equal_mutants import proof
from tests.gpu.one_instruction import kernel
from tests.gpu.simulator import Memory, Module, SimulationError


def test_a_bug_that_has_no_place_is_refused() -> None:
    with pytest.raises(mutate.NoSuchPlaceError, match="2 matches"):
        mutate.remove_barrier("bar.sync 0; bar.sync 0;", 2)


def outcome(text: str) -> str:
    """The kind of error of 32 threads, or "right"."""
    memory = Memory()
    try:
        Module(text).launch("k", (1,), (32,), [memory.allocate(4 * 32)], memory=memory)
    except SimulationError as error:
        return error.kind
    return "right"


@pytest.mark.parametrize(
    ("kind", "limit", "expected"),
    [
        ("a bound is one off", 31, "trap"),
        ("a bound is one off", 32, "right"),
        ("a load or store is unguarded", 31, "trap"),
        ("a load or store is unguarded", 32, "right"),
        ("bar.sync is missing", 32, "trap"),
    ],
)
def test_a_witness_traps_where_a_bug_makes_a_difference(kind: str, limit: int, expected: str) -> None:
    guarded = f"setp.lt.u32 %p1, %r0, {limit}; @%p1 st.global.u32 [%d1], %r0;"
    text = kernel(f"mad.wide.u32 %d1, %r0, 4, %d0; {guarded} bar.sync 0;", ["u64"])
    mutation = mutate.MUTATIONS[kind]
    (place,) = mutation.places(text)
    assert outcome(text) == "right"
    assert outcome(mutate.witness(text, place, mutation.planted(text, place))) == expected


LARGER = """
setp.{} %p1, %r1, %r2; selp.b32 %r3, %r1, %r2, %p1; st.global.u32 [%rd1], %r3;
"""
FIRST_OF_EQUALS = """
setp.eq.f32 %p1, %f1, %f2; setp.{} %p2, %r1, %r2; and.pred %p3, %p1, %p2;
setp.gt.f32 %p4, %f2, %f1; or.pred %p5, %p4, %p3; // the better one
selp.f32 %f3, %f2, %f1, %p5; selp.b32 %r3, %r2, %r1, %p5;
shfl.sync.bfly.b32 %r4, %r3, %r5, 31, -1; st.global.f32 [%rd1], %f3;
"""


@pytest.mark.parametrize(
    ("text", "is_equal"),
    [
        (LARGER.format("gt.s32"), True),
        (LARGER.format("gt.s32").replace("%r2, %p1", "0, %p1"), False),  # a rectified number, of others
        (LARGER.format("gt.s32") + "@%p1 bra $L1;", False),
        (LARGER.format("gt.s32") + "$L1: selp.b32 %r6, 1, 2, %p1;", False),
        (LARGER.format("gt.s32").replace("selp", "mov.u32 %r1, 3; selp"), False),
        (LARGER.format("gt.s32").replace("b32 %r3", "b32 %r1"), False),  # a number that is kept from turn to turn
        (FIRST_OF_EQUALS.format("gt.s32"), True),
        (FIRST_OF_EQUALS.format("gt.s32").replace("eq.f32", "ge.f32"), False),
        (FIRST_OF_EQUALS.format("gt.s32").replace("eq.f32", "ne.f32"), False),
        (FIRST_OF_EQUALS.format("gt.s32").replace("%r2, %r1, %p5", "%r2, %r6, %p5"), False),
    ],
)
def test_a_bound_may_be_one_off_where_equal_values_are_selected(text, is_equal):
    bound = mutate.MUTATIONS[mutate.BOUND]
    place = bound.places(text)[0]
    assert bool(proof(text, place, bound.planted(text, place))) == is_equal
