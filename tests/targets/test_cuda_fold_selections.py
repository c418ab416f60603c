"""Channel shuffles on CUDA that 1x1 convolutions take into their weights."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, maximum
from jitdelegate.ir.forms import Contract, Depthwise, IndexMap, Map, View
from jitdelegate.targets.cuda.fold_selections import _Selection
from jitdelegate.targets.cuda.gpu import gpu_of
from jitdelegate.targets.cuda.plan import plan
from tests.targets.cuda_graphs import compare
from tests.targets.part_graphs import Draft

RELU = maximum(Arg(0), 0.0)
NUMBERS = np.random.default_rng(3)
IMAGE, HALF = (1, 3, 5), 6


def shuffled(draft: Draft, index: int, groups: int = 2) -> int:
    """Neighbouring channels come from different groups."""
    *image, channels = draft.tensors[index].shape
    pixels, turned = int(np.prod(image)), IndexMap((0, 2, 1), (0, 0, 0), (1, 1, 1))
    split = draft.node(View(), [index], (pixels, groups, channels // groups))
    moved = draft.node(Map(Arg(0), (turned,)), [split], (pixels, channels // groups, groups))
    return draft.node(View(), [moved], (*image, channels))


def pointwise(draft: Draft, index: int, outputs: int) -> int:
    *image, channels = draft.tensors[index].shape
    weights = draft.constant(NUMBERS.uniform(-0.5, 0.5, (outputs, 1, 1, channels)).astype(np.float32))
    return draft.node(Contract(), [index, weights, -1], (*image, outputs))


def unit(draft: Draft, joined: int) -> int:
    """A unit of ShuffleNet: half of the channels pass, the others are convolved."""
    mixed = shuffled(draft, joined)
    halves = [draft.slice(mixed, (0, 0, 0, start), (*IMAGE, HALF)) for start in (0, HALF)]
    return draft.concat(3, halves[0], draft.map(RELU, pointwise(draft, halves[1], HALF)))


def families(draft: Draft, *outputs: int) -> Counter[str]:
    return Counter(one.template.family for one in plan(draft.graph(*outputs), gpu_of("sm_90"), "float32").launches)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_shuffle_before_products_is_one_map_of_what_passes(precision: str) -> None:
    draft = Draft((*IMAGE, 2 * HALF))
    last = pointwise(draft, shuffled(draft, unit(draft, unit(draft, draft.map(RELU, 0)))), 4)
    found = families(draft, last)
    assert (found["concat"], found["map"], found["contract_ffma"]) == (0, 5, 3)
    compare(draft.graph(last), precision, tolerance=1e-5 if precision == "float32" else 1e-2)


def test_channels_that_are_read_several_times_add_their_weights() -> None:
    draft = Draft((*IMAGE, 4))
    turned = IndexMap((0, 1, 2, -1), (0, 0, 0, 0), (1, 1, 1, 1))
    spread = draft.node(Map(Arg(0), (turned,)), [draft.map(RELU, 0)], (*IMAGE, 4))
    last = pointwise(draft, spread, 8)
    assert families(draft, last)["map"] == 1
    compare(draft.graph(last), tolerance=1e-5)


@pytest.mark.parametrize("case", ["output", "depthwise", "rows", "large"])
def test_other_shuffles_stay(case: str) -> None:
    draft = Draft((1, 400, 400, 32) if case == "large" else (*IMAGE, 2 * HALF))
    mixed = shuffled(draft, draft.map(RELU, 0))
    if case == "rows":
        turned = IndexMap((0, 2, 1, 3), (0, 0, 0, 0), (1, 1, 1, 1))
        mixed = draft.node(Map(Arg(0), (turned,)), [draft.map(RELU, 0)], (1, 5, 3, 2 * HALF))
    *image, channels = draft.tensors[mixed].shape
    half = draft.slice(mixed, (0, 0, 0, 0), (*image, channels // 2))
    outputs = [pointwise(draft, half, 256 if case == "large" else 4)]
    if case == "output":
        outputs.append(mixed)
    if case == "depthwise":
        weights = draft.constant(NUMBERS.uniform(-1, 1, (1, 1, 1, channels)).astype(np.float32))
        outputs.append(draft.node(Depthwise(), [mixed, weights, -1], (*image, channels)))
    before = len(plan(draft.graph(*outputs), gpu_of("sm_90"), "float32").launches)
    assert before == {"output": 3, "depthwise": 4, "rows": 3, "large": 3}[case]
    if case != "large":
        compare(draft.graph(*outputs), tolerance=1e-5)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=str)
def test_products_of_neighbouring_channels_leave_the_others_out(order: tuple[int, int, int]) -> None:
    """Time steps of several sequences, as a convolution reads them: each is a run of channels of a sequence."""
    draft = Draft((3, 4, HALF))
    kept = draft.map(RELU, 0)
    turned = IndexMap((1, 0, 2), (0, 0, 0), (1, 1, 1))
    steps = draft.node(Map(Arg(0), (turned,)), [kept], (4, 3, HALF))
    seen = [draft.node(View(), [draft.slice(steps, (step, 0, 0), (1, 3, HALF))], (1, 1, 3, HALF)) for step in order]
    graph = draft.graph(*(pointwise(draft, one, 4) for one in seen))
    assert families(draft, *graph.outputs) == {"map": 1, "contract_gemv": 3}
    x = NUMBERS.uniform(0, 1, (3, 4, HALF)).astype(np.float32)
    x[:, 2], x[1, 0] = np.inf, np.nan
    compare(graph, feeds=[x], tolerance=1e-5)


def test_channels_in_another_order_are_all_multiplied_by_weights() -> None:
    draft = Draft((*IMAGE, 2 * HALF))
    graph = draft.graph(pointwise(draft, shuffled(draft, draft.map(RELU, 0)), 4))
    x = NUMBERS.uniform(0, 1, (*IMAGE, 2 * HALF)).astype(np.float32)
    x[0, 1, 1, 5], x[0, 2, 2] = np.inf, np.nan
    assert families(draft, *graph.outputs)["map"] == 1
    compare(graph, feeds=[x], tolerance=1e-5)


def test_the_inputs_of_a_graph_are_not_read_in_parts() -> None:
    """A slice of an input would be a launch, as many as there are readers."""
    draft = Draft((3, 4, HALF))
    turned = IndexMap((1, 0, 2), (0, 0, 0), (1, 1, 1))
    steps = draft.node(Map(Arg(0), (turned,)), [0], (4, 3, HALF))
    seen = [draft.node(View(), [draft.slice(steps, (step, 0, 0), (1, 3, HALF))], (1, 1, 3, HALF)) for step in range(3)]
    graph = draft.graph(*(pointwise(draft, one, 4) for one in seen))
    found = Counter(one.template.family for one in plan(graph, gpu_of("sm_90"), "float16").launches)
    assert found == {"map": 1, "contract_gemv": 3}


@pytest.mark.parametrize("image, count", [((), 1), ((), 3), ((1,), 1)])
def test_channels_of_scalars_are_one_channel_several_times(image: tuple[int, ...], count: int) -> None:
    draft = Draft((3,) if count == 1 else ())
    start = draft.map(RELU, 0)
    access = IndexMap((-1,), (1,), (1,)) if count == 1 else IndexMap((), (), ())
    spread = draft.node(Map(Arg(0), (access,)), [start], (*image, count) if image or count > 1 else ())
    row = draft.node(View(), [spread], (1, count))
    weights = draft.constant(NUMBERS.uniform(-0.5, 0.5, (4, count)).astype(np.float32))
    graph = draft.graph(draft.node(Contract(), [row, weights, -1], (1, 4)))
    assert len(plan(graph, gpu_of("sm_90"), "float32").launches) == 2
    compare(graph, tolerance=1e-5)


@pytest.mark.parametrize("first, is_inside", [(2, True), (3, False)])
def test_selected_channels_lie_in_the_rows_of_their_grid(first: int, *, is_inside: bool) -> None:
    """Two channels of every four, from the one on that would be the last of a row, would end in the next row."""
    selection = _Selection(0, np.array([first, first + 1, first + 4, first + 5]), 12)
    assert selection.axes == (((2, 2), (4, 1)) if is_inside else None)
