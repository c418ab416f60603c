"""Parts of tensors on CUDA: concatenations and slices that nobody copies, and kernels that write and read them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, maximum
from jitdelegate.ir.forms import Contract, Depthwise, Form, IndexMap, MatMul, Pool, Resize, View
from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.passes.nest_concats import nest_concats
from jitdelegate.targets.cuda.code.gpu import gpu_of
from jitdelegate.targets.cuda.plan import plan as planning
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.planning.steps import Steps, find_steps
from tests.targets.cuda_graphs import compare
from tests.targets.part_graphs import Draft

RELU = maximum(Arg(0), 0.0)
DOUBLE = Arg(0) + Arg(0)


def families(graph: Graph, precision: str = "float32", architecture: str = "sm_90") -> Counter[str]:
    return Counter(launch.template.family for launch in plan(graph, gpu_of(architecture), precision).launches)


def check(graph: Graph, precision: str, **expected: int) -> None:
    """The graph's answers are right, and it has these launches."""
    assert families(graph, precision) == expected
    compare(graph, precision)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(
    ("axis", "shape", "other"),
    [(3, (2, 3, 5, 4), (2, 3, 5, 12)), (3, (1, 2, 2, 3), (1, 2, 2, 1)), (2, (2, 3, 5, 1), (2, 3, 2, 1)),
     (0, (2, 3), (3, 3)), (1, (4, 1), (4, 1))],
)  # fmt: skip
def test_maps_write_and_read_parts(axis: int, shape: tuple[int, ...], other: tuple[int, ...], precision: str) -> None:
    draft = Draft(shape, other)
    a, b = draft.map(RELU, 0), draft.map(DOUBLE, 1)
    joined = draft.map(RELU, draft.concat(axis, a, b))
    starts = tuple(shape[axis] if at == axis else 0 for at in range(len(shape)))
    again = draft.map(DOUBLE, draft.slice(joined, starts, other))
    check(draft.graph(draft.map(RELU, a), again), precision, map=5)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_what_is_no_kernels_result_is_copied_beside_parts(precision: str) -> None:
    draft = Draft((3, 8), (3, 4))
    half = draft.slice(draft.map(DOUBLE, 0), (0, 4), (3, 4))
    joined = draft.concat(1, half, draft.map(RELU, 1), 1, half)
    check(draft.graph(draft.map(DOUBLE, joined)), precision, map=3, concat=1)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_output_of_the_program_has_parts(precision: str) -> None:
    """The same nodes are parts of an output and of the arena."""
    draft = Draft((2, 3, 4), (2, 3, 5))
    graph = draft.graph(draft.concat(2, draft.map(RELU, 0), draft.map(DOUBLE, 1)))
    check(graph, precision, map=2)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("width", [4, 5])
def test_products_read_heads_of_one_product(width: int, precision: str) -> None:
    """Queries, keys and values are merged; products of matrices read them where they lie, and write a part."""
    heads, rows = 2, 6
    draft, shape = Draft((rows, 8)), (rows, heads * width)
    weights = [np.random.default_rng(at).normal(0, 0.4, (shape[1], 8)).astype(np.float32) for at in range(3)]
    found = [draft.node(Contract(), [0, draft.constant(each), ABSENT], shape) for each in weights]
    query, key, value = (draft.node(View(), [each], (rows, heads, width)) for each in found)
    order = (1, 0, 2)
    scores = draft.node(MatMul(adj_y=True, a_order=order, b_order=order), [query, key], (heads, rows, rows))
    mixed = draft.node(MatMul(b_order=order, order=order), [draft.map(RELU, scores), value], (rows, heads, width))
    other = draft.map(DOUBLE, value)
    joined = draft.concat(1, mixed, other)
    graph = draft.graph(draft.map(DOUBLE, joined))
    counts = families(graph, precision)
    assert sum(count for family, count in counts.items() if family.startswith("contract")) == 1
    assert counts["concat"] == 0
    assert counts["map"] == 3
    compare(graph, precision, tolerance=1e-4 if precision == "float32" else 1e-2)


def test_the_steps_of_a_graph_with_merged_products_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft((6, 8))
    weights = [draft.constant(np.ones((4, 8), np.float32)) for _ in range(2)]
    sums = [draft.map(RELU, draft.node(Contract(), [0, own, ABSENT], (6, 4))) for own in weights]
    planned: list[Graph] = []

    def counted(graph: Graph, *more: Any) -> Steps:
        planned.append(graph)
        return find_steps(graph, *more)

    monkeypatch.setattr(planning, "find_steps", counted)
    assert families(draft.graph(*sums)) == {"map": 2, "contract_ffma": 1}
    assert [sum(isinstance(node.form, Contract) for node in graph.nodes) for graph in planned] == [1]


