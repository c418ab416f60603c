"""Attention on CUDA: products, mask and Softmax as one kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Apply, Arg, Const
from jitdelegate.ir.forms import IndexMap, Map, MatMul, Softmax, View
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.products import attention as attention_module
from tests.targets.cuda_execute import compiled, templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.matmul_graphs import attention, feeds_of
from tests.targets.part_graphs import Draft

NEAR = {"float32": 3e-6, "float16": 3e-3, "bfloat16": 2e-2, "tf32": 2e-3}
"""Of means of numbers below 1."""


def decoder(batch: int, keys: int, queries: int, heads: int, group: int, depth: int) -> Graph:
    """Queries [batch, queries, heads, depth] over keys and values [batch, keys, heads / group, depth], which are
    repeated for each head of a group and transposed; a mask of bools, a Softmax of scaled scores."""
    stored = (batch, keys, heads // group, depth)
    own = Draft((batch, queries, heads, depth), stored, stored, (1, 1, queries, keys))
    own.tensors[3] = replace(own.tensors[3], dtype="bool")
    query, keys_in, values_in, mask = own.inputs
    rows = own.node(Map(operands=(IndexMap.along(0, 2, 1, 3),)), (query,), (batch, heads, queries, depth))
    repeated, whole = (batch, heads // group, group, keys, depth), (batch, heads, keys, depth)
    apart = [own.node(Map(operands=(IndexMap.along(0, 3, 1, 4),)), (one,), repeated) for one in (keys_in, values_in)]
    keys_of, values = (own.node(View(), (one,), whole) for one in apart)
    scores = (batch, heads, queries, keys)
    found = own.node(MatMul(RESULT * 0.5, adj_y=True), (rows, keys_of), scores)
    flat = own.node(View(), (found,), (batch * heads, queries, keys))
    again = own.node(View(), (flat,), scores)
    masked = Map(
        Apply("select", (Arg(0), Arg(1), Const(-np.inf))),
        tuple(IndexMap.broadcast(s, scores) for s in ((1, 1, queries, keys), scores)),
    )
    weights = own.node(Softmax(), (own.node(masked, (mask, again), scores),), scores)
    result = own.node(MatMul(), (weights, values), (batch, heads, queries, depth))
    return own.graph(own.node(Map(operands=(IndexMap.along(0, 2, 1, 3),)), (result,), (batch, queries, heads, depth)))


def feeds_with_mask(graph: Graph) -> list[np.ndarray]:
    """Random numbers, and a mask that hides half of the keys, but not all of a row."""
    random = np.random.default_rng(1)
    feeds = []
    for index in graph.inputs:
        shape = graph.tensors[index].shape
        if graph.tensors[index].dtype == "bool":
            hidden = random.uniform(size=shape) < 0.5
            hidden[..., -1] = True
            feeds.append(hidden)
        else:
            feeds.append(random.uniform(-2, 2, shape).astype(np.float32))
    return feeds


def families(graph: Graph, precision: str = "float32", architecture: str = "sm_90") -> list[str]:
    return [launch.template.family for launch in plan(graph, GPUS[architecture], precision).launches]


def only(monkeypatch: pytest.MonkeyPatch, warps: tuple[int, int], keys: int, *parts: int) -> None:
    """Lets the tile of attention be this one, fast or not."""
    monkeypatch.setattr(attention_module, "WARPS", (warps,))
    monkeypatch.setattr(attention_module, "KEYS", (keys,))
    monkeypatch.setattr(attention_module, "PARTS", parts or (1,))
    monkeypatch.setattr(attention_module, "_cycles_apart", lambda *_: np.inf)


@pytest.mark.parametrize("precision, adj_y", [*((one, True) for one in NEAR), ("float32", False), ("tf32", False)])
def test_a_product_its_softmax_and_another_product_are_one_launch(precision: str, adj_y: bool) -> None:
    graph = attention((20, 12, 36, 20), adj_y=adj_y)
    assert len(families(graph, precision)) == 1
    compare(graph, precision, feeds_of(graph), NEAR[precision])


@pytest.mark.parametrize("precision, rows", [("float32", 1), ("float16", 17), ("float16", 3)])
def test_no_size_has_to_be_a_multiple_of_anything(precision: str, rows: int) -> None:
    graph = attention((rows, 9, 33, 7), adj_y=rows != 3)
    compare(graph, precision, feeds_of(graph), NEAR[precision], schedule="random", seed=rows)


def test_the_oldest_gpu_multiplies_halves_by_its_own_instructions() -> None:
    for adj_y in (True, False):
        graph = attention((18, 24, 40, 16), adj_y=adj_y)
        compare(graph, "float16", feeds_of(graph), NEAR["float16"], architecture="sm_75")


@pytest.mark.parametrize("precision, queries", [("float32", 1), ("float16", 5)])
def test_heads_of_a_group_share_keys_and_everything_is_read_where_it_lies(precision: str, queries: int) -> None:
    graph = decoder(2, 40, queries, 4, 2, 16)
    assert len(families(graph, precision)) == 1
    compare(graph, precision, feeds_with_mask(graph), NEAR[precision] * 2)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_blocks_share_out_the_keys_of_few_queries(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, (1, 2), 16 if precision == "float16" else 32, 3)
    graph = decoder(1, 400, 2, 2, 2, 8)
    assert [name.rpartition("_")[2] for name in families(graph, precision)][1:] == ["combine"]
    compare(graph, precision, feeds_with_mask(graph), NEAR[precision] * 2, schedule="random", seed=1)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_warps_share_out_rows_and_keys(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, (2, 2), 32)
    graph = attention((35, 16, 90, 32), adj_y=True)
    compare(graph, precision, feeds_of(graph), NEAR[precision], schedule="random", seed=2)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_masks_and_large_scores_are_as_numpy_has_them(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without keys, rows whose first tiles are hidden, hidden by large numbers; scores of ten thousand."""
    only(monkeypatch, (1, 1), 32)
    graph = attention((6, 8, 80, 8), adj_y=True)
    queries, keys, mask, values = feeds_of(graph)
    mask[...] = 0
    mask[0] = -np.inf
    mask[1, :70] = -np.inf
    mask[2, 5:] = -np.inf
    mask[3] = -1e9
    queries[:, :, 4] *= 1e4
    mask[5, 40] = 1e4
    compare(graph, precision, [queries, keys, mask, values], 2e-3 if precision == "float32" else 0.02)


