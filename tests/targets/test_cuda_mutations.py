"""Bugs planted in the PTX of kernels that multiply on tensor cores, or compute several nodes: the simulator or a result
shows each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jitdelegate.targets.cuda.code.gpu import GPUS, Costs
from jitdelegate.targets.cuda.multiply.mma_tile import TILES, Tile
from jitdelegate.targets.cuda.products import separable
from jitdelegate.targets.cuda.walks import split_k
from tests.gpu import mutate
from tests.targets.contract_cases import convolution
from tests.targets.cuda_graphs import stored_between
from tests.targets.planted_bugs import Bug, Planting, replaced
from tests.targets.test_cuda_cell import Steps
from tests.targets.test_cuda_mma import use
from tests.targets.test_cuda_separable import Pair

SEVEN_TILES = stored_between(convolution((1, 5, 6, 224), 64, (2, 2), padding=(1, 0, 1, 0)).graph)
"""Seven whole tiles of K: the last one lies where the sums are to lie, in a ring of two and in one of three slots.
Every thread copies rows with taps outside the image, and every product counts."""
PLANTINGS = {
    "sm_90": Planting(SEVEN_TILES, "contract_mma", tolerance=0.1),
    "sm_75": Planting(SEVEN_TILES, "contract_mma", architecture="sm_75", tolerance=0.1),
    "separable_mma": Planting(Pair((1, 3, 6, 72), 24, dilation=(1, 2), padding=(1, 1, 2, 2)).graph, "separable_mma"),
    "separable_ffma": Planting(Pair((1, 3, 5, 36), 8).graph, "separable_ffma", "float32"),
    "cell": Planting(Steps(1, 2, 6, 900).graph, "cell"),
}
"""Of pairs two or three turns of their kernels, and pixels that the last tile lacks; of a cell warps that share out a
sum."""
PLACES = 5
"""In how many of the places where a bug fits it is planted, from the first one on."""


COMMON: dict[str, Bug] = {
    "a barrier is missing": mutate.remove_barrier,
    "rows of a matrix are taken for columns": mutate.transpose_ldmatrix,
    "a product starts from zero": replaced(r"(mma\.sync[^;]*\{)%f\d+([^{;]*;)", r"\g<1>0f00000000\2"),
    "a tile of K is taken that is not there": replaced(
        r"(\n(\$L\w+):.*?)setp\.lt\.s32([^;]*;(?:(?!setp).)*?bra\s+\2;)", r"\1setp.le.s32\3"
    ),
    "results beyond the last pixel are stored": mutate.drop_branch_before_store,
    "results are stored beside their place": lambda text, number: mutate.shift_global_store(text, 16, number),
}
BUGS: dict[str, dict[str, Bug]] = {
    "sm_90": COMMON
    | {
        "halves of weights are exchanged": mutate.swap_mma_registers,
        "copies are waited for too late": mutate.raise_wait_group,
        "a group of copies is never closed": replaced(r"cp\.async\.commit_group;", ""),
        "data outside the image is copied": mutate.drop_zero_fill,
        "copies overwrite the tile that is read": replaced(r"(setp\.eq\.s32\s+%p\d+, %r\d+), 49152;", r"\1, 32768;"),
        "launches before it are not waited for": replaced(r"griddepcontrol\.wait;", ""),
        "data is copied before the wait": replaced(
            r"griddepcontrol\.wait;(.*?cp\.async\.c[ag]\.[^;]*;)", r"\1 griddepcontrol.wait;"
        ),
        "some threads do not wait": replaced(
            r"(setp\.lt\.s32\s+(%p\d+)(?:(?!setp).)*?)griddepcontrol\.wait;", r"\1 @\2 griddepcontrol.wait;"
        ),
    },
    "sm_75": COMMON | {"data outside the image is read": mutate.drop_global_predicate},
    "separable_mma": {
        "a barrier is missing": mutate.remove_barrier,
        "copies are waited for too late": mutate.raise_wait_group,
        "a group of copies is never closed": replaced(r"cp\.async\.commit_group;", ""),
        "data is read before it is there": replaced(r"griddepcontrol\.wait;", ""),
        "results beyond the last pixel are stored": mutate.drop_branch_before_store,
    },
    "separable_ffma": {"a barrier is missing": mutate.remove_barrier},
    "cell": {
        "a barrier is missing": mutate.remove_barrier,
        "data is read before it is there": replaced(r"griddepcontrol\.wait;", ""),
    },
}
"""By planting: sm_90 has asynchronous copies in a ring of three tiles, sm_75 copies through registers in one of two."""
CASES = [(planting, name) for planting, bugs in BUGS.items() for name in bugs]


@pytest.fixture(autouse=True)
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tile whose warps share out K, and no cluster; every pair is computed together, in small tiles."""
    use(monkeypatch, *(tile for tile in TILES if (tile.rows, tile.columns) == (32, 32)))
    monkeypatch.setattr(split_k, "FEWEST_OF_CLUSTER", 1000)
    monkeypatch.setattr(separable, "launch_cycles", lambda gpu: 10**9)
    monkeypatch.setattr(separable, "MMA_TILES", (Tile(32, 64, (1, 2, 2), 64, 2),))
    monkeypatch.setattr(separable.ffma_tile, "TILES", separable.ffma_tile.TILES[-2:-1])


@pytest.mark.parametrize("name, bug", CASES)
def test_a_planted_bug_is_seen(name: str, bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PLANTINGS[name].unseen(monkeypatch, BUGS[name][bug], PLACES) == []


@pytest.mark.parametrize("name", PLANTINGS)
def test_without_a_bug_nothing_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not PLANTINGS[name].is_seen(monkeypatch, PLANTINGS[name].sound)


CLUSTER_BUGS: dict[str, Bug] = {
    "blocks of a cluster do not wait": replaced(r"barrier\.cluster\.[^;]*;\s*barrier\.cluster\.[^;]*;", ""),
    "a block adds up its own sums only": replaced(r"mapa\.shared::cluster(\.u32 %r\d+, %r\d+), [^;]+;", r"mov\1;"),
}


@pytest.mark.parametrize("name", CLUSTER_BUGS)
def test_a_bug_in_a_cluster_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPUS, "sm_90", replace(GPUS["sm_90"], costs=Costs(cluster=-1e9)))
    monkeypatch.setattr(split_k, "FEWEST_OF_CLUSTER", 1)
    planting = PLANTINGS["sm_90"]
    assert planting.template.cluster > 1
    assert planting.unseen(monkeypatch, CLUSTER_BUGS[name], 2) == []
