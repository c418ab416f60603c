"""Contractions on tensor cores: the PTX that is really emitted, run in the simulator against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import RESULT, Arg, maximum, unary
from jitdelegate.ir.forms import IndexMap
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import GPUS, Costs
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.multiply import mma_tile
from jitdelegate.targets.cuda.multiply.mma_tile import SLIM_TILES, TILES, WIDE_TILES, Tile
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.products import mma
from jitdelegate.targets.cuda.walks import split_k
from jitdelegate.targets.cuda.walks.mma_kernel import Mma
from jitdelegate.targets.planning.epilogue import Reach
from tests.targets.contract_cases import Case, convolution, dense, error, transposed
from tests.targets.cuda_execute import compiled, ptx_of, run, templates_of
from tests.targets.cuda_graphs import stored_between

TOLERANCES = {"float16": 6e-4, "bfloat16": 5e-3, "tf32": 1e-4}
"""Root mean square errors against the outputs'; data and weights are exact in each precision."""


def graph_of(case: Case, *, ports: bool = False) -> Graph:
    """The case on float32 ports of the graph, or else on tensors that are stored as the precision says."""
    graph = replace(case, is_coarse=True).graph
    return graph if ports else stored_between(graph)


def template_of(case: Case, precision: str = "float16", architecture: str = "sm_90", *, ports: bool = False) -> Mma:
    """The template of its product."""
    (found,) = (
        one for one in templates_of(graph_of(case, ports=ports), architecture, precision) if isinstance(one, Mma)
    )
    return found


def check(
    case: Case, precision: str = "float16", architecture: str = "sm_90", *, ports: bool = False, **how: Any
) -> Mma:
    """The case computes what it has to, by this template."""
    error(graph_of(case, ports=ports), TOLERANCES[precision], precision, architecture=architecture, **how)
    return template_of(case, precision, architecture, ports=ports)


def use(monkeypatch: pytest.MonkeyPatch, tile: Tile) -> None:
    """Leaves no other tile to choose."""
    monkeypatch.setattr(mma, "TILES", (tile,))
    monkeypatch.setattr(mma, "WIDE_TILES", ())
    monkeypatch.setattr(mma, "SLIM_TILES", ())


@pytest.fixture(params=TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tile]:
    """Each tile, with no other to choose."""
    use(monkeypatch, request.param)
    yield request.param


def windowed(channels: int, outputs: int) -> Case:
    """A 3x3 kernel with stride (2, 1) over a 9x7 image with padding above, left and right."""
    return convolution((1, 9, 7, channels), outputs, stride=(2, 1), padding=(1, 0, 1, 2))


CASES = {
    "rows of numbers": dense(5, 70, 33),
    "1x1": convolution((2, 5, 7, 16), 24, (1, 1)),
    "1x1 with stride": convolution((1, 5, 7, 16), 24, (1, 1), stride=(2, 2)),
    "without bias": replace(convolution((1, 3, 3, 8), 8, (1, 1)), has_bias=False),
    "3 channels": windowed(3, 33),
    "5 channels": windowed(5, 5),
    "6 channels": windowed(6, 12),
    "12 channels": windowed(12, 34),
    "dilated": convolution((1, 9, 8, 8), 16, (3, 2), dilation=(2, 3), padding=(0, 0, 1, 1)),
    "groups": convolution((1, 4, 5, 48), 72, (2, 2), groups=3),
    "groups of odd sizes": convolution((1, 4, 5, 9), 15, (2, 2), groups=3),
    "transposed": transposed((1, 4, 5, 16), (9, 10, 24), 3, stride=(2, 2), padding=(0, 0, 1, 0)),
    "transposed with a stride beyond the kernel": transposed((1, 2, 3, 8), (5, 9, 3), 2, stride=(3, 3)),
}


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "tf32"])
@pytest.mark.parametrize("name", CASES)
def test_contractions_agree_with_the_reference(name, precision):
    check(CASES[name], precision)


@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_every_tile_takes_a_convolution_larger_than_itself_or_smaller(only, precision):
    assert check(windowed(40, 72), precision, schedule="random", seed=1).tile.rows == only.rows


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_tiles_end_where_the_pixels_end(more, only):
    check(dense(only.rows + more, 32, only.columns + 1))


