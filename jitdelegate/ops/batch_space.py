"""Operators that move blocks of pixels into the batch, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.forms import IndexMap
from jitdelegate.ops.call import Call, Shape, given, zero
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.padding import Margins, widened
from jitdelegate.ops.quantization import same_scale_problems
from jitdelegate.ops.registry import ANY, QUANTIZED, Lowering, Op, moved, op, view
from jitdelegate.ops.shape import reordered

NARROW = ("int8", "uint8", "int16")
"""Types whose scales and zero points LiteRT's kernels look at."""


class BatchSpace(Op):
    """Operands (data [N, W, C] or [N, H, W, C], block sizes, two borders for each axis between N and C)."""

    folds = 1 << 16
    types = ANY
    quantized = QUANTIZED
    least = most = 3
    parameters = (1, 2)

    def problems(self, call: Call) -> Iterator[str]:
        blocks, rank = call.integers(1), len(call.shape(0))
        if rank not in (3, 4) or len(blocks) != rank - 2:
            yield f"{self.name} of rank {rank} with {len(blocks)} block sizes is not supported."
        if min(blocks) < 1 or call.shape(2) != (len(blocks), 2) or min(call.integers(2)) < 0:
            yield f"{self.name}: blocks of {list(blocks)} and borders of {list(call.integers(2))} make no sense."
        yield from self._division(call)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        if call.output.dtype in NARROW:
            yield from same_scale_problems(call, call.tensor(0), call.output)

    def _division(self, call: Call) -> Iterator[str]:
        raise NotImplementedError

    @staticmethod
    def borders(call: Call) -> Margins:
        """(before, after) for every axis of the data."""
        flat = call.integers(2)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        return [(0, 0), *pairs, *[(0, 0)] * (len(call.shape(0)) - 1 - len(pairs))]

    def shape(self, call: Call) -> Shape:
        return self._shape_of(call.shape(0), call.integers(1), self.borders(call))

    @staticmethod
    def _shape_of(shape: Shape, blocks: Shape, borders: Margins) -> Shape:
        raise NotImplementedError


@op("SPACE_TO_BATCH_ND")
class SpaceToBatchND(BatchSpace):
    """Pads the data with zeros, which narrow quantized data has as its zero point, and makes an image of each position
    within the blocks."""

    cases = (
        Case(((1, 4, 6, 3), ints(2, 3), ints((0, 0), (0, 0)))),
        Case(((2, 5, 4, 17), ints(3, 2), ints((1, 0), (2, 2)))),
        Case(((2, 6, 3), ints(4), ints((1, 1)))),
        Case((Fed((1, 4, 4, 1), "int64"), ints(2, 2), ints((0, 0), (0, 0)))),
    )

    def _division(self, call: Call) -> Iterator[str]:
        wide = widened(call.shape(0), self.borders(call))
        if any(size % block for size, block in zip(wide[1:], call.integers(1), strict=False)):
            yield f"{self.name}: blocks of {list(call.integers(1))} do not divide the padded {list(wide)}."

    @staticmethod
    def _shape_of(shape: Shape, blocks: Shape, borders: Margins) -> Shape:
        batch, *space = widened(shape, borders)
        inner = (size // block for size, block in zip(space, blocks, strict=False))
        return (batch * prod(blocks), *inner, *space[len(blocks) :])

    @staticmethod
    def _order(count: int, rank: int) -> Shape:
        """The permutation of the axes [N, y, block, x, block ..., rest ...]."""
        blocks, inner = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
        return (*blocks, 0, *inner, *range(2 * count + 1, rank + count))

    @staticmethod
    def _apart(wide: Shape, blocks: Shape) -> Shape:
        pairs = ((size // block, block) for size, block in zip(wide[1:], blocks, strict=False))
        return (wide[0], *(size for pair in pairs for size in pair), *wide[1 + len(blocks) :])

    def lowering(self, call: Call) -> Lowering:
        shape, blocks, borders = call.shape(0), call.integers(1), self.borders(call)
        wide, dtype, rank = widened(shape, borders), call.output.dtype, len(shape)
        source: int | Lowering = call.index(0)
        if wide != shape:
            starts = tuple(-before for before, _ in borders)
            middle = zero(call.output) if dtype in NARROW else 0
            access = IndexMap.along(*range(rank), starts=starts, fill=middle)
            source = moved(source, access, wide, dtype)
        return reordered(source, self._apart(wide, blocks), self._order(len(blocks), rank), dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, blocks, borders = given(arrays)
        pairs = [(0, 0), *borders.tolist(), *[(0, 0)] * (data.ndim - 1 - len(blocks))]
        padded = np.pad(data, pairs)
        phases = [
            padded[(slice(None), *(slice(p, None, int(b)) for p, b in zip(offset, blocks, strict=True)))]
            for offset in np.ndindex(*blocks)
        ]
        return [np.concatenate(phases)]


@op("BATCH_TO_SPACE_ND")
class BatchToSpaceND(BatchSpace):
    """Merges one image for each position within the blocks into one image, and crops its borders."""

    cases = (
        Case(((6, 4, 2, 3), ints(2, 3), ints((0, 0), (0, 0)))),
        Case(((12, 3, 4, 17), ints(3, 2), ints((1, 0), (2, 2)))),
        Case(((8, 6, 3), ints(4), ints((1, 1)))),
        Case((Fed((4, 4, 4, 1), "int64"), ints(2, 2), ints((0, 0), (0, 0)))),
    )

    def _division(self, call: Call) -> Iterator[str]:
        blocks, shape = call.integers(1), call.shape(0)
        left = zip(shape[1:], blocks, self.borders(call)[1:], strict=False)
        if shape[0] % prod(blocks) or any(sum(borders) >= size * block for size, block, borders in left):
            cut = list(call.integers(2))
            yield f"{self.name}: blocks of {list(blocks)} with borders of {cut} do not fit {list(shape)}."

    @staticmethod
    def _shape_of(shape: Shape, blocks: Shape, borders: Margins) -> Shape:
        batch, *space = shape
        outer = (size * block for size, block in zip(space, blocks, strict=False))
        whole = (batch // prod(blocks), *outer, *space[len(blocks) :])
        return widened(whole, [(-before, -after) for before, after in borders])

    def lowering(self, call: Call) -> Lowering:
        shape, blocks, borders = call.shape(0), call.integers(1), self.borders(call)
        count, rank, dtype = len(blocks), len(shape), call.output.dtype
        apart = (*blocks, shape[0] // prod(blocks), *shape[1:])
        axes = (axis for k in range(count) for axis in (count + 1 + k, k))
        source = reordered(call.index(0), apart, (count, *axes, *range(2 * count + 1, rank + count)), dtype)
        if not any(map(any, borders)):
            return source
        whole = view(source, self._shape_of(shape, blocks, [(0, 0)] * rank), dtype)
        starts = tuple(before for before, _ in borders)
        return moved(whole, IndexMap.along(*range(rank), starts=starts))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, blocks, borders = given(arrays)
        shape, steps = data.shape, tuple(map(int, blocks))
        whole = np.empty(self._shape_of(shape, steps, [(0, 0)] * data.ndim), data.dtype)
        for number, offset in enumerate(np.ndindex(*steps)):
            batch = slice(number * len(whole), (number + 1) * len(whole))
            whole[(slice(None), *(slice(p, None, b) for p, b in zip(offset, steps, strict=True)))] = data[batch]
        cut = (slice(before, whole.shape[a + 1] - after) for a, (before, after) in enumerate(borders.tolist()))
        return [whole[(slice(None), *cut)]]
