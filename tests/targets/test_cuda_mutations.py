"""Bugs planted in the PTX of the tensor core kernel: what the tests of that kernel assert sees each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from jitdelegate.ir.forms import Contract
from jitdelegate.targets.cuda import mma
from jitdelegate.targets.cuda.mma import TILES
from tests.ptx_simulator import SimulationError
from tests.targets.cuda_execute import ptx_of
from tests.targets.test_cuda_mma import TOLERANCES, Case, Prepared, error, expected, prepare, run

SEVEN_TILES = Case(
    (1, 5, 6, 224), (64, 2, 2, 224), (1, 5, 6, 64), Contract(kernel=(2, 2), padding=(1, 0, 1, 0)), has_bias=False
)
"""Seven whole tiles of K: the last one lies where the sums are to lie, in a ring of two and in one of three slots.
Every thread copies rows with taps outside the image, and every product counts."""
PLACES = 4
"""Where a bug fits in more places than that, it is planted in that many of them."""


@dataclass(frozen=True)
class Bug:
    """What matches `pattern` in the PTX, after the last `after`, becomes `replacement`; one place at a time, or all."""

    pattern: str
    replacement: str
    after: str = ""
    everywhere: bool = False

    def planted(self, ptx: str) -> Iterator[str]:
        """The PTX with the bug, once for each place."""
        start = ptx.rindex(self.after) if self.after else 0
        places = list(re.finditer(self.pattern, ptx[start:], re.DOTALL))
        if self.everywhere:
            yield ptx[:start] + re.sub(self.pattern, self.replacement, ptx[start:])
            return
        for place in _some(places):
            yield ptx[: start + place.start()] + place.expand(self.replacement) + ptx[start + place.end() :]


def _some(places: Sequence[re.Match[str]]) -> Sequence[re.Match[str]]:
    """All of a few places, or evenly spread ones, the first and the last among them."""
    if len(places) <= PLACES:
        return places
    return [places[k * (len(places) - 1) // (PLACES - 1)] for k in range(PLACES)]


COMMON = {
    "a barrier is missing": Bug(r"bar\.sync 0;", ""),
    "rows of a matrix are taken for columns": Bug(r"(ldmatrix\.sync\.aligned\.m8n8\.x4)\.", r"\1.trans."),
    "a product starts from zero": Bug(r"(mma\.sync[^;]*\{)%f\d+([^{;]*;)", r"\g<1>0f00000000\2"),
    "a tile of K is taken that is not there": Bug(
        r"(\n(\$L\w+):.*?)setp\.lt\.s32([^;]*;(?:(?!setp).)*?bra\s+\2;)", r"\1setp.le.s32\3"
    ),
    "results beyond the last pixel are stored": Bug(r"@%p\d+ bra[^;]*;", "", after="bar.sync", everywhere=True),
}
BUGS = {
    "sm_90": COMMON
    | {
        "copies are waited for too late": Bug(r"wait_group 1;", "wait_group 2;"),
        "a group of copies is never closed": Bug(r"cp\.async\.commit_group;", ""),
        "data outside the image is copied": Bug(r"selp\.b32 (\s*%r\d+), 16, 0, %p\d+;", r"mov.b32 \1, 16;"),
        "copies overwrite the tile that is read": Bug(r"(setp\.eq\.s32\s+%p\d+, %r\d+), 49152;", r"\1, 32768;"),
    },
    "sm_75": COMMON | {"data outside the image is read": Bug(r"@%p\d+ (ld\.global\.nc)", r"\1")},
}
"""By architecture: asynchronous copies in a ring of three tiles, or copies through registers in one of two."""


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Prepared]:
    """Seven tiles of the kernel whose warps share out K."""
    monkeypatch.setattr(mma, "TILES", tuple(tile for tile in TILES if (tile.rows, tile.columns) == (32, 32)))
    monkeypatch.setattr(mma, "FEWEST_TILES", 1000)
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
    variants = list(BUGS[architecture][name].planted(ptx_of(case.launches[0].template, architecture)))
    assert variants
    assert [number for number, ptx in enumerate(variants) if not is_seen(case, architecture, ptx)] == []


@pytest.mark.parametrize("architecture", BUGS)
def test_without_a_bug_nothing_is_seen(architecture, prepared):
    case = prepared(architecture)
    assert not is_seen(case, architecture, ptx_of(case.launches[0].template, architecture))