@pytest.mark.parametrize("steps", [8, 128, 136, 520])
def test_tiles_end_where_the_sum_ends(steps, only):
    check(dense(9, steps, 8))


@pytest.mark.parametrize("name", ["1x1", "3 channels", "12 channels", "groups", "transposed"])
def test_ports_are_read_and_written_as_float32(name):
    template = check(CASES[name], ports=True)
    assert (template.source, template.output) == (Element.FLOAT32, Element.FLOAT32)


@pytest.mark.parametrize("name", ["rows of numbers", "1x1", "3 channels", "12 channels", "groups", "transposed"])
def test_turing_multiplies_halves_without_asynchronous_copies(name):
    template = check(CASES[name], "float16", "sm_75", schedule="random", seed=1)
    assert "cp.async" not in ptx_of(template, "sm_75")


@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_turing_refuses_what_it_has_no_tensor_cores_for(precision):
    with pytest.raises(CompileError, match=f"sm_75 has no {precision} tensor cores"):
        template_of(CASES["1x1"], precision, "sm_75")


@pytest.mark.parametrize("ports", [False, True])
def test_the_epilogue_reads_other_operands(ports):
    shapes = ((1, 4, 8, 24), (24,), (1, 4, 8, 1), (1,))
    own = tuple(IndexMap.broadcast(shape, (1, 4, 8, 24)) for shape in shapes)
    value = RESULT * Arg(2) + Arg(1) * Arg(3)
    form = replace(windowed(16, 24).form, epilogue=maximum(value, -0.5) - Arg(4), operands=own)
    check(replace(windowed(16, 24), form=form, extra=shapes), ports=ports)


def test_a_large_sum_is_shared_out_between_warps():
    assert template_of(dense(49, 1024, 1024)).tile.warps[2] > 1


def test_blocks_share_out_a_sum_where_there_are_few_of_them():
    graph = convolution((1, 7, 7, 512), 40, padding=(1, 1, 1, 1)).graph
    assert [template.family for template in templates_of(graph, "sm_80", "float16")] == [
        "contract_mma",
        "contract_combine",
    ]
    (launch,) = plan(graph, GPUS["sm_90"], "float16").launches
    assert launch.template.cluster == launch.grid[2] > 1


def test_parts_of_a_sum_meet_in_the_output(only, monkeypatch):
    monkeypatch.setattr(mma_tile, "COMBINE_CYCLES", -(10**9))
    monkeypatch.setattr(split_k, "FEWEST_TILES", 1)
    assert check(convolution((1, 3, 5, 24), 12, padding=(1, 1, 1, 1)), "float16", "sm_75").is_part


def test_parts_of_a_sum_meet_in_a_cluster(only, monkeypatch):
    monkeypatch.setitem(GPUS, "sm_90", replace(GPUS["sm_90"], costs=Costs(cluster=-1e9)))
    monkeypatch.setattr(split_k, "FEWEST_OF_CLUSTER", 1)
    monkeypatch.setattr(split_k, "PARTS", (3,))  # no power of two, so that blocks take turns unevenly with the rows
    assert check(convolution((1, 3, 5, 56), 12, padding=(1, 1, 1, 1)), schedule="random").cluster > 1


def test_a_large_problem_takes_the_largest_tile():
    assert template_of(dense(8192, 64, 4096)).tile == WIDE_TILES[0]


