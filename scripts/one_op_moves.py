"""Small quantized models of one operator that moves numbers, or fills tensors with them; like
scripts/one_op_models.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ops.call import OPTION
from scripts.quantized_draw import ALL, BYTES, Draw, Shape


def _axis(draw: Draw, shape: Shape) -> int:
    return int(draw.random.integers(len(shape)))


def _with(shape: Shape, axis: int, *sizes: int) -> Shape:
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def concatenation(draw: Draw) -> None:
    shape = draw.shape(2, 3, 4)
    axis = _axis(draw, shape)
    equal = draw.dtype != "uint8" or draw.pick("equal parameters", [True, False])
    out = draw.quant()
    parts = [shape, *(_with(shape, axis, draw.size()) for _ in range(draw.choice([0, 1, 1, 2, 4])))]
    operands = [draw.data(part, out if equal else draw.quant()) for part in parts]
    total = _with(shape, axis, sum(part[axis] for part in parts))
    options = {"axis": draw.say("axis", axis if draw.chance(2) else axis - len(shape)), OPTION: "NONE"}
    draw.result("CONCATENATION", operands, total, out, **options)


def pad(op: str) -> Callable[[Draw], None]:
    """PAD, PADV2, MIRROR_PAD."""

    def make(draw: Draw) -> None:
        shape = draw.shape(2, 4)
        most = np.array([min(3, size) for size in shape]).reshape(-1, 1) if op == "MIRROR_PAD" else 3
        amounts = draw.random.integers(0, most, (len(shape), 2))
        if op != "MIRROR_PAD" and len(shape) == 4 and draw.chance(2):
            amounts[[0, 3]] = 0  # the image of a convolution
        quant = draw.quant()
        operands = [draw.data(shape, quant), draw.integers(amounts)]
        if op == "PADV2":
            operands.append(draw.constant(draw.codes(()), quant=quant))
        out = tuple(int(size + sum(pair)) for size, pair in zip(shape, amounts, strict=True))
        options = {"mode": draw.pick("mode", ["REFLECT", "SYMMETRIC"])} if op == "MIRROR_PAD" else {}
        draw.result(op, operands, out, quant, **options)

    return make


def space_to_batch(draw: Draw) -> None:
    shape, quant = draw.shape(3, 4), draw.quant()
    count = len(shape) - 2
    blocks = draw.pick("blocks", [(1, 2), (2, 2), (2, 3)])[:count]
    before = draw.random.integers(0, 3, count).tolist()
    after = [(-size - start) % block for size, start, block in zip(shape[1:], before, blocks, strict=False)]
    borders = [*zip(before, after, strict=True)]
    sizes = ((size + sum(border)) // block for size, border, block in zip(shape[1:], borders, blocks, strict=False))
    operands = [draw.data(shape, quant), draw.integers(blocks), draw.integers(borders)]
    draw.result("SPACE_TO_BATCH_ND", operands, (shape[0] * prod(blocks), *sizes, shape[-1]), quant)


def batch_to_space(draw: Draw) -> None:
    quant, shape = draw.quant(), draw.shape(3, 4)
    count = len(shape) - 2
    fitting = [each for each in ((1, 1), (1, 2), (2, 2), (2, 3)) if shape[0] % prod(each[:count]) == 0]
    blocks = draw.pick("blocks", fitting)[:count]
    whole = [size * block for size, block in zip(shape[1:], blocks, strict=False)]
    crops = [(size > 2 and draw.choice([0, 1]), size > 2 and draw.choice([0, 1])) for size in whole]
    sizes = (size - sum(crop) for size, crop in zip(whole, crops, strict=True))
    operands = [draw.data(shape, quant), draw.integers(blocks), draw.integers(crops)]
    draw.result("BATCH_TO_SPACE_ND", operands, (shape[0] // prod(blocks), *sizes, shape[-1]), quant)


def transpose(draw: Draw) -> None:
    shape, quant = draw.shape(2, 3, 4), draw.quant()
    order = tuple(int(axis) for axis in draw.random.permutation(len(shape)))
    draw.result(
        "TRANSPOSE", [draw.data(shape, quant), draw.integers(order)], tuple(shape[axis] for axis in order), quant
    )


def reshape(draw: Draw) -> None:
    shape, quant = draw.shape(3, 4), draw.quant()
    out = (shape[0] * shape[1], prod(shape[2:]))
    draw.result("RESHAPE", [draw.data(shape, quant), draw.integers(out)], out, quant, new_shape=out)


def expand_dims(draw: Draw) -> None:
    shape, quant = draw.shape(1, 2, 3), draw.quant()
    axis = draw.size(len(shape) + 1) - 1
    draw.result("EXPAND_DIMS", [draw.data(shape, quant), draw.integers(axis)], (*shape[:axis], 1, *shape[axis:]), quant)


def squeeze(draw: Draw) -> None:
    shape, quant = draw.shape(2, 3, 4), draw.quant()
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    out = tuple(size for size in shape if size > 1)
    draw.result("SQUEEZE", [draw.data(shape, quant)], out, quant, squeeze_dims=axes)


def strided_slice(draw: Draw) -> None:
    shape, quant = draw.shape(), draw.quant()
    begin, step = [int(size > 1 and draw.chance(2)) for size in shape], [draw.choice([1, 1, 2]) for _ in shape]
    out = tuple(len(range(a, size, c)) for a, size, c in zip(begin, shape, step, strict=True))
    operands = [draw.data(shape, quant), *map(draw.integers, (begin, shape, step))]
    draw.result("STRIDED_SLICE", operands, out, quant)


def slice_(draw: Draw) -> None:
    shape, quant = draw.shape(), draw.quant()
    begin = [int(size > 1 and draw.chance(2)) for size in shape]
    out = tuple(int(draw.random.integers(1, size - a + 1)) for a, size in zip(begin, shape, strict=True))
    draw.result("SLICE", [draw.data(shape, quant), draw.integers(begin), draw.integers(out)], out, quant)


def split(draw: Draw) -> None:
    shape, quant = draw.shape(), draw.quant()
    axis = _axis(draw, shape)
    parts = draw.choice([count for count in (1, 2, 3) if shape[axis] % count == 0])
    operands = [draw.integers(axis), draw.data(shape, quant)]
    part = _with(shape, axis, shape[axis] // parts)
    draw.results("SPLIT", operands, [part] * parts, quant, num_splits=parts)


def split_v(draw: Draw) -> None:
    shape, quant = draw.shape(2, 3, 4), draw.quant()
    axis = _axis(draw, shape)
    first = draw.size(shape[axis])
    sizes = [first, shape[axis] - first] if first < shape[axis] else [first]
    operands = [draw.data(shape, quant), draw.integers(sizes), draw.integers(axis)]
    shapes = [_with(shape, axis, size) for size in sizes]
    draw.results("SPLIT_V", operands, shapes, quant, num_splits=len(sizes))


def pack(draw: Draw) -> None:
    shape, quant = draw.shape(3), draw.quant()
    count, axis = draw.size(3), draw.size(4) - 1
    operands = [draw.data(shape, quant) for _ in range(count)]
    draw.result("PACK", operands, (*shape[:axis], count, *shape[axis:]), quant, axis=axis, values_count=count)


def unpack(draw: Draw) -> None:
    shape, quant = draw.shape(2, 3), draw.quant()
    axis = _axis(draw, shape)
    shapes = [_with(shape, axis)] * shape[axis]
    draw.results("UNPACK", [draw.data(shape, quant)], shapes, quant, axis=axis, num=shape[axis])


def gather(draw: Draw) -> None:
    shape, quant = draw.shape(3), draw.quant()
    axis = _axis(draw, shape)
    places = draw.integers(draw.random.integers(0, shape[axis], 4))
    draw.result("GATHER", [draw.data(shape, quant), places], _with(shape, axis, 4), quant, axis=axis)


def gather_nd(draw: Draw) -> None:
    shape, quant = draw.shape(3, 4), draw.quant()
    places = draw.random.integers(0, shape[:2], (draw.size(), 2))
    draw.result("GATHER_ND", [draw.data(shape, quant), draw.integers(places)], (len(places), *shape[2:]), quant)


def dynamic_update_slice(draw: Draw) -> None:
    shape, quant = draw.shape(2, 3, 4), draw.quant()
    part = tuple(draw.size(size) for size in shape)
    place = [draw.size(size - own + 1) - 1 for size, own in zip(shape, part, strict=True)]
    operands = [draw.data(shape, quant), draw.data(part, quant), draw.integers(place)]
    draw.result("DYNAMIC_UPDATE_SLICE", operands, shape, quant)


def tile(draw: Draw) -> None:
    shape, quant = draw.shape(2, 3), draw.quant()
    counts = [draw.size(3) for _ in shape]
    out = tuple(size * count for size, count in zip(shape, counts, strict=True))
    draw.result("TILE", [draw.data(shape, quant), draw.integers(counts)], out, quant)


def broadcast_to(draw: Draw) -> None:
    shape, quant = draw.shape(1, 2, 3, 4), draw.quant()
    out = tuple(draw.size() if size == 1 else size for size in (*[1] * (4 - len(shape)), *shape))
    draw.result("BROADCAST_TO", [draw.data(shape, quant), draw.integers(out)], out, quant)


def depth_to_space(draw: Draw) -> None:
    batch, height, width, channels = shape = draw.image(draw.choice([4, 4, 9]))
    quant, block = draw.quant(), 2 if shape[3] % 4 == 0 else 3
    out = (batch, block * height, block * width, channels // block**2)
    draw.result("DEPTH_TO_SPACE", [draw.data(shape, quant)], out, quant, block_size=block)


def space_to_depth(draw: Draw) -> None:
    (batch, height, width, channels), quant = draw.image(), draw.quant()
    height, width = height + height % 2, width + width % 2
    out = (batch, height // 2, width // 2, 4 * channels)
    draw.result("SPACE_TO_DEPTH", [draw.data((batch, height, width, channels), quant)], out, quant, block_size=2)


def select(op: str) -> Callable[[Draw], None]:
    """SELECT and SELECT_V2."""

    def make(draw: Draw) -> None:
        shape, quant = draw.shape(3), draw.quant()
        operands = [draw.data(shape, None, "bool"), draw.data(shape, quant), draw.operand(shape, quant)]
        draw.result(op, operands, shape, quant)

    return make


def reverse(draw: Draw) -> None:
    shape, quant = draw.shape(1, 2, 3, 4), draw.quant()
    draw.result("REVERSE_V2", [draw.data(shape, quant), draw.integers([_axis(draw, shape)])], shape, quant)


def reverse_sequence(draw: Draw) -> None:
    shape, quant = draw.shape(2, 3, 4), draw.quant()
    sequence, batch = draw.choice([(0, 1), (1, 0)])
    lengths = draw.integers(draw.random.integers(1, shape[sequence] + 1, shape[batch]))
    draw.result("REVERSE_SEQUENCE", [draw.data(shape, quant), lengths], shape, quant, seq_dim=sequence, batch_dim=batch)


def fill(draw: Draw) -> None:
    shape, quant = draw.shape(1, 2, 3), draw.quant()
    draw.result("FILL", [draw.integers(shape), draw.data((), quant)], shape, quant)


MOVES: Mapping[str, tuple[Sequence[str], Callable[[Draw], Any]]] = {
    "BATCH_TO_SPACE_ND": (ALL, batch_to_space),
    "BROADCAST_TO": (ALL, broadcast_to),
    "CONCATENATION": (ALL, concatenation),
    "DEPTH_TO_SPACE": (BYTES, depth_to_space),
    "DYNAMIC_UPDATE_SLICE": (ALL, dynamic_update_slice),
    "EXPAND_DIMS": (ALL, expand_dims),
    "FILL": (("int8", "int16"), fill),
    "GATHER": (ALL, gather),
    "GATHER_ND": (ALL, gather_nd),
    "MIRROR_PAD": (("int8", "int16", "uint8"), pad("MIRROR_PAD")),
    "PACK": (ALL, pack),
    "PAD": (ALL, pad("PAD")),
    "PADV2": (ALL, pad("PADV2")),
    "RESHAPE": (ALL, reshape),
    "REVERSE_SEQUENCE": (("uint8", "int16"), reverse_sequence),
    "REVERSE_V2": (ALL, reverse),
    "SELECT": (ALL, select("SELECT")),
    "SELECT_V2": (ALL, select("SELECT_V2")),
    "SLICE": (ALL, slice_),
    "SPACE_TO_BATCH_ND": (ALL, space_to_batch),
    "SPACE_TO_DEPTH": (BYTES, space_to_depth),
    "SPLIT": (ALL, split),
    "SPLIT_V": (ALL, split_v),
    "SQUEEZE": (ALL, squeeze),
    "STRIDED_SLICE": (ALL, strided_slice),
    "TILE": (BYTES, tile),
    "TRANSPOSE": (ALL, transpose),
    "UNPACK": (ALL, unpack),
}
"""Operator -> the types that LiteRT quantizes it for, and the function that makes a model of it."""