def test_memory_is_kept_while_a_part_of_it_is_read() -> None:
    """Tensors that are made meanwhile would fit into the memory of the concatenation."""
    draft = Draft((1, 4, 64), (1, 4, 64))
    a = draft.map(RELU, 0)
    b = draft.map(DOUBLE, draft.map(DOUBLE, draft.map(RELU, 1)))
    other = draft.map(DOUBLE, draft.map(DOUBLE, draft.concat(2, a, b)))
    graph = draft.graph(other, draft.map(DOUBLE, draft.map(DOUBLE, draft.map(DOUBLE, a))))
    planned = plan(graph, gpu_of("sm_90"), "float32")
    whole = planned.buffers[a]
    assert whole == planned.buffers[b] != a
    assert planned.blocks[whole][1] == 4 * 4 * 128
    assert (planned.offset(a), planned.offset(b)) == (planned.offset(whole), planned.offset(whole) + 256)
    compare(graph)


def test_tensors_stored_in_other_types_are_no_parts() -> None:
    """A slice of an input is stored like the input."""
    draft = Draft((2, 8))
    graph = draft.graph(draft.map(DOUBLE, draft.slice(0, (0, 4), (2, 4))))
    assert (families(graph, "float32"), families(graph, "float16")) == ({"map": 1}, {"map": 2})
    compare(graph, "float16")
    np.testing.assert_equal(families(draft.graph(draft.slice(0, (0, 0), (1, 8))), "float32"), {"map": 1})


WEIGHTS = np.random.default_rng(1)
READERS: dict[str, tuple[Form, tuple[int, ...], tuple[int, ...]]] = {
    # form, shape of the weights, shape of the result for data [2, 6, 5, 8]
    "pointwise": (Contract(), (12, 1, 1, 8), (2, 6, 5, 12)),
    "window": (Contract(kernel=(3, 3), padding=(1, 1, 1, 1)), (5, 3, 3, 8), (2, 6, 5, 5)),
    "groups": (Contract(groups=2), (8, 1, 1, 4), (2, 6, 5, 8)),
    "transposed": (Contract(kernel=(2, 2), stride=(2, 2), transposed=True), (8, 2, 2, 8), (2, 12, 10, 8)),
    "vector": (Contract(kernel=(6, 5)), (8, 6, 5, 8), (2, 1, 1, 8)),
    "depthwise": (Depthwise(kernel=(3, 3), padding=(1, 1, 1, 1)), (1, 3, 3, 8), (2, 6, 5, 8)),
    "multiplied": (Depthwise(kernel=(2, 2), multiplier=2), (1, 2, 2, 16), (2, 5, 4, 16)),
    "large depthwise": (Depthwise(kernel=(6, 5)), (1, 6, 5, 8), (2, 1, 1, 8)),
    "pool": (Pool(kernel=(2, 2), stride=(2, 2)), (), (2, 3, 2, 8)),
    "large pool": (Pool(kernel=(6, 5), kind="mean", halo_value=None), (), (2, 1, 1, 8)),
    "resize": (Resize(), (), (2, 9, 8, 8)),
    "nearest": (Resize(kind="nearest"), (), (2, 3, 10, 8)),
}


def read_and_written(form: Form, weights: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Draft, int]:
    """A kernel of this form whose data is a slice of channels, whose result is an operand of a concatenation, and whose
    epilogue, if it may have one, adds a slice of the result's shape."""
    rows = (*shape[:-1], shape[-1] + 4)
    draft = Draft((2, 6, 5, 16), rows)
    data, more = draft.map(RELU, 0), draft.map(DOUBLE, 1)
    inputs = [draft.slice(data, (0, 0, 0, 4), (2, 6, 5, 8))]
    if weights:
        inputs += [
            draft.constant(WEIGHTS.uniform(-0.2, 0.2, size).astype(np.float32)) for size in (weights, shape[-1:])
        ]
    inputs.append(draft.slice(more, (0, 0, 0, 4), shape))
    form = replace(form, epilogue=Arg(0) + Arg(1), operands=(IndexMap.broadcast(shape, shape),))
    return draft, draft.node(form, inputs, shape)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("case", READERS)
def test_kernels_read_and_write_rows_of_parts(case: str, precision: str) -> None:
    draft, made = read_and_written(*READERS[case])
    graph = draft.graph(draft.map(DOUBLE, draft.concat(3, draft.map(RELU, 1), made)))
    found = families(graph, precision)
    assert (found["map"], found["concat"]) == (4, 0)
    compare(graph, precision, tolerance=1e-5 if precision == "float32" else 1e-2)