@pytest.mark.parametrize("channels", [3, 40])
@pytest.mark.parametrize("tile", SLIM_TILES[1::2], ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_a_slim_tile_takes_few_output_channels(tile, channels, monkeypatch):
    use(monkeypatch, tile)
    assert check(windowed(channels, tile.columns - 3), schedule="random").tile.rows == tile.rows


@pytest.mark.parametrize("tile", WIDE_TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_a_wide_tile_ends_where_pixels_channels_and_the_sum_end(tile, monkeypatch):
    use(monkeypatch, tile)
    case = convolution((1, 2, tile.rows // 2 + 2, 40), tile.columns + 8, (1, 3), padding=(0, 0, 1, 0))
    assert check(case).tile.columns == tile.columns


@pytest.mark.parametrize("k_bytes", [2, 100, 320, 10_000])
def test_threads_share_out_tiles_in_whole_chunks(k_bytes):
    tiles = *WIDE_TILES, *SLIM_TILES, *TILES
    for tile in (shape(one, k_bytes) for shape in (Tile.shortened, Tile.trimmed) for one in tiles):
        chunks = tile.row_bytes // CHUNK
        assert tile.rows * chunks % tile.threads == tile.columns * chunks % tile.threads == 0
        assert tile.threads // chunks % 8 == 0, "the swizzle would differ from row to row of a thread"
        assert tile.row_bytes % (tile.warps[2] * STEP) == 0


def test_weights_are_rounded_to_the_nearest_even():
    values = np.array([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, 70000], np.float32)
    assert as_floats(values, "float16").tolist() == [1, 1 + 2**-9, -1 - 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, np.inf]
    assert as_floats(values, "bfloat16").tolist() == [1, 1, -1, 1, 1 + 2**-6, np.inf, 70144]
    assert as_floats(values, "tf32").tolist() == [1, 1 + 2**-9, -1 - 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, 70016]


def as_floats(values: np.ndarray, precision: str) -> np.ndarray:
    """Float32 numbers as tensor cores see them."""
    bits = Operand(precision).rounded(values)
    if precision == "float16":
        return bits.astype(np.float32)
    return bits.view(np.float32) if precision == "tf32" else (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "tf32"])
def test_infinity_and_nan_come_through(precision):
    assert np.isnan(as_floats(np.array([np.nan, -np.nan], np.float32), precision)).all()
    feed = np.ones((5, 16), np.float32)
    feed[0, 3], feed[1, 3] = np.nan, np.inf
    (found,) = run(graph_of(dense(5, 16, 8)), [feed], precision=precision)
    assert np.isnan(found[0]).all() and np.isinf(found[1]).all() and np.isfinite(found[2:]).all()


def test_equal_problems_share_a_template():
    a, b = (template_of(dense(rows, 64, 32)) for rows in (30, 31))
    assert a == b and a.symbol == b.symbol


def templates() -> Iterator[Mma]:
    """A sample of what can be chosen: every tile, and of small ones every way of copying."""
    half, single = Element.FLOAT16, Element.FLOAT32
    for tile in WIDE_TILES:
        plain = Mma(half, half, tile, 8, 8, False, False, single, Epilogue(), Operand.FLOAT16, True, False, False)
        yield from (plain, replace(plain, operand=Operand.TF32, source=single, output=single, width=4, run=4))
    for tile in TILES:
        whole = Mma(half, half, tile, 8, 8, False, False, single, Epilogue(), Operand.FLOAT16, True, False, False)
        yield whole
        yield replace(whole, has_async_copy=False, tile=replace(tile, stages=2))
        yield replace(whole, operand=Operand.TF32, source=single, output=single, width=4, run=4)
    for tile in SLIM_TILES:
        yield replace(whole, tile=tile)
        if tile.rows <= mma.MOST_ROWS:
            yield replace(whole, tile=replace(tile, stages=2), width=1, source=single)
    small = replace(whole, tile=TILES[2])
    yield replace(small, operand=Operand.BFLOAT16, source=Element.BFLOAT16, output=Element.BFLOAT16, is_direct=True)
    yield replace(small, width=2, run=1, is_scattered=True)
    long = unary("tanh", RESULT * Arg(1)) + unary("logistic", RESULT)
    yield replace(small, tile=TILES[0], epilogue=Epilogue(long, ((Reach.ELEMENT, half),)))
    for changes in (
        {"width": 1},
        {"source": single},
        {"source": single, "width": 1},
        {"width": 2, "has_async_copy": False},
    ):
        yield replace(small, tile=replace(TILES[2], stages=2), **changes)


@pytest.mark.parametrize("architecture", back_end.ARCHITECTURES)
def test_no_architecture_spills(architecture):
    gpu = GPUS[architecture]
    fit = [template for template in templates() if template.tile.shared_bytes <= gpu.shared_bytes]
    if not gpu.has_async_copy:
        fit = [one for one in fit if one.operand is Operand.FLOAT16 and not one.has_async_copy]
    for template in Random(architecture).sample(fit, min(12, len(fit))):
        compiled(template, architecture)
