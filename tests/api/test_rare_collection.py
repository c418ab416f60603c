"""While a model is compiled, Python looks for cyclic garbage less often, and as often as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from jitdelegate.compiler.rare_collection import OBJECTS, rare_collection


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    """Python's thresholds."""
    before = gc.get_threshold()
    gc.set_threshold(700, 11, 12)
    yield 700, 11, 12
    gc.set_threshold(*before)


def test_searches_are_rare_and_then_usual_again(usual: tuple[int, int, int]) -> None:
    with rare_collection():
        assert gc.get_threshold() == (OBJECTS, 11, 12)
    assert gc.get_threshold() == usual


def test_a_failure_ends_it_too(usual: tuple[int, int, int]) -> None:
    with pytest.raises(ZeroDivisionError), rare_collection():
        raise ZeroDivisionError
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("threshold", [0, OBJECTS, 2 * OBJECTS])
def test_a_process_that_searches_never_or_more_rarely_still_does(threshold: int) -> None:
    gc.set_threshold(threshold, 11, 12)
    with rare_collection():
        assert gc.get_threshold() == (threshold, 11, 12)
    assert gc.get_threshold() == (threshold, 11, 12)


def test_compilations_that_overlap_leave_the_usual_thresholds(usual: tuple[int, int, int]) -> None:
    first, second = rare_collection(), rare_collection()
    for one in (first, second):
        one.__enter__()
    for one in (first, second):
        one.__exit__(None, None, None)
    assert gc.get_threshold() == usual
