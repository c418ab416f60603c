"""Products of bytes where one instruction multiplies int16 and adds up neighbours, but none multiplies bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.multiply.products import WORD, IntegerProducts, Products, sum_of_pairs, words


@dataclass(frozen=True)
class WordPairs(IntegerProducts):
    """Products of two bytes, both of which are stored as int16."""

    channels: ClassVar[int] = 2
    multiple: ClassVar[int] = 2
    stored: ClassVar[str] = "int16"
    converted: ClassVar[str] = "int16"
    rows: ClassVar[tuple[int, ...]] = (6, 4, 3, 2)

    @property
    def few(self) -> Products:
        return FewPairs(self.machine)

    def weights(self, f: Function, at: Value) -> list[Value]:
        return [f.load(vector(2 * self.lanes, WORD), at, self.weight_bytes)]

    def data(self, f: Function, at: Value) -> list[Value]:
        return [self.pair(f, at)]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        return total + sum_of_pairs(f, self.machine, data[0], weights[0])


@dataclass(frozen=True)
class FewPairs(WordPairs):
    """The same for few pixels, which wait for the weights: these are stored as int8."""

    stored: ClassVar[str] = "int8"

    def weights(self, f: Function, at: Value) -> list[Value]:
        return [words(f, at, self.weight_bytes)]
