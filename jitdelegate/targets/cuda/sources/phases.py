"""Phases of a transposed convolution in one grid: each block reads its phase's sizes from memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from jitdelegate.targets.cuda.code.device_code import I32, Code, Value
from jitdelegate.targets.cuda.code.sizes import Number, count, filled, flattened
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem, whole
from jitdelegate.targets.cuda.sources.pixel_gather import SourceSizes, TargetPixels

QUAD, WORD = 4, 4
"""Numbers that are read together, and the bytes of one."""


class PhaseSizes(NamedTuple):
    """Sizes of a launch for one phase.

    Attributes:
        tiles, share: tiles of K in all, and tiles per block.
        entry, weight: number of the phase's first tile in the table and in the weights.
    """

    tiles: Number
    share: Number
    entry: Number
    weight: Number
    source: SourceSizes


SCATTERED = PhaseSizes, TargetPixels
"""The records that memory holds for each phase."""
RECORD = whole(count(SCATTERED), QUAD)
"""Distance between two phases' records in that memory, in int32 numbers."""


def phase_of(code: Code, phases: Value, number: Value) -> tuple[PhaseSizes, TargetPixels]:
    """The records of phase `number`."""
    offsets = [number * (RECORD * WORD) + at for at in range(0, RECORD * WORD, QUAD * WORD)]
    numbers = [one for offset in offsets for one in code.load(phases, offset, I32, QUAD)]
    phase, target = filled(SCATTERED, iter(numbers))
    return phase, target


def records_of(
    problem: ConvProblem, shapes: Sequence[tuple[int, int, int]], tile: tuple[int, int], parts: int
) -> list[tuple[PhaseSizes, TargetPixels]]:
    """The kernel's records for each phase.

    Args:
        shapes: of the phases' matrices.
        tile: steps of K and columns of a tile.
    """
    records, entry, weight = [], 0, 0
    for phase, shape in zip(problem.phases, shapes, strict=True):
        tiles = shape[1] // tile[0]
        own = PhaseSizes(tiles, -(-tiles // parts), entry, weight, problem.source(phase))
        records.append((own, problem.target_pixels(phase)))
        entry, weight = entry + tiles, weight + prod(shape) // prod(tile)
    return records


def packed(records: Sequence[tuple[PhaseSizes, TargetPixels]]) -> np.ndarray:
    """int32[phases, RECORD]: the numbers of SCATTERED for each phase."""
    numbers = np.zeros((len(records), RECORD), np.int32)
    numbers[:, : count(SCATTERED)] = [flattened(record) for record in records]
    return numbers
