"""MatMul on the CPU: all instruction sets, in memory that ends where the tensors end."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.passes import run
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products import matmul as product
from jitdelegate.targets.cpu.products.chunks import Chunks
from jitdelegate.targets.reference.evaluate import run_graph
from tests.ops.quantized_models import numbers
from tests.passes.graphs import Builder
from tests.targets.execute import program_of
from tests.targets.fenced import Machine, run_fenced
from tests.targets.levels import INTEGERS
from tests.targets.matmul_graphs import ADJOINTS, LEADING, ORDERS, attention, bytes_matmul, feeds_of, heads, matmul
from tests.targets.test_cpu_graphs import RUNNABLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")

SIZES = [(1, 1, 1), (2, 37, 33), (4, 7, 17), (7, 64, 49), (13, 3, 65), (49, 32, 49), (1, 300, 200), (9, 530, 20)]
"""Rows, depth and columns: below, at and above tiles and vectors of every width."""


def check(graph: Graph, features: str, *, threads: int = 1, at_end: bool = True) -> None:
    feeds = feeds_of(graph)
    machine = Machine(graph, program_of(graph, generate(graph, features), features), threads, at_end=at_end)
    try:
        answers = machine.run(feeds)
    finally:
        machine.close()
    for found, expected in zip(answers, run_graph(graph, feeds), strict=True):
        assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_nothing_beyond_an_operand_is_touched(
    sizes: tuple[int, int, int], adjoint: tuple[bool, bool], features: str
) -> None:
    check(matmul(sizes, ((2,), (2,)), adjoint), features, at_end=sizes[0] % 2 == 1)


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
def test_sums_of_bytes_touch_nothing_beyond_an_operand(adjoint: tuple[bool, bool], features: str) -> None:
    dice = np.random.default_rng(0)
    for rows, depth, columns in ((1, 1, 1), (2, 37, 33), (5, 7, 17), (13, 3, 65), (7, 64, 49)):
        graph = bytes_matmul((rows, depth, columns), adjoint)
        feeds = [numbers(dice, graph.tensors[index].shape, "int8") for index in graph.inputs]
        (found,) = run_fenced(graph, feeds, features, at_end=True)
        np.testing.assert_array_equal(found, run_graph(graph, feeds)[0])


@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
@pytest.mark.parametrize("leading", LEADING, ids=str)
def test_leading_axes_broadcast(leading: tuple[tuple[int, ...], tuple[int, ...]], adjoint: tuple[bool, bool]) -> None:
    for rows in (2, 5):
        check(matmul((rows, 19, 35), leading, adjoint), RUNNABLE[-1])


@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
@pytest.mark.parametrize("sizes", [(1, 9, 20), (2, 37, 33), (7, 64, 48), (30, 530, 70)], ids=str)
def test_rows_may_lie_before_the_heads(
    sizes: tuple[int, int, int], adjoint: tuple[bool, bool], orders: tuple[bool, bool, bool]
) -> None:
    for features in RUNNABLE:
        check(heads(sizes, adjoint, orders), features, at_end=sizes[0] % 2 == 1)


@pytest.mark.parametrize("extra", [(35,), (1,), (5, 1), (2, 3, 5, 35), (1, 3, 5, 1), (2, 1, 1, 35)], ids=str)
@pytest.mark.parametrize("adj_y", [False, True])
@pytest.mark.parametrize("rows", [3, 5])
def test_an_epilogue_follows_rows_and_columns(extra: tuple[int, ...], adj_y: bool, rows: int) -> None:
    extra = tuple(rows if size == 5 else size for size in extra)
    graph = matmul((rows, 19, 35), ((2, 3), (2, 3)), (False, adj_y), extra, (2, 3, rows, 35))
    for features in RUNNABLE:
        check(graph, features)


@pytest.mark.parametrize("sizes", [(120, 90, 70), (5, 90, 2000), (2, 700, 900)], ids=str)
@pytest.mark.parametrize("adj_y", [False, True])
def test_threads_share_one_product(sizes: tuple[int, int, int], adj_y: bool) -> None:
    check(matmul(sizes, ((), ()), (False, adj_y)), RUNNABLE[-1], threads=3)


def test_columns_that_lie_far_apart_are_copied_first() -> None:
    for features in RUNNABLE:
        check(matmul((40, 30, 700)), features)


@pytest.mark.parametrize(("rows", "expected"), [(50, (1, 50)), (197, (2, 95)), (1536, (8, 192))])
def test_a_panel_that_is_packed_meets_many_rows_in_about_equal_parts(
    rows: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, write = list[Chunks](), product._job
    monkeypatch.setattr(product, "_job", lambda *args: cut.append(args[3]) or write(*args))
    generate(matmul((rows, 768, 768), ((), ()), (False, True)), "x86-64-v4")
    assert [(chunks.parts, chunks.last) for chunks in cut] == [expected]


@pytest.mark.parametrize("features", RUNNABLE)
def test_neighbours_of_a_product_may_be_windows_with_halos_and_blocks(features: str) -> None:
    """Both operands and the result are read by windows that reach over the border; a blocked image is added."""
    build = Builder()
    x = build.input(1, 6, 6, 20)
    a, b = (build.convolution(x, channels=20) for _ in range(2))
    scores = build.op("BATCH_MATMUL", [a, b], (1, 6, 6, 6), adj_y=True)
    mixed = build.op("BATCH_MATMUL", [scores, a], (1, 6, 6, 20))
    added = build.op("ADD", [mixed, build.convolution(b, channels=20)], (1, 6, 6, 20))
    seen = build.convolution(scores, channels=6)
    check(run(build.finish(added, seen, build.convolution(mixed, channels=20))), features)
    check(run(build.finish(added, seen)), features)


@pytest.mark.parametrize("sizes", [(101, 40, 460, 37), (48, 9, 1030, 80), (50, 70, 900, 20)], ids=str)
@pytest.mark.parametrize("features", RUNNABLE)
def test_attention_keeps_its_scores_in_scratch_memory(sizes: tuple[int, int, int, int], features: str) -> None:
    adj_y = sizes[0] != 50
    graph = attention(sizes, adj_y=adj_y, has_views=sizes[0] == 48)
    made = generate(graph, features)
    assert [kernel.form for kernel in made.kernels] == ["MatMul+Softmax+MatMul"]
    assert made.arena_bytes == 0
    check(graph, features, threads=2, at_end=adj_y)


def test_scores_that_others_read_are_stored() -> None:
    graph = attention((101, 40, 460, 37), adj_y=True)
    for shown in graph.nodes[0].outputs, graph.nodes[1].outputs:
        both = replace(graph, outputs=graph.outputs + shown)
        assert "MatMul+Softmax+MatMul" not in [kernel.form for kernel in generate(both, RUNNABLE[-1]).kernels]
        check(both, RUNNABLE[-1])


def test_a_softmax_writes_over_what_nothing_reads_later() -> None:
    graph = attention((5, 40, 46, 37), adj_y=True)
    made = generate(graph, RUNNABLE[-1])
    assert len(made.kernels) == 3
    assert 4 * graph.tensors[4].size <= made.arena_bytes < 8 * graph.tensors[4].size
    check(graph, RUNNABLE[-1])
    shown = replace(graph, outputs=(*graph.outputs, 4))
    check(shown, RUNNABLE[-1])
