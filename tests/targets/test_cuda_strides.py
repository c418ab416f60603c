"""Distances of elements in memory after reshapes and permutations, held against numpy's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jitdelegate.targets.cuda.code.strides import Axes, Axis, common, composed, merged, split


def axes_of(array: np.ndarray) -> Axes:
    """The axes of an array of bytes."""
    return tuple(map(Axis, array.shape, array.strides))


def places(axes: Axes, offset: int = 0) -> list[int]:
    """Where the elements lie, in their order."""
    steps = [range(0, size * distance, distance) if distance else [0] * size for size, distance in axes]
    return [offset + sum(one) for one in itertools.product(*steps)]


MEMORY = np.arange(120, dtype=np.uint8)
CHAINS = [
    MEMORY.reshape(2, 3, 4, 5).transpose(0, 2, 1, 3),
    MEMORY.reshape(4, 30)[:, 10:20].reshape(4, 2, 5).transpose(1, 0, 2),
    np.broadcast_to(MEMORY.reshape(6, 1, 20), (6, 2, 20)),
    MEMORY.reshape(10, 12)[1:9:2, 3:9],
]


@pytest.mark.parametrize("array", CHAINS, ids=lambda one: str(one.shape))
def test_axes_say_where_elements_lie(array: np.ndarray) -> None:
    found = merged(axes_of(array))
    assert [MEMORY[at] for at in places(found, array.flat[0])] == array.flatten().tolist()
    assert len(found) <= array.ndim


def test_axes_split_at_the_axes_of_another_shape() -> None:
    axes = (Axis(4, 30), Axis(6, 5), Axis(5, 1))
    assert split(axes, (2, 2, 30)) == [(Axis(2, 60),), (Axis(2, 30),), (Axis(30, 1),)]
    assert split(axes, (24, 5)) == [(Axis(24, 5),), (Axis(5, 1),)]
    assert split((Axis(4, 1), Axis(6, 4)), (8, 3)) == [(Axis(4, 1), Axis(2, 12)), (Axis(3, 4),)]
    assert split((Axis(4, 1), Axis(6, 4)), (3, 8)) is None


def test_runs_have_common_axes() -> None:
    rows, shared = (Axis(6, 7), Axis(4, 1)), (Axis(3, 50), Axis(8, 0))
    assert common([rows, shared]) == [(3, (14, 50)), (2, (7, 0)), (4, (1, 0))]
    assert common([(Axis(12, 2),), (Axis(3, 8), Axis(4, 2))]) == [(12, (2, 2))]
    assert common([(Axis(3, 1), Axis(4, 5)), (Axis(4, 1), Axis(3, 5))]) is None


@pytest.mark.parametrize("array", CHAINS, ids=lambda one: str(one.shape))
@pytest.mark.parametrize("first", [0, 1])
def test_a_chain_of_reshapes_and_permutations_is_one_run(array: np.ndarray, first: int) -> None:
    between = np.arange(array.size, dtype=np.uint8).reshape(array.shape)
    outers = between.reshape(2, -1).T, between[first:, ..., ::2].swapaxes(0, 1), between.reshape(-1)[first::4]
    for number, outer in enumerate(outers):
        found = composed(merged(axes_of(outer)), int(outer.flat[0]), axes_of(array))
        assert found or number
        if found:
            expected = [array.flat[at] for at in outer.flatten()]
            assert [MEMORY[at] for at in places(found[0], found[1] + int(array.flat[0]))] == expected
    assert composed((Axis(array.size, 1),), 0, axes_of(array)) is not None
    assert composed((Axis(2, array.shape[-1] - 1),), 1, axes_of(array)) is None
