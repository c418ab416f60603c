"""Quantization parameters of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Numbers, Quant, Tensor
from jitdelegate.tflite.record import Record


def quantization(record: Record | None, shape: tuple[int, ...], where: str) -> Quant | None:
    """Scales and zero points per tensor or per slice; None where the file has no scales.

    Blockwise quantization keeps its scales in another tensor: the result then has `block_size` and no scales, which
    `with_block_scales` adds.

    Raises:
        ModelError: counts or the axis do not fit the shape.
    """
    if record is None:
        return None
    axis: int = record["quantized_dimension"]
    if record["details_type"] == "BlockwiseQuantization" and record["details"] is not None:
        _check_axis(axis, shape, where)
        return Quant((), (), axis, _block_size(record["details"], where))
    scales: tuple[float, ...] = record["scale"]
    if not scales:
        return None
    zero_points: tuple[int, ...] = record["zero_point"] or (0,) * len(scales)
    _check(scales, zero_points, axis, shape, where)
    return Quant(scales, zero_points, axis, minimum=record["min"], maximum=record["max"])


def _check(
    scales: tuple[float, ...], zero_points: tuple[int, ...], axis: int, shape: tuple[int, ...], where: str
) -> None:
    if len(zero_points) != len(scales):
        raise ModelError(f"{where}: {len(zero_points)} zero points for {len(scales)} scales")
    _check_axis(axis, shape, where)
    if len(scales) > 1 and (not shape or len(scales) != shape[axis]):
        raise ModelError(f"{where}: {len(scales)} scales along dimension {axis} of the shape {list(shape)}")


def _check_axis(axis: int, shape: tuple[int, ...], where: str) -> None:
    if shape and not 0 <= axis < len(shape):
        raise ModelError(f"{where}: is quantized along dimension {axis}, but has the shape {list(shape)}")


def _block_size(details: Record, where: str) -> int:
    size: int = details["block_size"]
    if size < 1:
        raise ModelError(f"{where}: is quantized in blocks of {size}, expected at least 1")
    return size


def with_block_scales(
    tensors: tuple[Tensor, ...], records: Sequence[Record], titles: Sequence[str]
) -> tuple[Tensor, ...]:
    """The tensors, with the scales and zero points of blocks, which are tensors themselves, filled in.

    Args:
        tensors: the subgraph's tensors, without these scales.
        records: their Tensor tables.
        titles: their names in messages.

    Raises:
        ModelError: the scales are not a constant with one element per block.
    """
    return tuple(
        _with_block_scales(tensor, record["quantization"]["details"], tensors, title)
        if tensor.quant is not None and tensor.quant.block_size
        else tensor
        for tensor, record, title in zip(tensors, records, titles, strict=True)
    )


def _with_block_scales(tensor: Tensor, details: Record, tensors: Sequence[Tensor], where: str) -> Tensor:
    assert tensor.quant is not None
    blocks = tensor.size // tensor.quant.block_size
    scales = _numbers(tensors, details["scales"], blocks, ("float16", "float32"), f"{where}, scales of its blocks")
    zero_points: Sequence[int] = (0,)
    if details["zero_points"] > 0:
        types, own = ("int8", "int32", "int64"), f"{where}, zero points of its blocks"
        stored = _numbers(tensors, details["zero_points"], blocks, types, own)
        zero_points = Numbers(stored) if stored.any() else zero_points
    return replace(tensor, quant=replace(tensor.quant, scales=Numbers(scales), zero_points=zero_points))


def _numbers(tensors: Sequence[Tensor], index: int, count: int, dtypes: Sequence[str], where: str) -> np.ndarray:
    """The elements of a constant."""
    if not 0 <= index < len(tensors):
        raise ModelError(f"{where}: tensor {index} does not exist, there are {len(tensors)}")
    tensor = tensors[index]
    if tensor.data is None or tensor.sparsity or tensor.dtype not in dtypes or tensor.size != count:
        raise ModelError(
            f"{where}: tensor {index} {tensor.dtype}{list(tensor.shape)} is not a constant of {count} {dtypes[0]}"
        )
    return tensor.data


def quantization_record(quant: Quant) -> Record:
    """The record of quantization without blocks, for `pack`."""
    return {
        "scale": quant.scales,
        "zero_point": quant.zero_points,
        "quantized_dimension": quant.axis,
        "min": quant.minimum or None,
        "max": quant.maximum or None,
    }
