"""Contract of integers on CUDA: tensor cores and dp4a against the reference, element for element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.multiply.mma_tile import SLIM_TILES, TILES, Tile
from jitdelegate.targets.cuda.products import mma
from jitdelegate.targets.cuda.walks.contract_wide import ContractWide
from jitdelegate.targets.cuda.walks.gemv import Gemv
from jitdelegate.targets.cuda.walks.mma_kernel import Mma
from jitdelegate.targets.cuda.walks.split_k import Combine
from tests.targets.cuda_execute import compiled, kinds, ptx_of, templates_of
from tests.targets.integer_graphs import graph_of, size_of, to_int8, whole_range
from tests.targets.sass import instructions
from tests.targets.test_cuda_integers import check
from tests.targets.test_cuda_mma import use

ZERO = {"int8": -7, "uint8": 131, "int16": 300}
"""Zero points, which pixels outside the image have, too."""


def problem(
    data: tuple[int, ...],
    outputs: int,
    dtype: str = "int8",
    size: tuple[int, ...] = (),
    quantized: bool = True,
    **options: Any,
) -> Graph:
    """A Contract with a bias; its sums are rounded to int8 if `quantized`; `size` is that of a transposed image."""
    epilogue, factors = to_int8(outputs) if quantized else (RESULT, None)
    own = {"halo_value": ZERO[dtype], "input_zero": ZERO[dtype], "accumulator": "int32"}
    form = Contract(epilogue=epilogue, **(own | options))
    is_image = len(data) == 4
    weights = outputs, *(form.kernel if is_image else ()), data[-1] // form.groups
    return graph_of(
        form,
        Tensor("x", data, dtype),
        (data[0], *(size or size_of(form, data[1:3]) if is_image else ()), outputs),
        weights=whole_range(weights, "int8", 1),
        bias=whole_range(weights[:1], form.accumulator, 2) // 50_000,
        constants=[] if factors is None else [factors],
        dtype="int8" if quantized else "",
    )


def windowed(channels: int, outputs: int, dtype: str = "int8", **options: Any) -> Graph:
    """A 3x3 kernel with stride (2, 1) over a 9x7 image with padding above, left and right."""
    options = {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 0, 1, 2)} | options
    return problem((1, 9, 7, channels), outputs, dtype, **options)


BEYOND: dict[str, Any] = {"size": (5, 9), "kernel": (1, 2), "stride": (3, 3), "transposed": True}
CASES = {
    "rows": problem((5, 70), 33),
    "1x1": problem((2, 5, 7, 16), 24),
    "1x1 of uint8": problem((2, 5, 7, 16), 24, "uint8", filter_zero=127),
    "1x1 with stride": problem((1, 5, 7, 16), 24, stride=(2, 2)),
    "3 channels": windowed(3, 33),
    "3 channels of uint8": windowed(3, 33, "uint8"),
    "one channel": windowed(1, 8, "uint8", filter_zero=9, halo_value=None),
    "6 channels": windowed(6, 12, filter_zero=3, halo_value=55),
    "12 channels": windowed(12, 34),
    "16 channels": windowed(16, 32),
    "72 channels of uint8": windowed(72, 40, "uint8"),
    "another halo than the zero point": windowed(16, 16, halo_value=55),
    "a zero point without halo": windowed(16, 16, halo_value=None),
    "no zero point": windowed(16, 16, input_zero=0, halo_value=0),
    "sums": windowed(32, 16, quantized=False),
    "taps outside": problem((1, 2, 3, 4), 8, kernel=(5, 5), padding=(4, 3, 2, 4), halo_value=9, filter_zero=-60),
    "dilated": problem((1, 9, 8, 8), 16, kernel=(3, 2), dilation=(2, 3), padding=(0, 0, 1, 1)),
    "groups": problem((1, 4, 5, 48), 72, kernel=(2, 2), groups=3),
    "groups of odd sizes": problem((1, 4, 5, 9), 15, "uint8", kernel=(2, 2), groups=3, filter_zero=60),
    "the whole image": problem((7, 4, 3, 5), 6, kernel=(4, 3)),
    "transposed": problem(
        (1, 4, 5, 16), 24, "uint8", (9, 10),
        kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 0), transposed=True, filter_zero=100,
    ),
    "transposed with a stride beyond the kernel": problem((1, 2, 3, 8), 3, **BEYOND),
    "weights from -128": windowed(7, 33, "uint8", filter_zero=-128),
    "rows of weights from -128": problem((5, 70), 33, "uint8", filter_zero=-128),
    "weights from -127, data from 255": windowed(
        16, 17, "uint8", filter_zero=-127, input_zero=255, halo_value=255, quantized=False
    ),
    "weights from 5, data from 0": windowed(12, 24, "uint8", filter_zero=5, input_zero=0, halo_value=0),
}  # fmt: skip


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
@pytest.mark.parametrize("name", CASES)
def test_a_contraction_is_as_the_reference_has_it(name: str, architecture: str) -> None:
    assert set(kinds(CASES[name], architecture=architecture)) == {Mma}
    check(CASES[name], architecture=architecture)


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_without_tensor_cores_adds_up_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sm_72, for which not all compilers make code."""
    monkeypatch.setattr(Gpu, "has_mma", False)
    assert set(kinds(CASES[name], architecture="sm_75")) == {ContractWide}
    check(CASES[name], architecture="sm_75")


