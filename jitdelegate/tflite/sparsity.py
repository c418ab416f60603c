"""How a sparse constant's values are stored."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import DimensionMetadata, Sparsity
from jitdelegate.tflite.record import Record

_ELEMENTS_PER_VALUE = 256
_VALUES_AT_LEAST = 1024


def sparsity(record: Record, shape: tuple[int, ...], values: int, where: str) -> Sparsity:
    """The traversal of a sparse constant of `shape` with `values` stored values, checked so that it can be expanded.

    Raises:
        ModelError: the orders, sizes, segments or indices do not describe such a constant.
    """
    dimensions = tuple(_dimension(dimension) for dimension in record["dim_metadata"])
    levels = Sparsity(record["traversal_order"], record["block_map"], dimensions)
    if prod(shape) > _ELEMENTS_PER_VALUE * (values + _VALUES_AT_LEAST):
        raise ModelError(f"{where}: {values} stored values for {prod(shape)} elements are too few to be meant")
    _check_order(levels, len(shape), where)
    _check_levels(levels, _sizes(levels, shape, where), values, where)
    return levels


def _dimension(record: Record) -> DimensionMetadata:
    return DimensionMetadata(
        record["format"] == "SPARSE_CSR",
        record["dense_size"],
        _values(record["array_segments"]),
        _values(record["array_indices"]),
    )


def _values(vector: Record | None) -> tuple[int, ...]:
    return tuple(vector["values"]) if vector else ()


def _check_order(levels: Sparsity, rank: int, where: str) -> None:
    """Check that every dimension of the shape, then every block, is traversed exactly once."""
    if sorted(levels.traversal_order) != list(range(rank + len(levels.block_map))):
        raise ModelError(
            f"{where}: its traversal order of {len(levels.traversal_order)} steps is none of {rank} dimensions"
            f" and {len(levels.block_map)} blocks"
        )
    if len(levels.dimensions) != len(levels.traversal_order):
        raise ModelError(
            f"{where}: {len(levels.dimensions)} stored dimensions for {len(levels.traversal_order)} traversed"
        )
    if len(set(levels.block_map)) != len(levels.block_map) or not all(0 <= axis < rank for axis in levels.block_map):
        raise ModelError(
            f"{where}: its {len(levels.block_map)} blocks are not along different ones of {rank} dimensions"
        )


def _sizes(levels: Sparsity, shape: tuple[int, ...], where: str) -> list[int]:
    """The number of steps of each traversed dimension; a block shortens the dimension that it divides."""
    sizes = list(shape) + [0] * len(levels.block_map)
    for level, dimension in zip(levels.traversal_order, levels.dimensions, strict=True):
        if level >= len(shape):
            block, whole = dimension.dense_size, levels.block_map[level - len(shape)]
            if dimension.sparse or block <= 0 or shape[whole] % block:
                raise ModelError(f"{where}: a block of {block} does not divide dimension {whole} of {list(shape)}")
            sizes[level] = block
            sizes[whole] = shape[whole] // block
    return sizes


def _check_levels(levels: Sparsity, sizes: list[int], values: int, where: str) -> None:
    """Check that the levels, from the outermost on, lead to exactly as many positions as there are values."""
    positions = 1
    for level, dimension in zip(levels.traversal_order, levels.dimensions, strict=True):
        if dimension.sparse:
            _check_segments(dimension, positions, sizes[level], f"{where}: dimension {level}")
            positions = len(dimension.indices)
        elif dimension.dense_size != sizes[level]:
            raise ModelError(f"{where}: dimension {level} has {dimension.dense_size} steps, expected {sizes[level]}")
        else:
            positions *= sizes[level]
    if positions != values:
        raise ModelError(f"{where}: {values} stored values, expected {positions} by its sparsity")


def _check_segments(dimension: DimensionMetadata, positions: int, size: int, where: str) -> None:
    segments, indices = dimension.segments, dimension.indices
    if len(segments) != positions + 1 or segments[0] != 0 or segments[-1] != len(indices):
        raise ModelError(
            f"{where}: {len(segments)} segment borders do not cut {len(indices)} indices for {positions} positions"
        )
    if any(start > end for start, end in pairwise(segments)):
        raise ModelError(f"{where}: its segment borders run backwards")
    if indices and not 0 <= min(indices) <= max(indices) < size:
        raise ModelError(f"{where}: its indices {min(indices)}..{max(indices)} are not all in 0..{size - 1}")
