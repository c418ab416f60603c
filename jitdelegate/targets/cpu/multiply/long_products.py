"""Products of integers by instructions whose results are twice as wide as the factors (NEON's smull, smlal, sadalp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jitdelegate.base.targets import Level
from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.multiply.products import BYTE, WORD, IntegerProducts, WordProducts, words

SIGN_BITS = -0x7F80
"""The sign bits of two bytes."""
LEAST = -128
"""A weight of which two have products with bytes whose sum may not fit an int16."""
ADD_PAIRS = "aarch64.neon.saddlp.v4i32.v8i16"
"""LLVM's function that adds neighbours."""


@dataclass(frozen=True)
class LongBytes(IntegerProducts):
    """Products of four bytes, which are int16; neighbours are added to an int32.

    The weights of a step are those of two channels for all outputs, then those of the other two.
    """

    channels: ClassVar[int] = 4
    multiple: ClassVar[int] = 4
    stored: ClassVar[str] = "int8"
    takes_lanes: ClassVar[bool] = True
    rows: ClassVar[tuple[int, ...]] = (8, 5, 3, 2)

    @property
    def speed(self) -> int:
        return 2

    @property
    def offset(self) -> int:
        return 0 if self.is_signed else LEAST

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        return panel.reshape(len(panel), _vectors(panel, self), self.lanes, 2, 2).swapaxes(2, 3)

    def as_stored(self, f: Function, step: Value, dtype: str) -> Value:
        pairs = f.cast("bitcast", super().as_stored(f, step, dtype), vector(2 * self.lanes, WORD))
        return f.cast("bitcast", _by_part(f, pairs), step.type)

    def weights(self, f: Function, at: Value) -> list[Value]:
        half = self.weight_bytes // 2
        return [f.load(vector(half, BYTE), at + place, half) for place in (0, half)]

    def data(self, f: Function, at: Value) -> list[Value]:
        pairs = (f.splat(self._signed(f.load(WORD, at + place, 1)), self.lanes) for place in (0, 2))
        return [_bytes(f, pair) for pair in pairs]

    def turn_data(self, f: Function, at: Value) -> Value:
        return self._signed(f.load(vector(2 * self.lanes, WORD), at, 1))

    def lane_data(self, f: Function, turn: Value, step: int) -> list[Value]:
        return [_bytes(f, f.shuffle(turn, turn, [2 * step + part] * self.lanes)) for part in (0, 1)]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        for product in _products(f, data, weights, WORD):
            total = total + f.machine_call(ADD_PAIRS, total.type, product)
        return total

    def _signed(self, pairs: Value) -> Value:
        return pairs ^ SIGN_BITS if self.offset else pairs


@dataclass(frozen=True)
class LongQuads(LongBytes):
    """The same for weights above LEAST: the products of two channels are added as int16."""

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        first, second = _products(f, data, weights, WORD)
        return total + f.machine_call(ADD_PAIRS, total.type, first + second)


@dataclass(frozen=True)
class LongWords(WordProducts):
    """Products of two int16. The weights of a step are those of one channel for all outputs, then those of the other
    one."""

    takes_lanes: ClassVar[bool] = True
    rows: ClassVar[tuple[int, ...]] = (8, 8, 6, 4)

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        return panel.reshape(len(panel), _vectors(panel, self), self.lanes, 2).swapaxes(2, 3)

    def as_stored(self, f: Function, step: Value, dtype: str) -> Value:
        return _by_part(f, super().as_stored(f, step, dtype))

    def weights(self, f: Function, at: Value) -> list[Value]:
        both = words(f, at, self.weight_bytes)
        return [f.part(both, first, self.lanes) for first in (0, self.lanes)]

    def data(self, f: Function, at: Value) -> list[Value]:
        return [f.splat(f.load(WORD, at + place, 2), self.lanes) for place in (0, 2)]

    def turn_data(self, f: Function, at: Value) -> Value:
        return f.load(vector(2 * self.lanes, WORD), at, 2)

    def lane_data(self, f: Function, turn: Value, step: int) -> list[Value]:
        return [f.shuffle(turn, turn, [2 * step + part] * self.lanes) for part in (0, 1)]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        for product in _products(f, data, weights, "i32"):
            total = total + product
        return total


def byte_products(machine: Level, least: int, *, is_signed: bool) -> LongBytes:
    """Products of bytes by weights of at least so much."""
    return (LongQuads if least > LEAST else LongBytes)(machine, is_signed)


def _products(f: Function, data: Sequence[Value], weights: Sequence[Value], element: str) -> list[Value]:
    """The products of each part, twice as wide."""
    return [f.convert("sext", a, element) * f.convert("sext", b, element) for a, b in zip(data, weights, strict=True)]


def _vectors(panel: np.ndarray, products: IntegerProducts) -> int:
    """The vectors of a panel [steps, outputs, channels], which may have no steps."""
    outputs: int = panel.shape[1]
    return outputs // products.lanes


def _by_part(f: Function, step: Value) -> Value:
    """The even elements, then the odd ones."""
    return f.shuffle(step, step, [*range(0, step.lanes, 2), *range(1, step.lanes, 2)])


def _bytes(f: Function, pairs: Value) -> Value:
    """Pairs of bytes as bytes."""
    return f.cast("bitcast", pairs, vector(2 * pairs.lanes, BYTE))
