"""Products of floats as bfloat16, two by one instruction, which adds them to a float32.

The instruction rounds sums to nearest even, and takes denormals for zeros, in data, weights and sums. Data and weights
each have a relative error of at most 2**-8, so the error of a sum is at most 2**-7 of the sum of its absolute products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jitdelegate.ir.bfloat16 import bfloat16_bits, bfloat16_numbers
from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.maths.cast import cast


@dataclass(frozen=True)
class BfloatPairs(Products):
    """Products of two bfloat16."""

    channels: ClassVar[int] = 2
    multiple: ClassVar[int] = 2
    is_exact: ClassVar[bool] = True
    converted: ClassVar[str] = "bfloat16"
    stored: ClassVar[str] = "uint16"
    half_type: ClassVar[str] = ""

    @property
    def speed(self) -> int:
        return 2

    @property
    def pairs(self) -> str:
        """The type of a vector of pairs."""
        return vector(2 * self.lanes, "bfloat")

    def padded(self, filters: np.ndarray, count: int) -> np.ndarray:
        half = bfloat16_bits(bfloat16_numbers(filters[:, :, -2:-1]) / 2)
        return np.concatenate([filters[:, :, :-2], half, half, filters[:, :, -1:]], axis=2)

    def as_stored(self, f: Function, step: Value, dtype: str) -> Value:
        return cast(f, step, dtype, self.converted)

    def weights(self, f: Function, at: Value) -> list[Value]:
        return [f.load(self.pairs, at, self.weight_bytes)]

    def data(self, f: Function, at: Value) -> list[Value]:
        return [f.cast("bitcast", f.splat(f.load("i32", at, 2), self.lanes), self.pairs)]

    def turn_data(self, f: Function, at: Value) -> Value:
        return f.load(self.pairs, at, 2)

    def lane_data(self, f: Function, turn: Value, step: int) -> list[Value]:
        return [f.shuffle(turn, turn, [2 * step, 2 * step + 1] * self.lanes)]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        factors = (*weights, *data) if self.machine.multiplies_by_lane else (*data, *weights)  # the last may be a lane
        return f.machine_call(self.machine.plus_bfloats.format(32 * self.lanes), total.type, total, *factors)
