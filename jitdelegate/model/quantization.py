"""Quantization parameters of a tensor."""

from __future__ import annotations

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Quant
from jitdelegate.model.record import Record


def quantization(record: Record | None, shape: tuple[int, ...], where: str) -> Quant | None:
    """Scales and zero points per tensor or per slice; None where the file gives no scales.

    Blockwise quantization keeps its scales in another tensor: the answer then has `block_size` set and no scales.

    Raises:
        ModelError: counts or the axis do not fit the shape.
    """
    if record is None:
        return None
    if record["details_type"] == "BlockwiseQuantization" and record["details"] is not None:
        return Quant((), (), record["quantized_dimension"], record["details"]["block_size"])
    scales: tuple[float, ...] = record["scale"]
    if not scales:
        return None
    axis: int = record["quantized_dimension"]
    zero_points: tuple[int, ...] = record["zero_point"] or (0,) * len(scales)
    _check(scales, zero_points, axis, shape, where)
    return Quant(scales, zero_points, axis, minimum=record["min"], maximum=record["max"])


def _check(
    scales: tuple[float, ...], zero_points: tuple[int, ...], axis: int, shape: tuple[int, ...], where: str
) -> None:
    if len(zero_points) != len(scales):
        raise ModelError(f"{where}: {len(zero_points)} zero points for {len(scales)} scales")
    if shape and not 0 <= axis < len(shape):
        raise ModelError(f"{where}: is quantized along dimension {axis}, but has the shape {list(shape)}")
    if len(scales) > 1 and (not shape or len(scales) != shape[axis]):
        raise ModelError(f"{where}: {len(scales)} scales along dimension {axis} of the shape {list(shape)}")