WIDE: dict[str, Any] = {"quantized": False, "accumulator": "int64"}
LONG_SUMS = {
    "one row": problem((1, 70), 33, "int16", **WIDE),
    "rows": problem((5, 64), 8, "int16", **WIDE),
    "window": windowed(12, 8, "int16", **WIDE),
    "groups of odd sizes": problem((1, 4, 5, 9), 15, "int16", kernel=(2, 2), groups=3, **WIDE),
    "transposed with a stride beyond the kernel": problem((1, 2, 3, 8), 3, "int16", **BEYOND, **WIDE),
}


@pytest.mark.parametrize("name", LONG_SUMS)
def test_sums_of_64_bits_are_as_the_reference_has_them(name: str) -> None:
    check(LONG_SUMS[name])


def test_sums_wrap() -> None:
    graph = problem((6, 64), 8, quantized=False)
    constants = [
        replace(one, data=np.full_like(one.data, 2**31 - 5)) if one.name == "b" else one for one in graph.tensors
    ]
    check(replace(graph, tensors=tuple(constants)))


@pytest.fixture(params=(*TILES, SLIM_TILES[-1]), ids=lambda tile: f"{tile.rows}x{tile.columns}")
def only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tile:
    """Each tile, with no other to choose."""
    use(monkeypatch, request.param)
    return request.param


@pytest.mark.parametrize("channels, architecture", [(3, "sm_75"), (40, "sm_75"), (40, "sm_90"), (64, "sm_90")])
def test_every_tile_is_right_at_its_edges(channels: int, architecture: str, only: Tile) -> None:
    window: dict[str, Any] = {"kernel": (3, 3), "padding": (1, 1, 0, 0), "stride": (1, 3)}
    graph = problem((1, only.rows + 1, 3, channels), only.columns + 1, filter_zero=channels - 40, **window)
    if channels % 16 and max(only.rows, only.columns) > mma.MOST_ROWS:
        pytest.skip("threads would lack registers for narrow chunks")
    (template,) = templates_of(graph, architecture)
    assert (template.tile.rows, template.tile.columns) == (only.rows, only.columns)
    check(graph, architecture=architecture, schedule="random", seed=only.rows)


def test_other_weights_than_bytes_are_refused() -> None:
    graph = problem((6, 64), 8, quantized=False)
    wide = [
        Tensor("w", (8, 64), "int16", one.data.astype(np.int16)) if one.name == "w" else one for one in graph.tensors
    ]
    with pytest.raises(CompileError, match="weights of int16, expected int8"):
        templates_of(replace(graph, tensors=tuple(wide)))


@pytest.mark.parametrize("channels", [484, 512])
def test_blocks_share_out_a_long_sum(channels: int) -> None:
    graph = problem((1, 7, 7, channels), 40, kernel=(3, 3), padding=(1, 1, 1, 1), filter_zero=7)
    assert [template.cluster > 1 for template in templates_of(graph)] == [True]
    assert kinds(graph, architecture="sm_80") == [Mma, Combine]
    check(graph)
    check(graph, architecture="sm_80")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(1, 1030, 9), (4, 33, 70), (3, 62, 8), (1, 64, 5000)], ids=str)
def test_few_pixels_read_weights_once(shape: tuple[int, int, int], dtype: str) -> None:
    rows, depth, outputs = shape
    graph = problem((rows, depth), outputs, dtype, filter_zero=-128 if dtype == "uint8" else 0)
    (template,) = templates_of(graph)
    assert isinstance(template, Gemv)
    assert "dp4a" in ptx_of(template, "sm_90")
    check(graph)


def test_they_compile_everywhere_without_spills() -> None:
    few = problem((4, 640), 300, filter_zero=3)
    large = problem((1, 56, 56, 256), 256, kernel=(3, 3), padding=(1, 1, 1, 1), filter_zero=3)
    without = templates_of(CASES["3 channels of uint8"], "sm_72")
    found = set()
    for architecture in back_end.ARCHITECTURES:
        for graph in CASES["3 channels of uint8"], few, large, LONG_SUMS["window"]:
            for template in (*templates_of(graph, architecture), *without):
                image = compiled(template, architecture).image
                found |= {name for name in instructions(image) if name in ("IMMA", "IDP")}
    assert found == {"IMMA", "IDP"}
