"""Which of Winograd's algorithms computes a Contract, where one is faster than the direct way, and in which parts."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.kernel import split
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES
from jitdelegate.targets.cpu.multiply.narrow_products import HalfProducts
from jitdelegate.targets.cpu.multiply.pairs import WordPairs
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.multiply.winograd_algorithm import Algorithm

OF_BYTES = Algorithm(points=(1.0,), scale_bits=1)
OF_FLOATS = (Algorithm(points=(1.0,)), Algorithm(points=(0.625, 1.5)))
"""The one with fewer weights first."""
TAPS = 9
GROUP = 16
"""Channels of bytes that are transformed together, or half as many."""
MOST = 1 << 29
"""Sums of smaller magnitude fit an int32 when they are four times as large."""
FEWEST_TILES = 16
"""Fewest tiles of a chunk, unless its image has fewer: each chunk reads all weights."""
SLICE = 64
"""Fewest outputs of floats that are computed apart from others, so that chunks of a small image share its weights."""
BYTES_COST, DATA_COST, RESULT_COST = 0.85, 60, 70
"""Instructions for a vector's products of a channel and their sum in the direct way, some of which multiply bytes; for
the data of a tile in a group of channels; and for its results in a vector."""
NUMBER_COST, GAIN = 8, 1.05
"""Multiply-adds of floats that take as long as a number of the data or a sum, and how many times as fast as others an
algorithm has to be."""
WIDE, NEAR_BYTES, NEAR_COST, FAR_COST, WIDE_FAR_COST = 16, 1 << 20, 2, 12, 8
"""Weights that fit a second-level cache; multiply-adds that take as long as reading one of them, another one, and
another one into vectors of 16. Measured on a Zen 4 core, chains of layers of 16 to 512 channels and 7 to 112 pixels."""


def algorithm_for(form: Contract, products: Products, weights: np.ndarray, a: Layout, c: Layout) -> Algorithm | None:
    """The fastest algorithm for a Contract of weights [O, kh, kw, I]; None where it is computed directly: where that is
    faster, or sums might wrap."""
    if (form.kernel, form.stride, form.dilation, form.groups, form.transposed) != ((3, 3), (1, 1), (1, 1), 1, False):
        return None
    if isinstance(products, WordPairs):
        return _for_bytes(weights, products.lanes, a, c)
    if isinstance(products, HalfProducts) or products == Products(products.machine):
        return _for_floats(weights, products.lanes, a, c)
    return None


def _for_bytes(weights: np.ndarray, lanes: int, a: Layout, c: Layout) -> Algorithm | None:
    (_, rows, columns, outputs), depth, step = c.shape, weights.shape[3], OF_BYTES.step
    if c.dtype not in ("int8", "uint8") or c.blocked or depth % (GROUP // 2):
        return None
    vectors, element = -(-outputs // lanes), ELEMENT_TYPES[a.dtype]
    direct = BYTES_COST * step**2 * TAPS * depth * vectors
    own = OF_BYTES.positions * depth * vectors + RESULT_COST * vectors + DATA_COST * -(-depth // GROUP)
    are_many = rows * columns >= step**2 * FEWEST_TILES and min(rows, columns) > step
    if own >= direct or not are_many:
        return None
    largest = max(element.maximum, -element.minimum) * np.abs(weights.astype(np.int64)).sum((1, 2, 3)).max()
    return OF_BYTES if largest < MOST else None


def _for_floats(weights: np.ndarray, lanes: int, a: Layout, c: Layout) -> Algorithm | None:
    (images, rows, columns, outputs), depth = c.shape, weights.shape[3]
    if not a.blocked and depth % lanes:  # the last vector of a pixel would reach into the next one
        return None
    wide, outputs = (-(-channels // lanes) * lanes for channels in (depth, outputs))
    best, least = None, images * rows * columns * TAPS * depth * outputs
    for algorithm in OF_FLOATS:
        tiles = images * -(-rows // algorithm.step) * -(-columns // algorithm.step)
        is_near = algorithm.positions * depth * outputs * FLOAT_BYTES <= NEAR_BYTES
        reading = NEAR_COST if is_near else WIDE_FAR_COST if lanes == WIDE else FAR_COST
        position = tiles * (depth * outputs + NUMBER_COST * (wide + outputs)) + reading * depth * outputs
        if min(rows, columns) > algorithm.step and GAIN * algorithm.positions * position < least:
            best, least = algorithm, algorithm.positions * position
    return best


def slices(algorithm: Algorithm, outputs: int, lanes: int) -> list[slice]:
    """The outputs, cut into parts that are computed apart."""
    if algorithm == OF_BYTES:
        return [slice(0, outputs)]
    found, start, vectors = list[slice](), 0, -(-outputs // lanes)
    for size, count in split(vectors, -(-vectors // max(1, outputs // SLICE))):
        for _ in range(count):
            first, start = start, start + size
            found.append(slice(first * lanes, min(start * lanes, outputs)))
    return found
