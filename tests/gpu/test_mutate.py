"""Every bug that can be planted in a kernel is noticed, by a check or in the result."""

from __future__ import annotations

import pytest

from tests.gpu import mutate
from tests.gpu.equal_mutants import proof
from tests.gpu.simulator import SimulationError
from tests.gpu.small_gemm import PTX, relative_error

SCHEDULES = pytest.mark.parametrize("schedule", ["lockstep", "random"])


@SCHEDULES
@pytest.mark.parametrize("check_races", [True, False])
def test_the_kernel_without_bugs_is_right(schedule, check_races):
    assert relative_error(PTX, schedule=schedule, check_races=check_races) < 1e-6


def kind_of(text: str, **options) -> str:
    """What the kernel is refused for."""
    with pytest.raises(SimulationError) as caught:
        relative_error(text, **options)
    return caught.value.kind


@SCHEDULES
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_barrier_is_a_race(number, schedule):
    assert kind_of(mutate.remove_barrier(PTX, number), schedule=schedule) in ("race", "uninitialised")


def test_a_wait_that_waits_for_too_little_is_noticed():
    text = mutate.raise_wait_group(PTX)
    assert kind_of(text) == "in flight"
    assert kind_of(text, check_races=False) == "uninitialised"


def test_a_copy_without_zero_fill_leaves_the_tensor():
    assert kind_of(mutate.drop_zero_fill(PTX, 0)) == "out of bounds"


@pytest.mark.parametrize("number", [0, 2])
def test_a_predicate_that_is_gone_is_noticed(number):
    assert kind_of(mutate.drop_global_predicate(PTX, number)) in ("race", "out of bounds", "in flight")


def test_a_store_without_its_branch_leaves_the_tensor():
    assert kind_of(mutate.drop_branch_before_store(PTX, 1)) == "out of bounds"


@pytest.mark.parametrize("number", [0, 1])
def test_a_transposed_matrix_is_wrong(number):
    assert relative_error(mutate.transpose_ldmatrix(PTX, number)) > 0.1


def test_a_matrix_transposed_twice_is_right():
    assert mutate.transpose_ldmatrix(mutate.transpose_ldmatrix(PTX)) == PTX


def test_swapped_registers_are_wrong():
    assert relative_error(mutate.swap_mma_registers(PTX)) > 0.1


@pytest.mark.parametrize("nbytes", [32 * 32, -32 * 32])
def test_a_store_one_tile_away_is_noticed(nbytes):
    assert kind_of(mutate.shift_global_store(PTX, nbytes)) in ("out of bounds", "race")


def test_a_bug_that_has_no_place_is_refused():
    with pytest.raises(mutate.NoSuchPlaceError, match="2 matches"):
        mutate.remove_barrier(PTX, 2)


KINDS = [
    pytest.param(kind, number, id=f"{kind} {number}")
    for kind, mutation in mutate.MUTATIONS.items()
    for number in range(len(mutation.places(PTX)))
]


def outcome(text: str, **options) -> str:
    """The kind of error, "wrong", or "right", of the product in any schedule."""
    for schedule in ("lockstep", "random"):
        try:
            if not relative_error(text, schedule=schedule, **options) < 1e-6:
                return "wrong"
        except SimulationError as error:
            return error.kind
    return "right"


@pytest.mark.parametrize(("kind", "number"), KINDS)
def test_every_bug_that_the_script_plants_is_killed_or_idle(kind, number):
    mutation = mutate.MUTATIONS[kind]
    place = mutation.places(PTX)[number]
    mutant = mutation.planted(PTX, place)
    seen = outcome(mutant) != "right"
    assert seen or outcome(mutate.witness(PTX, place, mutant)) == "right"


@pytest.mark.parametrize(
    ("body", "kind", "rows", "expected"),
    [
        ("setp.lt.u32 %p5, %r51, %r1;", "a bound is one off", 37, "trap"),
        ("setp.lt.u32 %p5, %r51, %r1;", "a bound is one off", 64, "right"),
        ("@%p5 st.global", "a load or store is unguarded", 37, "trap"),
        ("@%p5 st.global", "a load or store is unguarded", 64, "right"),
        ("bar.sync 0;", "bar.sync is missing", 64, "trap"),
    ],
)
def test_a_witness_traps_where_a_bug_makes_a_difference(body, kind, rows, expected):
    mutation = mutate.MUTATIONS[kind]
    place = next(place for place in mutation.places(PTX) if place.group() == body)
    assert outcome(mutate.witness(PTX, place, mutation.planted(PTX, place)), rows=rows) == expected


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
