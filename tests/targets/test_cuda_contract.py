"""Contract in float32 on CUDA: the PTX that is really emitted, run in the simulator against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import RESULT, Arg, maximum, unary
from jitdelegate.ir.forms import IndexMap
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.multiply.ffma_tile import TILES, Tile
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.products import contract, ffma
from jitdelegate.targets.cuda.sources.conv_problem import problem_of
from jitdelegate.targets.cuda.walks import gemv
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma
from jitdelegate.targets.cuda.walks.gemv import Gemv
from jitdelegate.targets.cuda.walks.split_k import Combine, possible_parts
from jitdelegate.targets.planning.epilogue import Reach
from tests.targets.contract_cases import TOLERANCE, convolution, dense, error, transposed
from tests.targets.cuda_execute import compiled, kinds, run, templates_of
from tests.targets.cuda_graphs import stored_between

SWISH = RESULT * unary("logistic", RESULT)


def force(tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tile is chosen for all problems, also where it is not worth it."""
    monkeypatch.setattr(ffma, "TILES", (tile,))
    monkeypatch.setattr(ffma, "MOST_PIECES", 16)


CONVOLUTIONS = {
    "1x1": convolution((1, 5, 7, 16), 8, (1, 1)),
    "1x1, strides": convolution((2, 5, 7, 4), 8, (1, 1), stride=(2, 3)),
    "3 channels": convolution((1, 9, 8, 3), 33, stride=(2, 2), padding=(0, 1, 1, 1)),
    "one channel": convolution((2, 6, 5, 1), 1, (2, 3), padding=(1, 0, 1, 1)),
    "5 channels to 5": convolution((1, 4, 7, 5), 5, padding=(1, 1, 1, 1)),
    "33 channels": convolution((1, 4, 3, 33), 34, (1, 2)),
    "pairs of channels": convolution((1, 6, 6, 6), 6, padding=(1, 1, 1, 1)),
    "dilations": convolution((2, 9, 9, 8), 12, dilation=(2, 3), padding=(2, 1, 4, 3), stride=(1, 2)),
    "more padding than image": convolution((1, 2, 3, 4), 8, (5, 5), padding=(4, 3, 2, 4)),
    "a dilation that jumps over the image": convolution((1, 3, 3, 4), 4, dilation=(4, 4), padding=(4, 4, 4, 4)),
    "groups": convolution((1, 6, 5, 24), 15, padding=(1, 1, 1, 1), groups=3),
    "groups of one": convolution((1, 5, 5, 4), 4, padding=(1, 1, 1, 1), groups=4),
    "the whole image": convolution((7, 4, 3, 5), 6, (4, 3)),
}
TRANSPOSED = {
    "2x2": transposed((1, 4, 4, 4), (8, 8, 4), 2, stride=(2, 2)),
    "3x3, cut at the edge": transposed((2, 4, 4, 3), (8, 8, 5), 3, stride=(2, 2), padding=(0, 1, 0, 1)),
    "strides above the kernel": transposed((1, 3, 3, 4), (9, 9, 4), 2, stride=(3, 3)),
    "no strides": transposed((1, 5, 4, 3), (7, 6, 2), 3),
    "padding": transposed((1, 4, 5, 8), (7, 9, 33), 4, stride=(2, 2), padding=(1, 2, 1, 2)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_as_the_reference_has_it(name: str) -> None:
    error(CONVOLUTIONS[name].graph)


def test_the_phases_of_a_transposed_convolution_are_one_launch() -> None:
    graph = TRANSPOSED["3x3, cut at the edge"].graph
    assert len(plan(graph, GPUS["sm_90"], "float32").launches) == 1


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_is_as_the_reference_has_it(name: str) -> None:
    error(TRANSPOSED[name].graph)


@pytest.mark.parametrize("name", ["3 channels", "pairs of channels", "dilations", "groups"])
def test_a_gpu_without_asynchronous_copies_computes_the_same(name: str) -> None:
    error(CONVOLUTIONS[name].graph, architecture="sm_75", schedule="random", seed=3)


def test_a_convolution_without_bias_starts_from_zero() -> None:
    error(replace(CONVOLUTIONS["groups"], has_bias=False).graph)
    error(replace(dense(1, 20, 6), has_bias=False).graph)


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
@pytest.mark.parametrize(("more", "architecture"), [(-1, "sm_90"), (0, "sm_75"), (1, "sm_90"), (1, "sm_75")])
def test_a_tile_is_right_at_its_edges(
    tile: Tile, more: int, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(tile, monkeypatch)
    sizes = tile.rows + more, 2 * tile.steps + more, tile.columns + more
    error(dense(*sizes).graph, architecture=architecture, schedule="random", seed=tile.rows)


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
@pytest.mark.parametrize(("channels", "architecture"), [(4, "sm_90"), (2, "sm_75"), (1, "sm_90")])
def test_a_tile_gathers_chunks_of_every_width(
    tile: Tile, channels: int, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(tile, monkeypatch)
    case = convolution((3, 7, 8, channels), 8, stride=(1, 2), padding=(1, 1, 0, 1))
    error(case.graph, architecture=architecture)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_a_long_k_is_shared_out_between_blocks(architecture: str) -> None:
    case = convolution((1, 4, 4, 256), 20, padding=(1, 1, 1, 1))
    has_clusters = GPUS[architecture].has_clusters
    assert kinds(case.graph, architecture=architecture) == ([Ffma] if has_clusters else [Ffma, Combine])
    assert (templates_of(case.graph, architecture)[0].cluster > 1) == has_clusters
    error(case.graph, architecture=architecture, schedule="random")


@pytest.mark.parametrize(
    ("architecture", "tiles", "parts"),
    [("sm_90", 3, [1]), ("sm_90", 9, [1, 2, 3]), ("sm_90", 40, [1, 2, 3, 4, 6, 8]), ("sm_80", 9, [1, 2])],
)
def test_every_block_that_shares_out_k_has_a_tile(architecture: str, tiles: int, parts: list[int]) -> None:
    assert possible_parts(GPUS[architecture], tiles) == parts


def test_blocks_that_share_out_k_add_up_in_a_fixed_order() -> None:
    graph = dense(5, 3000, 9).graph
    feed = np.random.default_rng(1).uniform(-1, 1, (5, 3000)).astype(np.float32)
    for architecture in ("sm_80", "sm_90"):
        template = templates_of(graph, architecture)[0]
        assert template.is_part or template.cluster > 1
        runs = [run(graph, [feed], architecture, schedule="random", seed=seed)[0] for seed in range(2)]
        assert runs[0].tobytes() == runs[1].tobytes()


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize(("depth", "outputs"), [(1, 1), (127, 5), (128, 33), (130, 4), (1027, 7)])
def test_a_few_rows_are_as_the_reference_has_them(rows: int, depth: int, outputs: int) -> None:
    case = dense(rows, depth, outputs)
    assert kinds(case.graph) == [Gemv]
    error(case.graph, schedule="random")


@pytest.mark.parametrize("outputs", [600, 2200, 4301])
@pytest.mark.parametrize("rows", [1, 3])
def test_warps_of_large_layers_take_several_outputs(rows: int, outputs: int) -> None:
    error(dense(rows, 70, outputs).graph)


@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_a_few_rows_need_no_tensor_cores(precision: str) -> None:
    case = dense(3, 72, 10)
    tolerance = {"tf32": TOLERANCE, "float16": 2e-3, "bfloat16": 1.6e-2}[precision]
    assert kinds(case.graph, precision=precision) == [Gemv]
    error(case.graph, tolerance, precision=precision)
    error(stored_between(case.graph), tolerance, precision=precision)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["1x1", "5 channels to 5", "pairs of channels"])
def test_tensors_of_16_bits_pass_through_float32(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "templates_of", ffma.templates)
    graph = stored_between(CONVOLUTIONS[name].graph)
    error(graph, {"float16": 2e-3, "bfloat16": 1.6e-2}[precision], precision=precision)


EPILOGUES = {
    "one of each kind": convolution((1, 5, 5, 8), 12, padding=(1, 1, 1, 1)),
    "odd channels": convolution((1, 5, 5, 8), 7, padding=(1, 1, 1, 1)),
    "scattered": transposed((1, 4, 4, 4), (8, 8, 6), 3, stride=(2, 2), padding=(0, 1, 0, 1)),
    "split": convolution((1, 4, 4, 256), 20, padding=(1, 1, 1, 1)),
    "few pixels": convolution((2, 1, 1, 40), 9, (1, 1)),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_an_epilogue_reads_elements_channels_pixels_and_scalars(name: str) -> None:
    case = EPILOGUES[name]
    shapes = case.output, case.output[-1:], (*case.output[:-1], 1), (1,)
    operands = tuple(IndexMap.broadcast(shape, case.output) for shape in shapes)
    expr = maximum(SWISH + Arg(1), Arg(2)) * Arg(3) - Arg(4)
    error(replace(case, form=replace(case.form, epilogue=expr, operands=operands), extra=shapes).graph)


def test_taps_that_are_always_outside_are_dropped() -> None:
    case = convolution((1, 1, 1, 8), 6, padding=(1, 1, 1, 1))
    graph = case.graph
    problem = problem_of(Writer(graph, GPUS["sm_90"], "float32"), graph.nodes[0])
    assert (problem.is_direct, problem.phases[0].steps) == (True, 8)


def test_a_kernel_that_reaches_too_far_is_refused() -> None:
    case = convolution((1, 1, 40000, 1), 1, (1, 2), dilation=(1, 33000))
    with pytest.raises(CompileError, match="reaches over 33000 rows or columns, expected at most 32767"):
        templates_of(case.graph)


def heavy(tile: Tile, **options: Any) -> Ffma:
    """A template with an epilogue that needs registers."""
    epilogue = Epilogue(SWISH + Arg(1), ((Reach.ELEMENT, Element.FLOAT32),))
    plain = Ffma(Element.FLOAT32, Element.FLOAT32, tile, 4, 4, False, False, Element.FLOAT32, epilogue, True)
    return replace(plain, **options)


@pytest.mark.parametrize("architecture", back_end.ARCHITECTURES)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_tiles_stay_in_registers(tile: Tile, architecture: str) -> None:
    compiled(heavy(tile, is_asynchronous=GPUS[architecture].has_async_copy), architecture)


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_tiles_of_single_channels_stay_in_registers(tile: Tile) -> None:
    narrow = heavy(tile, width=1, run=1, is_scattered=True)
    if narrow.pieces > ffma.MOST_PIECES:
        narrow = replace(narrow, width=2)
    compiled(narrow, "sm_80")
    compiled(replace(narrow, is_asynchronous=False), "sm_75")
    compiled(replace(narrow, is_asynchronous=False, source=Element.FLOAT16), "sm_90")


@pytest.mark.parametrize("architecture", back_end.ARCHITECTURES)
def test_rows_of_weights_stay_in_registers(architecture: str) -> None:
    single = Element.FLOAT32
    for rows, pixels, slices, width in ((1, 1, 4, 4), (4, 1, 1, 4), (4, 4, 1, 1)):
        template = Gemv(single, single, single, pixels, rows, slices, width, rows, Epilogue(SWISH))
        compiled(template, architecture)
    compiled(Combine(single, single, 4, Epilogue(SWISH)), architecture)


def test_equal_problems_share_a_template() -> None:
    one, other = (templates_of(dense(rows, 64, 64).graph) for rows in (33, 40))
    assert one == other
    assert repr(one) == repr(other)


def test_few_pixels_are_those_that_weights_in_shared_memory_would_not_serve() -> None:
    most = dense(gemv.MOST_PIXELS, 64, 64), dense(gemv.MOST_PIXELS + 1, 64, 64)
    assert [kinds(case.graph) for case in most] == [[Gemv], [Ffma]]
