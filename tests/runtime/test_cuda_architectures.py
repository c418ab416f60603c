"""Kinds of GPU: how they are written, which one a number of multiprocessors counts as, and which are near."""

from __future__ import annotations

import pytest

from jitdelegate.runtime.cuda.architectures import (
    SIZES,
    is_made_by,
    kind_of,
    name_of,
    other_kinds,
    other_sizes,
    parsed,
    portable_kind,
    runs_binary,
    size_of,
)

ARCHITECTURES = tuple(map(name_of, SIZES))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_architecture_alone_names_its_most_usual_gpu(architecture: str) -> None:
    sizes = SIZES[next(one for one in SIZES if name_of(one) == architecture)]
    assert parsed(architecture) == (architecture, sizes[0]) == parsed(f"{architecture}:{sizes[0]}")
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_number_counts_as_the_nearest_size_that_is_not_larger(architecture: str) -> None:
    sizes = [size for size in range(1, 300) if size_of(architecture, size) == size]
    for count in range(1, 300):
        found = size_of(architecture, count)
        assert found == max([size for size in sizes if size <= count] or [min(sizes)])
        assert parsed(kind_of(architecture, count)) == parsed(f"{architecture}:{count}") == (architecture, found)


def test_the_nearest_other_sizes_come_first() -> None:
    assert other_sizes("sm_90:114") == [132, 78, 60, 32, 26, 16]
    assert other_sizes("sm_90:26") == [32, 16, 60, 78, 114, 132]


def test_ptx_of_lower_architectures_runs_too() -> None:
    assert parsed("compute_86:46") == ("compute_86", 46) and kind_of("compute_86", 50) == "compute_86:46"
    found = other_kinds("compute_86:46")
    assert found[:2] == [("compute_86", 68), ("compute_86", 72)]
    assert [name for name, _ in found[6:]] == ["compute_80"] * 6 + ["compute_75"] * 6 + ["compute_72"] * 2


def test_binaries_for_lower_architectures_come_before_ptx() -> None:
    names = list(dict.fromkeys(name for name, _ in other_kinds("sm_89")))
    ptx = ["compute_89", "compute_87", "compute_86", "compute_80", "compute_75", "compute_72"]
    assert names == ["sm_89", "sm_86", "sm_80", *ptx]
    assert [name for name, _ in other_kinds("sm_87")][3:5] == ["compute_87"] * 2


@pytest.mark.parametrize(
    "compiled, capability, expected",
    [((8, 0), (8, 9), True), ((8, 7), (8, 9), False), ((8, 6), (8, 7), False), ((8, 7), (8, 7), True)],
)
def test_binaries_of_modules_and_of_other_gpus_are_apart(
    compiled: tuple[int, int], capability: tuple[int, int], expected: bool
) -> None:
    assert runs_binary(compiled, capability) is expected


@pytest.mark.parametrize(
    "toolkit, architecture, expected",
    [(13, "sm_110", True), (12, "sm_110", False), (12, "sm_72", True), (13, "compute_72", False), (0, "sm_72", True)],
)
def test_not_every_toolkit_compiles_for_every_gpu(toolkit: int, architecture: str, expected: bool) -> None:
    assert is_made_by(toolkit, architecture) is expected


def test_ptx_is_for_the_nearest_architecture_that_a_toolkit_knows() -> None:
    assert portable_kind("sm_110", 12) == "compute_100:18"
    assert portable_kind("sm_110", 13) == "compute_110"
    assert portable_kind("sm_72", 13) == ""


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("sm_70", "no GPU architecture 'sm_70', expected one of sm_72, sm_75, sm_80, .*, sm_121"),
        ("", "no GPU architecture ''"),
        ("sm_90:", "'sm_90:' has no number of multiprocessors behind the colon, expected one as in 'sm_90:132'"),
        ("sm_90:0", "'sm_90:0' has no number"),
        ("sm_90:-1", "'sm_90:-1' has no number"),
        ("sm_90:many", "'sm_90:many' has no number"),
        ("sm_90:²", "'sm_90:²' has no number"),
    ],
)
def test_what_names_no_kind_is_refused_with_what_was_expected(kind: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parsed(kind)
