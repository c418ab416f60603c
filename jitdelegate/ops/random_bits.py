"""STABLEHLO_RNG_BIT_GENERATOR: random bits from a state that the caller keeps."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Expr, binary
from jitdelegate.ir.forms import Concat, IndexMap, Map
from jitdelegate.ir.random_bits import PAIRS, WORD, RandomBits
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, Shape
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.registry import Lowering, Op, moved, op, view

ALGORITHMS = {"DEFAULT": "philox", "PHILOX": "philox", "THREEFRY": "threefry"}
WIDE = 64
COLUMNS = 1 << 10
"""Counters in a row: the number of a counter is a row's number plus a column's."""


@op("STABLEHLO_RNG_BIT_GENERATOR")
class StablehloRngBitGenerator(Op):
    """The state with its counter moved on, and bits of Threefry or Philox, as the option `algorithm` says. The state
    holds a key, a counter and, for Philox, perhaps the upper half of the counter, which else is the key."""

    types = ("uint64",)
    results: ClassVar = {1: ("int32", "uint32", "int64", "uint64")}

    def outputs(self, call: Call) -> int:
        return 2

    def foldable(self, call: Call) -> bool:
        """A file holds few states, and the bits would be many."""
        return False

    def problems(self, call: Call) -> Iterator[str]:
        name, shape = call.option("algorithm", "DEFAULT"), call.shape(0)
        if shape != (2,) and (shape != (3,) or ALGORITHMS.get(name) != "philox"):
            yield f"{self.name} of the algorithm {name} with a state of shape {list(shape)}."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return call.shape(0), call.outputs[1].shape

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        shape, dtype = call.outputs[1].shape, call.outputs[1].dtype
        parts = WIDE // ELEMENT_TYPES[dtype].bits
        pairs = -(-prod(shape) // parts)
        blocks = -(-pairs // self._pairs(call))
        made = self._bits(call, blocks)
        whole = (blocks * self._pairs(call), parts)
        bits: Expr = Cast(X if parts == 1 else binary("shift_right", X, Y), dtype)
        distances = np.arange(parts, dtype=np.int64) * WORD
        words = mapped(bits, (made, (whole[0], 1)), (distances, (parts,)), shape=whole, dtype=dtype)
        flat: Lowering = view(words, (prod(whole),), dtype)
        if prod(whole) != prod(shape):
            flat = moved(flat, IndexMap.along(0), (prod(shape),), dtype)
        steps = np.array([0, blocks, 0][: call.shape(0)[0]], np.int64)
        state = call.shape(0)
        moved_on = mapped(
            Cast(Cast(X, "int64") + Y, "uint64"), (call.index(0), state), (steps, state), shape=state, dtype="uint64"
        )
        return moved_on, view(flat, shape, dtype)

    @staticmethod
    def _pairs(call: Call) -> int:
        return PAIRS[ALGORITHMS[call.option("algorithm", "DEFAULT")]]

    def _bits(self, call: Call, blocks: int) -> Lowering:
        """All pairs of words, int64[pairs, 1]."""
        generator, columns = ALGORITHMS[call.option("algorithm", "DEFAULT")], min(blocks, COLUMNS)
        rows = -(-blocks // columns)
        numbers = np.arange(rows, dtype=np.int64) * columns, np.arange(columns, dtype=np.int64)
        own = [IndexMap((-1,), (place,), (1,)) for place in (0, 1, (2 if call.shape(0)[0] == 3 else 0))]
        accesses = (*own, IndexMap.along(0), IndexMap.along(1))
        key, counter, more = (Cast(Arg(place), "int64") for place in range(3))
        inputs: tuple[int | np.ndarray, ...] = (*[call.index(0)] * 3, *numbers)
        shape, count = (rows, columns, 1), self._pairs(call)
        parts = tuple(
            Lowering(
                Map(RandomBits(generator, pair, key, counter + Arg(3) + Arg(4), more), accesses), inputs, shape, "int64"
            )
            for pair in range(count)
        )
        joined = parts[0] if count == 1 else Lowering(Concat(axis=2), parts, (rows, columns, count), "int64")
        every = view(joined, (rows * columns * count, 1), "int64")
        wanted = (blocks * count, 1)
        return every if every.shape == wanted else moved(every, IndexMap.along(0, 1), wanted, "int64")
