"""Products of bytes by the instruction that multiplies bytes but saturates sums of two products at 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.multiply.products import WORD, IntegerProducts, PairProducts, Products, sum_of_pairs

UNSIGNED_PAIRS = {16: "x86.avx512.pmaddubs.w.512", 8: "x86.avx2.pmadd.ub.sw", 4: "x86.ssse3.pmadd.ub.sw.128"}
"""Sums of int32 in a vector -> LLVM's function that multiplies uint8 by int8 and adds up neighbours."""
LARGEST = 128
"""The largest sum of two weights of one sign, whose products with two uint8 fit an int16."""


def plus_quads(f: Function, total: Value, data: Value, weights: Value) -> Value:
    """The sums of int32, each plus the products of four uint8 and int8, if sums of two of them fit an int16."""
    words = f.machine_call(UNSIGNED_PAIRS[total.lanes], vector(2 * total.lanes, WORD), data, weights)
    return total + sum_of_pairs(f, f.module.machine, words, f.literal(words.type, 1))


@dataclass(frozen=True)
class BytePairs(IntegerProducts):
    """Products of four bytes for steps that cannot saturate; `wide` multiplies the others.

    The data of a step are its bytes as uint8, which are 128 larger than int8, then the same as int16.
    """

    channels: ClassVar[int] = 4
    step_bytes: ClassVar[int] = 12
    turn: ClassVar[int] = 1
    multiple: ClassVar[int] = 4
    converted: ClassVar[str] = "quads"
    stored: ClassVar[str] = "int8"
    rows: ClassVar[tuple[int, ...]] = (6, 4)

    @property
    def offset(self) -> int:
        return 128 if self.is_signed else 0

    @property
    def wide(self) -> Products:
        return QuadWords(self.machine, self.is_signed)

    def panel_bytes(self, vectors: int, quads: int, singles: int) -> int:
        weights = quads * self.weight_bytes + singles * self.wide.weight_bytes
        return vectors * (self.bias_bytes + weights)

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        wide = self.wide.arranged(panel[quads:].astype(np.int16), 0)
        return np.concatenate([part.reshape(-1).view(np.uint8) for part in (panel[:quads], wide)])

    def weights(self, f: Function, at: Value) -> list[Value]:
        return [f.load(vector(4 * self.lanes, "i8"), at, self.weight_bytes)]

    def data(self, f: Function, at: Value) -> list[Value]:
        return [f.cast("bitcast", self.word(f, at), vector(4 * self.lanes, "i8"))]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        return plus_quads(f, total, data[0], weights[0])

    @classmethod
    def fits(cls, steps: np.ndarray) -> np.ndarray:
        """bool[O, steps] of weights [O, steps, 4]: whether no sum of two products saturates."""
        pairs = steps.astype(np.int16).reshape(*steps.shape[:2], 2, 2)
        sums = np.maximum(pairs, 0).sum(3), -np.minimum(pairs, 0).sum(3)
        return np.asarray((np.maximum(*sums) <= LARGEST).all(2))


@dataclass(frozen=True)
class QuadWords(PairProducts):
    """Products of four int16 that follow the same as bytes: of the first two channels, then of the others."""

    step_bytes: ClassVar[int] = 12
    stored: ClassVar[str] = "int16"

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        return panel.reshape(len(panel), -1, self.lanes, 2, 2).transpose(0, 1, 3, 2, 4)

    def weights(self, f: Function, at: Value) -> list[Value]:
        half = self.weight_bytes // 2
        return [f.load(vector(2 * self.lanes, WORD), at + place, half) for place in (0, half)]

    def data(self, f: Function, at: Value) -> list[Value]:
        return [self.pair(f, at + place) for place in (4, 8)]
