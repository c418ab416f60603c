"""Bits of counter-based random number generators, with whole numbers alone.

Each generator is written once, over an `Arithmetic` of int64: `evaluate` runs it on arrays, and targets emit it.

Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011: Threefry-2x32 of twenty rounds and
Philox-4x32 of ten, with the constants of Random123.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from jitdelegate.ir.expr import Expr

V = TypeVar("V", bound=Any)
WORD, LOW = 32, (1 << 32) - 1
PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
GROUPS, ROUNDS = 5, 10
"""Of Threefry, groups of four rounds; rounds of Philox."""
MULTIPLIERS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


class Arithmetic(Protocol[V]):
    """Operations on int64, which wrap, beside + * & ^, which values have themselves."""

    def ashr(self, value: V, distance: int) -> V:
        """value / 2**distance, rounded down."""


def _words(m: Arithmetic[V], pair: V) -> tuple[V, V]:
    """The lower and the upper 32 bits, as numbers from 0 on."""
    return pair & LOW, m.ashr(pair, WORD) & LOW


def threefry(m: Arithmetic[V], key: V, counter: V, more: V) -> tuple[V, ...]:
    """One pair of words for a key and a counter of two words each."""
    keys = [*_words(m, key)]
    keys.append(keys[0] ^ keys[1] ^ PARITY)
    a, b = ((word + own) & LOW for word, own in zip(_words(m, counter), keys, strict=False))
    for group in range(GROUPS):
        for distance in ROTATIONS[group % 2]:
            a = (a + b) & LOW
            b = ((b * (1 << distance) + m.ashr(b, WORD - distance)) & LOW) ^ a
        a = (a + keys[(group + 1) % 3]) & LOW
        b = (b + keys[(group + 2) % 3] + (group + 1)) & LOW
    return (b * (1 << WORD) + a,)


def philox(m: Arithmetic[V], key: V, counter: V, more: V) -> tuple[V, ...]:
    """Two pairs of words for a key of two words and a counter of four, the upper two of which are `more`."""
    first, second = _words(m, key)
    a, b, c, d = *_words(m, counter), *_words(m, more)
    for _ in range(ROUNDS):
        (low, high), (lower, higher) = (
            _words(m, word * factor) for word, factor in zip((a, c), MULTIPLIERS, strict=True)
        )
        a, b, c, d = higher ^ b ^ first, lower, high ^ d ^ second, low
        first, second = ((own + step) & LOW for own, step in zip((first, second), STEPS, strict=True))
    return b * (1 << WORD) + a, d * (1 << WORD) + c


GENERATORS: Mapping[str, Callable[[Any, Any, Any, Any], tuple[Any, ...]]] = {"threefry": threefry, "philox": philox}
PAIRS = {"threefry": 1, "philox": 2}
"""Pairs of words that a generator makes at once."""


class Arrays:
    """Arithmetic of int64 arrays."""

    def ashr(self, value: np.ndarray, distance: int) -> np.ndarray:
        return np.asarray(value >> distance)


@dataclass(frozen=True, slots=True)
class RandomBits(Expr):
    """A pair of words of a generator, an int64.

    Attributes:
        generator: a name of GENERATORS.
        pair: which of its pairs.
        key, counter, more: int64.
    """

    part_names: ClassVar[tuple[str, ...]] = ("key", "counter", "more")
    generator: str
    pair: int
    key: Expr
    counter: Expr
    more: Expr

    def __str__(self) -> str:
        return f"{self.generator}.{self.pair}({self.key}, {self.counter}, {self.more})"

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        return ("int64",) * len(found)

    def type_of(self, part_types: Sequence[str]) -> str:
        return "int64"

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        with np.errstate(over="ignore"):
            return GENERATORS[self.generator](Arrays(), *parts)[self.pair]
