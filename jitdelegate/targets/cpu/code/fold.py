"""Folds: how elements of one type are loaded, combined and reduced to one, for the writers of Pool and Reduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from jitdelegate.base.targets import Level
from jitdelegate.ir.combiners import COMBINERS, A, B, Combiner
from jitdelegate.ir.expr import Apply
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, FLOAT_BYTES, Function, Value, element_type
from jitdelegate.targets.maths.cast import cast
from jitdelegate.targets.maths.expression import emit

HORIZONTAL = ("add", "mul", "max", "min", "and", "or")
"""Functions that LLVM applies to all lanes of a vector."""
EXACT = 1 << 21
"""Sums below this have a mean in float32 whose whole part is exact."""
SHORT = 128
"""Elements of 8 bits whose sum is an int16."""
CHAINS = 4
"""Sums of floats that are added up at the same time: an addition takes as many cycles, and shorter sums round less."""
SUMS, MANY_SUMS = 8, 16
"""Registers of sums for which there is room, and with AVX-512, which has twice as many registers."""
FEW = 16
"""Elements up to which sums in int16 do not pay for the conversion to int32, nor several sums of floats."""


@dataclass(frozen=True)
class Fold:
    """A reduction by `kind`, a key of COMBINERS, of elements of `dtype` to one of type `result`."""

    kind: str
    dtype: str
    result: str

    @property
    def combiner(self) -> Combiner:
        return COMBINERS[self.kind]

    def start(self, f: Function, lanes: int) -> Value:
        """The identity."""
        return f.constant(self.result, self.combiner.identity_of(self.result), lanes)

    def load(self, f: Function, at: Value, lanes: int, mask: Value | None = None) -> Value:
        """Neighbouring elements in the type of the result."""
        step = ELEMENT_TYPES[self.dtype].nbytes
        return cast(f, load(f, self.dtype, at, lanes, step, mask), self.dtype, self.result)

    def combine(self, f: Function, a: Value, b: Value) -> Value:
        """One step."""
        return emit(f, self.combiner.step_of(self.result), (a, b), (self.result, self.result))

    def across(self, f: Function, value: Value) -> Value:
        """All lanes of a vector reduced to one element."""
        if value.lanes == 1:
            return value
        step = self.combiner.step_of(self.result)
        if isinstance(step, Apply) and step.function in HORIZONTAL and step.arguments == (A, B) and not value.is_float:
            return self._across_at_once(f, step.function, value)
        half = value.lanes // 2
        return self.across(f, self.combine(f, f.part(value, 0, half), f.part(value, half, half)))

    def _across_at_once(self, f: Function, name: str, value: Value) -> Value:
        """All lanes of integers reduced by LLVM's function."""
        prefix = "us"[ELEMENT_TYPES[self.result].is_signed] if name in ("max", "min") else ""
        return f.intrinsic(f"vector.reduce.{prefix}{name}", element_type(value.type), value)

    def finished(self, f: Function, total: Value, count: Value | int, most: int) -> Value:
        """The result for `count` combined elements, at most `most`."""
        return self._mean(f, total, count, most) if self.combiner.mean_of else total

    def _mean(self, f: Function, total: Value, count: Value | int, most: int) -> Value:
        """total / count; for integers rounded half away from zero.

        Half the count and a half are added, so that no quotient is near a whole number, and a product with the
        reciprocal, truncated, is exact.
        """
        if self.result == "float32":
            if isinstance(count, int):
                return total * (1 / count)
            return total * f.splat(1.0 / f.cast("sitofp", count, FLOAT), total.lanes)
        element = ELEMENT_TYPES[self.dtype]
        largest = (max(element.maximum, -element.minimum) + 1) * most
        calculated = "float32" if largest < EXACT else "float64"
        real, size = cast(f, total, self.result, calculated), f.index(count) if isinstance(count, int) else count
        half, whole = (f.splat(cast(f, part, "int64", calculated), total.lanes) for part in (size // 2, size))
        moved = real + f.intrinsic("copysign", real.type, half + 0.5, real)
        return f.convert("fptosi", moved * (f.literal(whole.type, 1.0) / whole), f"i{total.bits}")

    def sums(self, count: int) -> Fold:
        """The fold that combines so many elements: sums of few bytes are an int16, with twice the elements a vector."""
        is_sum = self.combiner.adds and ELEMENT_TYPES[self.dtype].bits == 8 and self.result == "int32"
        return replace(self, result="int16") if is_sum and count <= SHORT else self

    def vectors_at_once(self, count: int, lanes: int, machine: Level) -> int:
        """Most vectors of `lanes` elements that `many` should reduce at the same time, for sums of `count` elements."""
        sums = self.sums(SHORT) if count >= FEW else self
        registers = lanes * ELEMENT_TYPES[sums.result].nbytes / (machine.lanes * FLOAT_BYTES)
        return max(1, int(_most_sums(machine) / (2 * registers)))

    def many(
        self, f: Function, count: int, load: Callable[[Fold, Value, int], Value], lanes: int, vectors: int = 1
    ) -> list[Value]:
        """For each number of a vector, the reduction of load(fold, i, number), vectors of the fold's result, for all
        i < count."""
        most = _most_sums(f.module.machine)

        def folded(fold: Fold, first: Value | int, count: int) -> list[Value]:
            chains = max(1, min(CHAINS, most // vectors)) if fold.result == "float32" and count >= FEW else 1
            turns, left = divmod(count, chains)

            def combined(totals: Sequence[Value], at: Value) -> list[Value]:
                return [fold.combine(f, total, load(fold, at, number)) for number, total in enumerate(totals)]

            def turn(i: Value, *totals: Value) -> list[Value]:
                starts = range(0, len(totals), vectors)
                parts = [combined(totals[k : k + vectors], i * chains + k // vectors + first) for k in starts]
                return [total for part in parts for total in part]

            totals = f.loop(turns, turn, *[fold.start(f, lanes)] * (chains * vectors))
            for chain in range(left):
                part = slice(chain * vectors, (chain + 1) * vectors)
                totals[part] = combined(totals[part], f.index(turns * chains + chain) + first)
            return [reduce(partial(fold.combine, f), totals[number::vectors]) for number in range(vectors)]

        narrow, (blocks, left) = self.sums(SHORT), divmod(count, SHORT)
        if narrow == self or count < FEW:
            return folded(self, 0, count)

        def block(first: Value | int, count: int, totals: Sequence[Value]) -> list[Value]:
            parts = (cast(f, part, narrow.result, self.result) for part in folded(narrow, first, count))
            return [self.combine(f, *pair) for pair in zip(totals, parts, strict=True)]

        totals = [self.start(f, lanes)] * vectors
        if blocks:
            totals = f.loop(blocks, lambda i, *totals: block(i * SHORT, SHORT, totals), *totals)
        return block(blocks * SHORT, left, totals) if left else totals


def _most_sums(machine: Level) -> int:
    return MANY_SUMS if machine.avx512_lanes else SUMS


def pieces(count: int, width: int) -> list[tuple[int, int]]:
    """[(first element, elements)]: vectors for a row of `count` elements after its whole vectors of `width`.

    It is one that overlaps the vector before it, or in shorter rows two that overlap, powers of two.
    """
    if count % width == 0:
        return []
    size = min(width, 1 << count.bit_length() - 1)
    first = [(0, size)] if count < width else []
    return [*first, (count - size, size)] if count > size else first
