"""Canonical index maps, and the division that turns a thread's number into an index: plain numbers, no kernels."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest

from jitdelegate.ir.forms import IndexMap
from jitdelegate.targets.cuda.code.division import divisor
from jitdelegate.targets.cuda.code.index_map import CanonicalMap, Walk, canonical, walk
from jitdelegate.targets.reference.evaluate import read

Shape = tuple[int, ...]


def values(index_map: CanonicalMap, one: Walk, operand: np.ndarray) -> list[float]:
    """What the walk reads for all outputs in order."""
    found = []
    for index in product(*map(range, index_map.sizes)):
        inside = all(low <= place < high for place, (low, high) in zip(index, one.limits, strict=True))
        place = one.offset + sum(a * b for a, b in zip(index, one.strides, strict=True))
        found.append(operand.flat[place] if inside else one.fill)
    return found


def any_access(random: Random, output: Shape) -> tuple[Shape, IndexMap]:
    """An operand and an access, which leaves the operand here and there where it has a fill."""
    if random.random() < 0.4:
        shift = random.randrange(len(output) + 1)
        shape = tuple(size if random.random() < 0.7 else 1 for size in output[shift:])
        return shape, IndexMap.broadcast(shape, output)
    shape = tuple(random.choice((1, 2, 3, 5)) for _ in range(random.randrange(5)))
    dims = tuple(random.randrange(-1, len(output)) for _ in shape)
    starts = tuple(random.randint(-3, 4) for _ in shape)
    return shape, IndexMap(dims, starts, tuple(random.choice((1, 1, -1, 2, -2)) for _ in shape), 1.5)


@pytest.mark.parametrize("seed", range(200))
def test_a_canonical_walk_reads_what_the_access_reads(seed: int) -> None:
    random = Random(seed)
    output = tuple(random.choice((1, 2, 3, 4)) for _ in range(random.randrange(6)))
    operands = [any_access(random, output) for _ in range(random.randint(1, 3))]
    arrays = [np.random.default_rng(k).random(shape, np.float32) for k, (shape, _) in enumerate(operands)]
    expected = [read(array, access, output).ravel() for array, (_, access) in zip(arrays, operands, strict=True)]
    walks = [walk(shape, access, output) for shape, access in operands]
    read_at_all = [k for k, one in enumerate(walks) if not one.is_empty]
    for k in set(range(len(walks))) - set(read_at_all):
        np.testing.assert_array_equal(expected[k], 1.5)
    index_map = canonical(output, [walks[k] for k in read_at_all])
    assert prod(index_map.sizes) == prod(output)
    for k, one in zip(read_at_all, index_map.walks, strict=True):
        np.testing.assert_array_equal(values(index_map, one, arrays[k]), expected[k])


@pytest.mark.parametrize(
    "output, shapes, sizes",
    [
        ((2, 3, 4, 8), [(2, 3, 4, 8), (2, 3, 4, 8)], (192,)),
        ((2, 3, 4, 8), [(2, 3, 4, 8), (8,)], (24, 8)),
        ((2, 3, 4, 8), [(1, 3, 1, 1), (8,)], (2, 3, 4, 8)),
        ((1, 3, 1, 8), [(1, 1, 1, 1)], (24,)),
        ((), [()], (1,)),
    ],
)
def test_there_are_no_more_axes_than_the_operands_tell_apart(output: Shape, shapes: list[Shape], sizes: Shape) -> None:
    walks = [walk(shape, IndexMap.broadcast(shape, output), output) for shape in shapes]
    assert canonical(output, walks).sizes == sizes


def test_an_axis_with_a_border_takes_in_the_axes_within_it() -> None:
    padded = IndexMap((0, 1, 2), (-1, 0, 0), (1, 1, 1), 0.0)
    index_map = canonical((6, 5, 4), [walk((4, 5, 4), padded, (6, 5, 4))])
    assert (index_map.sizes, index_map.walks[0].limits) == ((120,), ((20, 100),))


def test_an_axis_with_a_border_stays_apart_from_the_axis_around_it() -> None:
    padded = IndexMap((0, 1), (0, -1), (1, 1), 0.0)
    assert canonical((3, 4), [walk((3, 4), padded, (3, 4))]).sizes == (3, 4)


def test_quotients_are_exact_over_all_of_int32() -> None:
    random = Random(0)
    sizes = [1, 2, 3, 5, 7, 641, 2**29 - 1, 2**30, 2**31 - 1, *(random.randrange(1, 2**31) for _ in range(2000))]
    for size in sizes:
        same, multiplier, shift = divisor(size)
        edges = (0, 1, size - 1, size, size + 1, 2**31 - 1, (2**31 - 1) // size * size - 1, random.randrange(2**31))
        assert same == size
        assert -(2**31) <= multiplier < 0
        for number in edges:
            if 0 <= number < 2**31:
                assert number * (multiplier + 2**32) >> shift == number // size
