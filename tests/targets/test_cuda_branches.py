"""Launches side by side: which order memory demands, when branches are worth it, and that they run in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Softmax
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.index_forms import Suppress
from jitdelegate.targets.cuda.code.gpu import GPUS, Costs, Gpu, gpu_of
from jitdelegate.targets.cuda.code.template import Launch
from jitdelegate.targets.cuda.plan import plan as plan_module
from jitdelegate.targets.cuda.plan.branches import Branches, Order, Touch, extended, in_a_row, nanoseconds
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.planning.buffer_plan import Life
from jitdelegate.targets.planning.parts import Part
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.part_graphs import Draft

OLD, NEW = GPUS["sm_80"], GPUS["sm_90"]
WIDTH = 64


def arms(*lengths: int, are_joined: bool = False) -> Graph:
    """Softmaxes of one input in arms of so many, and the sum of their ends; or multiples of these one after the other,
    of which those of equal arms share a grid."""
    draft, ends = Draft((2, WIDTH)), []
    for length in lengths:
        last = 0
        for _ in range(length):
            last = draft.node(Softmax(beta=len(draft.tensors)), [last], (2, WIDTH))
        ends.append(draft.map(Arg(0) * float(length), last) if are_joined else last)  # a kernel that writes parts
    return draft.graph(draft.concat(1, *ends) if are_joined else total(draft, ends))


def total(draft: Draft, indices: Sequence[int]) -> int:
    """The sum of tensors of one shape."""
    return draft.map(sum(map(Arg, range(1, len(indices))), Arg(0)), *indices)


def suppressions(count: int) -> Graph:
    """So many suppressions of the same boxes by the same scores, each by a limit of its own, and the sum of them."""
    draft = Draft((4, WIDTH))
    scores = draft.made(0)
    forms = [Suppress(score_threshold=0.0, overlap=limit / 10) for limit in range(2, 2 + count)]
    return draft.graph(total(draft, [draft.node(form, [0, scores], (4, 8), "int32") for form in forms]))


def before(orders: Sequence[Order]) -> list[set[int]]:
    """For each launch, those that have ended when it begins."""
    found: list[set[int]] = []
    lasts: dict[int, int] = {}
    for number, order in enumerate(orders):
        followed = [*order.waits, *([lasts[order.stream]] if order.stream in lasts else [])]
        found.append({*followed}.union(*(found[one] for one in followed)))
        lasts[order.stream] = number
    return found


def launch(cycles: float = 3000.0, blocks: int = 4) -> Launch:
    return Launch(None, (blocks, 1, 1), (), cycles=cycles)  # type: ignore[arg-type]


def touches(reads: Sequence[int], writes: int, part: Part | None = None) -> list[Touch]:
    return [Touch(writes, part, True), *(Touch(one, None, False) for one in reads)]


def ordered(
    touched: Sequence[Sequence[Touch]], gpu: Gpu = OLD, ranges: dict[int, tuple[int, int]] | None = None
) -> tuple[Order, ...]:
    """The orders of launches whose buffers lie apart, or in these ranges."""
    places = ranges or {one.buffer: (10 * one.buffer, 10 * one.buffer + 10) for own in touched for one in own}
    return Branches([launch() for _ in touched], touched, gpu).orders(places)


DIAMOND = [touches([0], 1), touches([1], 2), touches([2], 3), touches([1], 4), touches([4], 5), touches([3, 5], 6)]
"""Launch 0, then two arms of two, then a launch that joins them."""


def test_two_arms_run_side_by_side_where_edges_cost_the_same() -> None:
    assert ordered(DIAMOND) == (Order(), Order(), Order(), Order(1, (0,)), Order(1), Order(0, (4,)))


def test_a_gpu_whose_launches_begin_early_needs_longer_arms() -> None:
    assert list(ordered(DIAMOND[:2] + DIAMOND[3:4] + [touches([2, 4], 6)], NEW)) == in_a_row(4, NEW)
    orders = ordered(DIAMOND, NEW)
    assert orders[3] == Order(1, (0,)) and orders[5] == Order(0, (4,))
    assert [order.is_dependent for order in orders] == [False, True, True, False, True, False]


def test_long_launches_that_fill_the_gpu_run_one_after_another() -> None:
    full = [launch(100_000.0, OLD.multiprocessors)] * 6
    places = {buffer: (10 * buffer, 10 * buffer + 10) for buffer in range(7)}
    assert list(Branches(full, DIAMOND, OLD).orders(places)) == in_a_row(6, OLD)


def test_memory_that_both_arms_use_keeps_their_order() -> None:
    shared = {0: (0, 10), 1: (10, 20), 2: (20, 30), 3: (30, 40), 4: (20, 30), 5: (50, 60), 6: (60, 70)}
    orders = ordered(DIAMOND, ranges=shared)
    assert {1, 2} <= before(orders)[3]


def test_arms_that_write_parts_of_one_tensor_run_side_by_side() -> None:
    arms = [[touches([1], 2 + arm), touches([2 + arm], 9, Part(9, 4 * arm, 4, 12))] for arm in range(3)]
    orders = ordered([touches([0], 1), *chain(*arms), touches([9], 10)])
    assert [order.stream for order in orders] == [0, 0, 0, 1, 1, 2, 2, 0]
    assert before(orders)[-1] == set(range(7))


def test_more_arms_than_streams_follow_one_another() -> None:
    inner = [touches([1], 2 + arm) for arm in range(6)]
    orders = ordered([touches([0], 1), *inner, touches(range(2, 8), 9)])
    assert {order.stream for order in orders} == {0, 1, 2, 3}
    assert before(orders)[-1] == set(range(7))


@pytest.mark.parametrize("first, second, is_apart", [
    (Part(1, 0, 4, 12), Part(1, 4, 8, 12), True),
    (Part(1, 0, 5, 12), Part(1, 4, 8, 12), False),
    (Part(1, 8, 8, 12), Part(1, 0, 4, 12), False),
    (Part(1, 0, 4, 12), Part(1, 4, 4, 8), False),
    (Part(1, 0, 16, 16), Part(1, 16, 16, 16), True),
    (Part(1, 0, 17, 17), Part(1, 16, 16, 16), False),
], ids=str)  # fmt: skip
def test_parts_of_a_tensor_are_written_side_by_side_where_they_share_nothing(
    first: Part, second: Part, is_apart: bool
) -> None:
    assert Touch(1, first, True).conflicts(Touch(1, second, True)) != is_apart
    assert not Touch(1, first, False).conflicts(Touch(1, first, False))
    assert Touch(1, first, False).conflicts(Touch(1, None, True))


def test_no_random_launches_lose_an_order_that_their_memory_demands() -> None:
    draw, used = random.Random(0), 0
    for _ in range(150):
        count = draw.randrange(3, 14)
        touched = [touches(draw.sample(range(9), draw.randrange(1, 3)), draw.randrange(9)) for _ in range(count)]
        starts = [draw.randrange(40) for _ in range(9)]
        ranges = {buffer: (start, start + 3) for buffer, start in enumerate(starts)}
        for gpu in (OLD, NEW):
            orders = ordered(touched, gpu, ranges)
            used += any(order.stream for order in orders)
            ended = before(orders)
            for later in range(count):
                for earlier in range(later):
                    conflict = any(
                        (a.writes or b.writes)
                        and ranges[a.buffer][0] < ranges[b.buffer][1]
                        and ranges[b.buffer][0] < ranges[a.buffer][1]
                        for a in touched[earlier]
                        for b in touched[later]
                    )
                    assert not conflict or earlier in ended[later], (touched, ranges, orders)
    assert used > 20


def test_what_is_alive_in_a_region_stays_alive_all_through() -> None:
    lives = {1: Life(4, 0, 2), 2: Life(4, 3, 4), 3: Life(4, 5, 9), 4: Life(4, 7, 9)}
    assert extended(lives, [(2, 6)]) == {
        1: Life(4, 0, 5), 2: Life(4, 2, 5), 3: Life(4, 2, 9), 4: Life(4, 7, 9)
    }  # fmt: skip


def test_the_predicted_time_adds_edges_and_lets_small_launches_overlap() -> None:
    one = [launch(1755.0)] * 3
    edge = nanoseconds(one[:2], [Order()] * 2, OLD) - 2000
    assert nanoseconds(one, [Order()] * 3, OLD) == pytest.approx(3000 + 2 * edge)
    assert nanoseconds(one, [Order(), Order(), Order(1, (0,))], OLD) == pytest.approx(2000 + edge)
    large = [launch(1755.0, OLD.multiprocessors)] * 3
    assert nanoseconds(large, [Order(), Order(), Order(1, (0,))], OLD) == pytest.approx(3000 + edge)
    assert nanoseconds(one, in_a_row(3, NEW), NEW) < 3000 + edge


def test_the_costs_of_the_gpu_decide_where_there_are_branches() -> None:
    far = replace(NEW, costs=Costs(full_edge=1e6))
    assert {order.stream for order in plan(arms(4, 4), far, "float32").orders} == {0}


def test_arms_have_memory_of_their_own() -> None:
    planned = plan(arms(4, 4), NEW, "float32")
    assert {order.stream for order in planned.orders} == {0, 1}
    assert list(plan(arms(8), NEW, "float32").orders) == in_a_row(9, NEW)


def test_launches_whose_second_written_tensors_share_memory_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suppressions write the scores that are left, besides their results."""
    apart = plan(suppressions(2), OLD, "float32")
    assert {order.stream for order in apart.orders} == {0, 1}
    monkeypatch.setattr(plan_module, "GROWTH_BYTES", 0)
    monkeypatch.setattr(plan_module, "MOST_GROWTH", 1.0)
    for planned, share in ((apart, False), (plan(suppressions(2), OLD, "float32"), True)):
        left = [planned.blocks[launch.tensors()[1]] for launch in planned.launches[1:3]]
        assert [launch.template.family for launch in planned.launches] == ["normalize", "suppress", "suppress", "map"]
        assert (left[0] == left[1], 1 in before(planned.orders)[2]) == (share, share)