def test_what_is_read_elsewhere_or_takes_several_scores_is_no_attention() -> None:
    own = Draft((2, 8, 16), (2, 24, 16), (2, 24, 16))
    a, b, values = own.inputs
    scores = own.node(MatMul(adj_y=True), (a, b), (2, 8, 24))
    weights = own.node(Softmax(), (scores,), (2, 8, 24))
    result = own.node(MatMul(), (weights, values), (2, 8, 16))
    assert len(families(own.graph(result))) == 1
    assert len(families(own.graph(result, scores))) == 3
    assert len(families(own.graph(result, weights))) == 3
    turned = replace(own.nodes[1], inputs=(own.node(Map(operands=(IndexMap.along(1, 0, 2),)), (scores,), (8, 2, 24)),))
    nodes = (own.nodes[0], own.nodes[3], turned, own.nodes[2])
    tensors = [replace(one, shape=(8, 2, 24)) if at == weights else one for at, one in enumerate(own.tensors)]
    tensors[values] = replace(own.tensors[values], shape=(8, 24, 16))
    tensors[result] = replace(own.tensors[result], shape=(8, 2, 16))
    assert len(families(Graph(tuple(tensors), nodes, tuple(own.inputs), (result,)))) == 4


def test_heads_of_too_many_numbers_for_registers_are_several_launches() -> None:
    assert [len(families(attention((4, depth, 8, 8), adj_y=True))) for depth in (256, 257)] == [1, 4]


@pytest.mark.parametrize("operand", [0, 2])
def test_queries_and_values_that_an_epilogue_reads_too_are_copied(operand: int) -> None:
    own = Draft(*[(2, 16, 32)] * 3)
    cut = IndexMap.along(0, 1, 2, starts=(0, 0, 16))
    a, b, values = (own.node(Map(operands=(cut,)), (part,), (2, 16, 16)) for part in own.inputs)
    added = MatMul(RESULT + Arg(1), (IndexMap.along(0, 1, 2),))
    first = (replace(added, adj_y=True), (a, b, a)) if operand == 0 else (MatMul(adj_y=True), (a, b))
    weights = own.node(Softmax(), (own.node(*first, (2, 16, 16)),), (2, 16, 16))
    second = (added, (weights, values, values)) if operand == 2 else (MatMul(), (weights, values))
    graph = own.graph(own.node(*second, (2, 16, 16)))
    assert families(graph) == ["map", "attention_ffma"]
    compare(graph, "float32", feeds_of(graph), NEAR["float32"] * 3)


@pytest.mark.parametrize("architecture, precision", [("sm_75", "float16"), ("sm_90", "float32"), ("sm_120", "float16")])
def test_attention_of_large_heads_compiles(architecture: str, precision: str) -> None:
    graph = attention((64, 128, 128, 128), adj_y=True)
    template, *_ = templates_of(graph, architecture, precision)
    assert template.family.startswith("attention")
    compiled(template, architecture)