@pytest.mark.parametrize(
    ("pixels", "depth", "family", "architecture"),
    [((3, 3), 2048, "contract_combine", "sm_80"), ((3, 3), 2048, "contract_ffma", "sm_90"),
     ((2,), 72, "contract_gemv", "sm_90")],
)  # fmt: skip
def test_contractions_of_few_pixels_read_and_write_rows_of_parts(
    pixels: tuple[int, ...], depth: int, family: str, architecture: str
) -> None:
    draft = Draft((*pixels, depth + 8), (*pixels, 16))
    starts, shape = (*(0 for _ in pixels), 4), (*pixels, 12)
    data = draft.slice(draft.map(RELU, 0), starts, (*pixels, depth))
    weights = [draft.constant(WEIGHTS.uniform(-0.1, 0.1, size).astype(np.float32)) for size in ((12, depth), (12,))]
    more = draft.slice(draft.map(DOUBLE, 1), starts, shape)
    form = Contract(epilogue=Arg(0) + Arg(1), operands=(IndexMap.broadcast(shape, shape),))
    made = draft.node(form, [data, *weights, more], shape)
    graph = draft.graph(draft.map(DOUBLE, draft.concat(len(pixels), made, draft.map(RELU, 1))))
    found = families(graph, architecture=architecture)
    assert (found[family], found["map"], found["concat"]) == (1, 4, 0)
    compare(graph, tolerance=1e-5, architecture=architecture)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("adj_y", [True, False])
def test_products_read_and_write_rows_of_parts(adj_y: bool, precision: str) -> None:
    """Queries and keys are slices of channels, which are cut into two heads."""
    draft = Draft((2, 6, 40))
    data, heads = draft.map(RELU, 0), (2, 6, 2, 8)
    query, key = (draft.slice(data, (0, 0, start), (2, 6, 16)) for start in (8, 24))
    sides = [draft.node(View(), [index], heads) for index in (query, key)]
    order, size = (0, 2, 1, 3), 6 if adj_y else 8
    form = MatMul(adj_x=not adj_y, adj_y=adj_y, a_order=order, b_order=order)
    made = draft.node(form, sides, (2, 2, size, size))
    graph = draft.graph(draft.map(DOUBLE, draft.concat(3, draft.map(RELU, made), made)))
    assert (families(graph, precision)["map"], families(graph, precision)["concat"]) == (3, 0)
    compare(graph, precision, tolerance=1e-5 if precision == "float32" else 1e-2)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_samplings_to_one_size_copy_nothing(precision: str) -> None:
    """Images of several sizes become channels of one."""
    images, size = [(2, 3, 5, 1), (2, 6, 2, 1), (2, 1, 1, 2)], (2, 7, 9)
    draft = Draft(*images)
    sampled = [draft.node(Resize(), [draft.map(RELU, at)], (*size, shape[-1])) for at, shape in enumerate(images)]
    graph = draft.graph(draft.map(DOUBLE, draft.concat(3, *sampled)))
    check(graph, precision, map=4, resize=3)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_dense_block_copies_nothing(precision: str) -> None:
    """Each layer normalises and convolves all features before it, which the file joins anew; one of them is pooled."""
    draft = Draft((1, 4, 4, 8))
    features, images = [draft.map(RELU, 0)], (1, 4, 4)
    for _ in range(3):
        joined = draft.concat(3, *features) if len(features) > 1 else features[0]
        depth = draft.tensors[joined].shape[-1]
        scale, bias = (draft.constant(WEIGHTS.uniform(0.5, 1, (depth,)).astype(np.float32)) for _ in range(2))
        scaled = draft.map(maximum(Arg(0) * Arg(1) - Arg(2), 0.0), joined, scale, bias)
        filters = draft.constant(WEIGHTS.uniform(-0.2, 0.2, (4, 3, 3, depth)).astype(np.float32))
        window = Contract(kernel=(3, 3), padding=(1, 1, 1, 1))
        features.append(draft.node(window, [scaled, filters, -1], (*images, 4)))
    pooled = draft.node(Pool(kernel=(2, 2), stride=(2, 2), kind="mean"), [draft.concat(3, *features)], (1, 2, 2, 20))
    graph = nest_concats(draft.graph(draft.map(DOUBLE, pooled)))
    assert families(graph, precision)["concat"] == 0
    compare(graph, precision, tolerance=1e-5 if precision == "float32" else 1e-2)


@pytest.mark.parametrize(("precision", "family"), [("float32", "separable_ffma"), ("float16", "separable_mma")])
def test_nodes_that_are_written_together_read_and_write_rows_of_parts(precision: str, family: str) -> None:
    draft, image = Draft((1, 9, 8, 48)), (1, 9, 8)
    data = draft.slice(draft.map(RELU, 0), (0, 0, 0, 8), (*image, 32))
    sizes = (1, 3, 3, 32), (32,), (16, 1, 1, 32), (16,)
    weights = [draft.constant(WEIGHTS.uniform(-0.3, 0.3, size).astype(np.float32)) for size in sizes]
    window = Depthwise(kernel=(3, 3), padding=(1, 1, 1, 1))
    between = draft.node(window, [data, *weights[:2]], (*image, 32))
    made = draft.node(Contract(), [between, *weights[2:]], (*image, 16))
    graph = draft.graph(draft.map(DOUBLE, draft.concat(3, draft.map(DOUBLE, made), made)))
    assert families(graph, precision) == {"map": 3, family: 1}
    compare(graph, precision, tolerance=1e-5 if precision == "float32" else 1e-2)