def executed(
    graph: Graph, kind: str, capability: tuple[int, int], x: np.ndarray, seeds: Sequence[int]
) -> Iterator[np.ndarray]:
    """What a session computes whose branches run in orders drawn from the seeds."""
    cuda_session = pytest.importorskip("tests.targets.cuda_session")
    running, library = cuda_session.session_of(graph, kind, capability)
    for seed in seeds:
        library.choose = random.Random(seed).choice
        yield np.asarray(running.run([x])[0])
    assert not running.graph_failure
    assert (library.calls["cuLaunchKernelEx"] > 0) == gpu_of(kind).has_dependent_launch
    assert library.calls["cuStreamWaitEvent"] > 0
    running.close()


@pytest.mark.parametrize("are_joined", [False, True], ids=["sum", "parts of a concatenation"])
@pytest.mark.parametrize(
    ("kind", "capability"), [("sm_80", (8, 0)), ("sm_90", (9, 0)), ("compute_90", (12, 1))], ids=str
)
def test_branches_compute_the_same_in_any_order(kind: str, capability: tuple[int, int], are_joined: bool) -> None:
    graph = arms(4, 4, 3, are_joined=are_joined)
    x = np.random.default_rng(0).uniform(-2, 2, (2, WIDTH)).astype(np.float32)
    (expected,) = run_graph(graph, [x])
    for found in executed(graph, kind, capability, x, range(3)):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_suppressions_side_by_side_compute_the_same_in_any_order() -> None:
    graph = suppressions(3)
    x = np.random.default_rng(0).uniform(0, 1, (4, WIDTH)).astype(np.float32)
    (expected,) = run_graph(graph, [x])
    for found in executed(graph, "sm_80", (8, 0), x, range(3)):
        np.testing.assert_array_equal(found, expected)
