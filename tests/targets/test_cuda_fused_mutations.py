"""Bugs planted in the PTX of kernels that compute several nodes: depthwise and 1x1 convolutions, and cells."""

from __future__ import annotations

import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.multiply.mma_tile import Tile
from jitdelegate.targets.cuda.products import separable
from tests.gpu import mutate
from tests.gpu.simulator import SimulationError
from tests.targets import cuda_execute
from tests.targets.cuda_execute import ptx_of, templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.test_cuda_cell import Steps
from tests.targets.test_cuda_mutations import Bug, planted, replaced
from tests.targets.test_cuda_separable import Pair

GRAPHS = {
    "separable_mma": Pair((1, 3, 6, 72), 24, dilation=(1, 2), padding=(1, 1, 2, 2)).graph,
    "separable_ffma": Pair((1, 3, 5, 36), 8).graph,
    "cell": Steps(1, 2, 6, 900).graph,
}
"""By family: two or three turns of its kernel, and pixels that the last tile lacks; warps that share out a sum."""
BARRIER: dict[str, Bug] = {"a barrier is missing": mutate.remove_barrier}
ALL: dict[str, Bug] = {
    **BARRIER,
    "copies are waited for too late": mutate.raise_wait_group,
    "a group of copies is never closed": replaced(r"cp\.async\.commit_group;", ""),
    "data is read before it is there": replaced(r"griddepcontrol\.wait;", ""),
    "results beyond the last pixel are stored": mutate.drop_branch_before_store,
}
CELL: dict[str, Bug] = {name: ALL[name] for name in (*BARRIER, "data is read before it is there")}
BUGS = {"separable_mma": ALL, "separable_ffma": BARRIER, "cell": CELL}
CASES = [(family, name) for family, bugs in BUGS.items() for name in bugs]


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is computed together, in small tiles."""
    monkeypatch.setattr(separable, "launch_cycles", lambda gpu: 10**9)
    monkeypatch.setattr(separable, "MMA_TILES", (Tile(32, 64, (1, 2, 2), 64, 2),))
    monkeypatch.setattr(separable.ffma_tile, "TILES", separable.ffma_tile.TILES[-2:-1])


def precision_of(family: str) -> str:
    return "float32" if family.endswith("ffma") else "float16"


def is_seen(graph: Graph, precision: str, schedules: tuple[str, ...] = ("random", "lockstep")) -> bool:
    """Whether any order of warps gives wrong numbers, or the simulator objects."""
    for schedule in schedules:
        try:
            compare(graph, precision, tolerance=1e-2, schedule=schedule)
        except (SimulationError, AssertionError):
            return True
    return False


@pytest.mark.parametrize("family, name", CASES)
def test_a_planted_bug_is_seen(family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, precision = GRAPHS[family], precision_of(family)
    (template,) = (one for one in templates_of(graph, precision=precision) if one.family == family)
    right = ptx_of(template, "sm_90")
    variants = list(planted(BUGS[family][name], right))
    assert variants
    unseen = []
    for number, wrong in enumerate(variants):
        texts = {template: wrong}
        monkeypatch.setattr(cuda_execute, "ptx_of", lambda one, kind, own=texts: own.get(one) or ptx_of(one, kind))
        if not is_seen(graph, precision):
            unseen.append(number)
    assert unseen == []


@pytest.mark.parametrize("family", GRAPHS)
def test_without_a_bug_nothing_is_seen(family: str) -> None:
    assert not is_seen(GRAPHS[family], precision_of(family))
