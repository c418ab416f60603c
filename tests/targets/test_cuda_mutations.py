"""Bugs planted in the PTX of the tensor core kernel: what the tests of that kernel assert sees each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from jitdelegate.ir.forms import Contract
from jitdelegate.targets.cuda.code.gpu import GPUS, Costs
from jitdelegate.targets.cuda.multiply.mma_tile import TILES
from jitdelegate.targets.cuda.walks import split_k
from tests.gpu import mutate
from tests.gpu.mutate import NoSuchPlaceError
from tests.gpu.simulator import SimulationError
from tests.targets.cuda_execute import ptx_of
from tests.targets.test_cuda_mma import TOLERANCES, Case, Prepared, error, expected, prepare, run, use

Bug = Callable[[str, int], str]
"""Plants a bug in the place of that number; NoSuchPlaceError where there are fewer."""

SEVEN_TILES = Case(
    (1, 5, 6, 224), (64, 2, 2, 224), (1, 5, 6, 64), Contract(kernel=(2, 2), padding=(1, 0, 1, 0)), has_bias=False
)
"""Seven whole tiles of K: the last one lies where the sums are to lie, in a ring of two and in one of three slots.
Every thread copies rows with taps outside the image, and every product counts."""
PLACES = 5
"""In how many of the places where a bug fits it is planted, from the first one on."""


def replaced(pattern: str, replacement: str) -> Bug:
    """A bug that changes what matches a pattern."""

    def plant(text: str, number: int) -> str:
        places = list(re.finditer(pattern, text, re.DOTALL))
        if number >= len(places):
            raise NoSuchPlaceError(f"{len(places)} matches of {pattern}, none numbered {number}")
        place = places[number]
        return text[: place.start()] + place.expand(replacement) + text[place.end() :]

    return plant


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
}
"""By architecture: asynchronous copies in a ring of three tiles, or copies through registers in one of two."""


def planted(bug: Bug, text: str) -> Iterator[str]:
    """The text with the bug in one place, for each of some places."""
    for number in range(PLACES):
        try:
            yield bug(text, number)
        except NoSuchPlaceError:
            return


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Prepared]:
    """Seven tiles of the kernel whose warps share out K."""
    use(monkeypatch, next(tile for tile in TILES if (tile.rows, tile.columns) == (32, 32)))
    monkeypatch.setattr(split_k, "FEWEST_OF_CLUSTER", 1000)
    return lambda architecture: prepare(SEVEN_TILES, "float16", architecture)


def is_seen(prepared: Prepared, architecture: str, ptx: str) -> bool:
    """Whether any order of warps gives wrong numbers, or the simulator objects."""
    return any(_fails(prepared, architecture, ptx, schedule) for schedule in ("lockstep", "random"))


def _fails(prepared: Prepared, architecture: str, ptx: str, schedule: str) -> bool:
    try:
        found = run(prepared, architecture, schedule, change=lambda _: ptx)
    except SimulationError:
        return True
    return not error(found, expected(prepared, "float16")) < TOLERANCES["float16"]


@pytest.mark.parametrize("architecture, name", [(one, name) for one, bugs in BUGS.items() for name in bugs])
def test_a_planted_bug_is_seen(architecture, name, prepared):
    case = prepared(architecture)
    variants = list(planted(BUGS[architecture][name], ptx_of(case.launches[0].template, architecture)))
    assert variants
    assert [number for number, ptx in enumerate(variants) if not is_seen(case, architecture, ptx)] == []


@pytest.mark.parametrize("architecture", BUGS)
def test_without_a_bug_nothing_is_seen(architecture, prepared):
    case = prepared(architecture)
    assert not is_seen(case, architecture, ptx_of(case.launches[0].template, architecture))


CLUSTER_BUGS: dict[str, Bug] = {
    "blocks of a cluster do not wait": replaced(r"barrier\.cluster\.[^;]*;\s*barrier\.cluster\.[^;]*;", ""),
    "a block adds up its own sums only": replaced(r"mapa\.shared::cluster(\.u32 %r\d+, %r\d+), [^;]+;", r"mov\1;"),
}


@pytest.mark.parametrize("name", CLUSTER_BUGS)
def test_a_bug_in_a_cluster_is_seen(name, prepared, monkeypatch):
    monkeypatch.setitem(GPUS, "sm_90", replace(GPUS["sm_90"], costs=Costs(cluster=-1e9)))
    monkeypatch.setattr(split_k, "FEWEST_OF_CLUSTER", 1)
    case = prepared("sm_90")
    assert case.templates[0].cluster > 1
    variants = list(planted(CLUSTER_BUGS[name], ptx_of(case.launches[0].template, "sm_90")))[:2]
    assert [is_seen(case, "sm_90", ptx) for ptx in variants] == [True, True]
