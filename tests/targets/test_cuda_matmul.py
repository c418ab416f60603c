"""MatMul on CUDA: tails of every tile, both layouts of both sides, leading axes, epilogues, all precisions."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.products import matmul as matmul_module
from jitdelegate.targets.cuda.walks.matmul_ffma import FfmaProduct, FfmaTile
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.cuda_execute import assert_compiles_everywhere, compiled, ptx_of, run, templates_of
from tests.targets.cuda_graphs import Shape, compare, stored_between
from tests.targets.integer_graphs import feeds_of as feeds_of_bytes
from tests.targets.matmul_graphs import ADJOINTS, LEADING, ORDERS, bytes_matmul, feeds_of, heads, matmul

TAILS = [(1, 1, 1), (5, 3, 7), (17, 19, 33), (33, 36, 64), (20, 64, 31)]
"""Rows, depth and columns."""
HALVES = ("float16", "bfloat16", "tf32")
NEAR = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2, "tf32": 2e-3}
"""Of sums of a few dozen products of numbers below 1."""


def check(graph: Graph, precision: str = "float32", **options: object) -> None:
    compare(graph, precision, feeds_of(graph), NEAR[precision] * 4, **options)


@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
@pytest.mark.parametrize("sizes", TAILS, ids=str)
def test_products_of_every_size_are_as_the_reference_has_them(
    sizes: tuple[int, int, int], adjoint: tuple[bool, bool]
) -> None:
    check(matmul(sizes, ((2,), (2,)), adjoint))


@pytest.mark.parametrize("leading", LEADING, ids=str)
def test_leading_axes_broadcast(leading: tuple[Shape, Shape]) -> None:
    check(matmul((3, 9, 12), leading))


@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_rows_may_lie_before_the_heads(
    precision: str, adjoint: tuple[bool, bool], orders: tuple[bool, bool, bool]
) -> None:
    check(heads((5, 7, 9), adjoint, orders), precision)
    check(heads((18, 12, 36), adjoint, orders), precision)


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
def test_tensor_cores_take_every_layout(adjoint: tuple[bool, bool], precision: str) -> None:
    check(matmul((17, 19, 33), ((2,), (2,)), adjoint), precision)
    check(stored_between(matmul((20, 40, 36), ((2,), (2,)), adjoint)), precision)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("number", [0, 1])
def test_large_tiles_have_tails(number: int, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "FFMA_TILES" if precision == "float32" else "MMA_TILES"
    monkeypatch.setattr(matmul_module, name, getattr(matmul_module, name)[number : number + 1])
    check(matmul((130, 37, 66), ((), ()), (False, True)), precision, schedule="random", seed=3)
    check(matmul((132, 36, 68), ((), ()), (True, False)), precision)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
def test_sums_of_bytes_are_those_of_the_reference(adjoint: tuple[bool, bool], architecture: str) -> None:
    """In one launch beside those that sum up the rows of a, and turn it."""
    for sizes in ((1, 1, 1), (5, 7, 17), (33, 100, 49), (20, 64, 34)):
        graph = bytes_matmul(sizes, adjoint)
        assert [type(one) for one in templates_of(graph, architecture, "float16")].count(FfmaProduct) == 1
        feeds = feeds_of_bytes(graph)
        (found,) = run(graph, feeds, architecture, "float16", schedule="random", seed=sizes[1])
        np.testing.assert_array_equal(found, run_graph(graph, feeds)[0])


@pytest.mark.parametrize("tile", matmul_module.FFMA_TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_tiles_of_bytes_stay_in_registers(tile: FfmaTile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_module, "FFMA_TILES", (tile,))
    for adj_y in (False, True):
        templates = templates_of(bytes_matmul((400, 52, 400), (False, adj_y)))
        assert_compiles_everywhere([one for one in templates if isinstance(one, FfmaProduct)])


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("columns", [12, 33])
def test_an_epilogue_follows_rows_and_columns(columns: int, precision: str) -> None:
    for extra in [(columns,), (2, 5, 1)]:
        check(matmul((5, 9, columns), ((2,), (2,)), (False, False), extra, (2, 5, columns)), precision)


@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
def test_float32_tiles_go_through_registers_where_no_gpu_copies_them(adjoint: tuple[bool, bool]) -> None:
    check(matmul((33, 36, 20), ((2,), (2,)), adjoint), architecture="sm_75")


def test_the_oldest_gpu_multiplies_halves_and_nothing_narrower() -> None:
    check(matmul((18, 33, 20)), "float16", architecture="sm_75")
    with pytest.raises(CompileError, match="sm_75 has no bfloat16 tensor cores"):
        plan(matmul((18, 33, 20)), GPUS["sm_75"], "bfloat16")


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("number", [0, 1])
def test_large_tiles_compile_everywhere(number: int, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "FFMA_TILES" if precision == "float32" else "MMA_TILES"
    monkeypatch.setattr(matmul_module, name, getattr(matmul_module, name)[number : number + 1])
    sizes, adjoint = (((400, 50, 400), (False, True)), ((197, 63, 197), (True, False)))[number]
    graph = matmul(sizes, ((12,), (12,)), adjoint, (sizes[2],))
    assert_compiles_everywhere(templates_of(graph, "sm_75", precision))  # whose instructions every GPU has


@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
@pytest.mark.parametrize("tile", matmul_module.FFMA_TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_copied_tiles_stay_in_registers(
    tile: FfmaTile, adjoint: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_module, "FFMA_TILES", (tile,))
    for architecture in ("sm_80", "sm_90"):
        (template,) = templates_of(matmul((400, 52, 400), ((2,), (2,)), adjoint, (400,)), architecture)
        compiled(template, architecture)
        assert "cp.async" in ptx_of(template, architecture)
