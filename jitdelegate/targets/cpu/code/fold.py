"""Folds: how elements of one type are loaded, combined and reduced to one, for the writers of Pool and Reduce."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, Function, Value, element_type, lanes_of
from jitdelegate.targets.maths.cast import cast
from jitdelegate.targets.maths.functions import apply

INITIAL = {"sum": 0.0, "mean": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}
HORIZONTAL = {"sum": "fadd", "mean": "fadd", "max": "fmax", "min": "fmin", "prod": "fmul"}
BINARY = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}
"""Kind -> the function of two integers, by its name in `ir.expr`."""
EXACT = 1 << 21
"""Sums below this have a mean in float32 whose whole part is exact."""
SHORT = 128
"""Elements of 8 bits whose sum is an int16."""
CHAINS = 4
"""Sums of floats that are added up at the same time: an addition takes as many cycles, and shorter sums round less."""
FEW = 16
"""Elements up to which sums in int16 do not pay for the conversion to int32, nor several sums of floats."""


@dataclass(frozen=True)
class Fold:
    """A reduction by `kind` ("mean", "sum", "max", "min", "prod") of elements of `dtype` to one of type `result`."""

    kind: str
    dtype: str
    result: str

    def start(self, f: Function, lanes: int) -> Value:
        """The neutral element."""
        if self.result == "float32":
            return f.constant(self.result, INITIAL[self.kind], lanes)
        return f.constant(self.result, neutral(self.kind, self.result), lanes)

    def load(self, f: Function, at: Value, lanes: int, mask: Value | None = None) -> Value:
        """Neighbouring elements in the type of the result."""
        step = ELEMENT_TYPES[self.dtype].nbytes
        return cast(f, load(f, self.dtype, at, lanes, step, mask), self.dtype, self.result)

    def combine(self, f: Function, a: Value, b: Value) -> Value:
        """One step; for bools, "max" is `or` and "min" is `and`."""
        if self.result == "float32":
            return _combine(f, self.kind, a, b)
        name = {"max": "or", "min": "and"}[self.kind] if self.result == "bool" else BINARY[self.kind]
        return apply(f, name, self.result, a, b)

    def across(self, f: Function, value: Value) -> Value:
        """All lanes of a vector reduced to one element."""
        if self.result == "float32":
            return horizontal(f, self.kind, value)
        if value.lanes == 1:
            return value
        name = {"sum": "add", "prod": "mul"}.get(self.kind, self.kind)
        if self.kind in ("max", "min"):
            sign = "s" if ELEMENT_TYPES[self.result].is_signed else "u"
            name = {"max": "or", "min": "and"}[self.kind] if self.result == "bool" else sign + self.kind
        return f.intrinsic(f"vector.reduce.{name}", element_type(value.type), value)

    def mean(self, f: Function, total: Value, count: Value | int, most: int) -> Value:
        """total / count; for integers rounded half away from zero.

        Half the count and a half are added, so that no quotient is near a whole number, and a product with the
        reciprocal, truncated, is exact.

        Args:
            most: the largest count.
        """
        if self.result == "float32":
            if isinstance(count, int):
                return total / float(count)
            return total / f.splat(f.cast("sitofp", count, FLOAT), total.lanes)
        element = ELEMENT_TYPES[self.dtype]
        largest = (max(element.maximum, -element.minimum) + 1) * most
        calculated = "float32" if largest < EXACT else "float64"
        real, size = cast(f, total, self.result, calculated), f.index(count) if isinstance(count, int) else count
        half, whole = (f.splat(cast(f, part, "int64", calculated), total.lanes) for part in (size // 2, size))
        moved = real + f.intrinsic("copysign", real.type, half + 0.5, real)
        return f.convert("fptosi", moved * (f.literal(whole.type, 1.0) / whole), f"i{total.bits}")

    def sums(self, count: int) -> Fold:
        """The fold that combines so many elements: sums of few bytes are an int16, with twice the elements a vector."""
        is_sum = self.kind in ("sum", "mean") and ELEMENT_TYPES[self.dtype].bits == 8 and self.result == "int32"
        return replace(self, result="int16") if is_sum and count <= SHORT else self

    def many(self, f: Function, count: int, load: Callable[[Fold, Value], Value], lanes: int) -> Value:
        """The reduction of load(fold, i), vectors of the fold's result, for all i < count."""

        def folded(fold: Fold, first: Value | int, count: int) -> Value:
            chains = CHAINS if fold.result == "float32" and count >= FEW else 1
            turns, left = divmod(count, chains)

            def turn(i: Value, *totals: Value) -> list[Value]:
                loads = (load(fold, i * chains + chain + first) for chain in range(chains))
                return [fold.combine(f, *pair) for pair in zip(totals, loads, strict=True)]

            totals = f.loop(turns, turn, *[fold.start(f, lanes)] * chains)
            for place in range(left):
                totals[place] = fold.combine(f, totals[place], load(fold, f.index(turns * chains + place) + first))
            return reduce(lambda a, b: fold.combine(f, a, b), totals)

        narrow, (blocks, left) = self.sums(SHORT), divmod(count, SHORT)
        if narrow == self or count < FEW:
            return folded(self, 0, count)

        def block(first: Value | int, count: int, total: Value) -> Value:
            return self.combine(f, total, cast(f, folded(narrow, first, count), narrow.result, self.result))

        total = self.start(f, lanes)
        if blocks:
            (total,) = f.loop(blocks, lambda i, total: [block(i * SHORT, SHORT, total)], total)
        return block(blocks * SHORT, left, total) if left else total


def horizontal(f: Function, kind: str, value: Value) -> Value:
    """Reduces all lanes to one float."""
    name = HORIZONTAL[kind]
    if name in ("fadd", "fmul"):
        start = f.literal(FLOAT, 0.0 if name == "fadd" else 1.0)
        suffix = f"v{lanes_of(value.type)}f32"
        f.module.declare(f"float @llvm.vector.reduce.{name}.{suffix}(float, {value.type})")
        # `reassoc` allows any order of the lanes: a tree instead of a chain.
        return f.emit(FLOAT, f"call reassoc float @llvm.vector.reduce.{name}.{suffix}({start}, {value})")
    return f.intrinsic(f"vector.reduce.{name}", FLOAT, value)


def neutral(kind: str, dtype: str) -> int:
    """The neutral element of a reduction of integers or bools."""
    if kind in ("sum", "mean", "prod"):
        return int(kind == "prod")
    if dtype == "bool":
        return int(kind == "min")
    limits = np.iinfo(dtype)
    return int(limits.min if kind == "max" else limits.max)


def _combine(f: Function, kind: str, total: Value, value: Value) -> Value:
    if kind in ("max", "min"):
        return f.maximum(total, value) if kind == "max" else f.minimum(total, value)
    return total * value if kind == "prod" else total + value


def pieces(count: int, width: int) -> list[tuple[int, int]]:
    """[(first element, elements)]: vectors for a row of `count` elements after its whole vectors of `width`.

    It is one that overlaps the vector before it, or in shorter rows two that overlap, powers of two.
    """
    if count % width == 0:
        return []
    size = min(width, 1 << count.bit_length() - 1)
    first = [(0, size)] if count < width else []
    return [*first, (count - size, size)] if count > size else first
