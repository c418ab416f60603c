"""StableHLO's operators on single elements, and paddings between elements, where LiteRT runs them by StableHLO's names.

Source: https://openxla.org/stablehlo/spec, and LiteRT's kernels, which take stored numbers whatever they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import binary, maximum, minimum
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case, Fed, ints, named, pairs
from jitdelegate.ops.padding import Margins, padded, value_problems, widened
from jitdelegate.ops.pointwise import Pointwise, X, Y, computed, pointwise
from jitdelegate.ops.registry import ANY, MAX_RANK, NATIVE, QUANTIZED, Lowering, Op, op, view


class StablehloElementwise(Pointwise):
    """Operands have one shape. Integers wrap, and of truth values any number but 0 is true."""

    least = most = 2
    types: ClassVar[tuple[str, ...]] = NATIVE
    quantized = QUANTIZED
    cases: ClassVar[tuple[Case, ...]] = pairs(
        (3, 17), ("float32", "int32", "int64", "bool", "int8", "int16"), -150, 150
    )

    def problems(self, call: Call) -> Iterator[str]:
        a, b = call.shape(0), call.shape(1)
        if a != b:
            yield f"{self.name}: the shapes {list(a)} and {list(b)} differ."

    def lowering(self, call: Call) -> Lowering:
        return pointwise(computed(self.formula, call.output.dtype), call)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return super().reference(arrays, attrs)


@op("STABLEHLO_ADD")
class StablehloAdd(StablehloElementwise):
    """y = a + b"""

    formula = X + Y


@op("STABLEHLO_MULTIPLY")
class StablehloMultiply(StablehloElementwise):
    """y = a * b"""

    formula = X * Y


@op("STABLEHLO_MAXIMUM")
class StablehloMaximum(StablehloElementwise):
    """y = the larger of a and b"""

    formula = maximum(X, Y)


@op("STABLEHLO_MINIMUM")
class StablehloMinimum(StablehloElementwise):
    """y = the smaller of a and b"""

    formula = minimum(X, Y)


@op("STABLEHLO_AND")
class StablehloAnd(StablehloElementwise):
    """y = the bits that are set in a and in b"""

    types = ("int32", "int64", "bool", "int8", "uint8", "int16", "uint16", "uint32")
    cases = pairs((3, 17), types[:-2], -150, 150)
    formula = binary("and", X, Y)


@op("STABLEHLO_SHIFT_LEFT")
class StablehloShiftLeft(StablehloElementwise):
    """y = a shifted left by b bits; 0 where b is negative, or no less than the number of bits"""

    types = ("int8", "int16", "int32")
    cases = pairs((5, 17), types, 0, 7)
    formula = binary("shift_left", X, Y)


class Spread(Op):
    """The data with the value of an operand between its elements, and before and after them; a negative number
    of elements cuts them off."""

    types: ClassVar[tuple[str, ...]] = ANY
    quantized = QUANTIZED
    value: ClassVar[int] = 1
    """The operand with the value in between."""

    def edges(self, call: Call) -> Margins:
        """(before, after) for every axis."""
        raise NotImplementedError

    def steps(self, call: Call) -> Shape:
        """For every axis, one more than the number of elements between two elements of the data."""
        raise NotImplementedError

    def problems(self, call: Call) -> Iterator[str]:
        rank, edges, steps = len(call.shape(0)), self.edges(call), self.steps(call)
        if not rank or len(edges) != rank or len(steps) != rank or min(steps, default=1) < 1:
            yield f"{self.name}: its {len(steps)} numbers of elements do not fit the shape {list(call.shape(0))}."
            return
        if min(self.shape(call)) < 1:
            yield f"{self.name} of {list(call.shape(0))} leaves {list(self.shape(call))}."
        apart = rank + sum(step > 1 for step in steps)
        if apart > MAX_RANK:
            yield f"{self.name}: {rank} axes, with elements in between along {apart - rank}, are too many."
        yield from value_problems(call, self.value)

    def shape(self, call: Call) -> Shape:
        return widened(_spread(call.shape(0), self.steps(call)), self.edges(call))

    def lowering(self, call: Call) -> Lowering:
        """Along an axis with elements in between, each element becomes a row, of which only the first is data."""
        shape, dtype, steps = call.shape(0), call.output.dtype, self.steps(call)
        source: int | Lowering = call.index(0)
        if set(steps) != {1}:
            pairs = zip(shape, steps, strict=True)
            rows = tuple(chain.from_iterable((size, 1) if step > 1 else (size,) for size, step in pairs))
            margins = ([(0, 0), (0, step - 1)] if step > 1 else [(0, 0)] for step in steps)
            between = list(chain.from_iterable(margins))
            source = padded(call, view(source, rows, dtype), rows, between, self.value)
            shape = tuple(size * step for size, step in zip(shape, steps, strict=True))
            source = view(source, shape, dtype)
        edges = [(before, after - step + 1) for (before, after), step in zip(self.edges(call), steps, strict=True)]
        return padded(call, source, shape, edges, self.value)

    @staticmethod
    def spread(data: np.ndarray, value: Any, edges: Margins, steps: Shape) -> np.ndarray:
        """The reference."""
        out = np.full(_spread(data.shape, steps), value, data.dtype)
        out[tuple(slice(None, None, step) for step in steps)] = data
        out = np.pad(out, [(max(before, 0), max(after, 0)) for before, after in edges], constant_values=value)
        cuts = zip(out.shape, edges, strict=True)
        return out[tuple(slice(max(-before, 0), size - max(-after, 0)) for size, (before, after) in cuts)]


def _spread(shape: Shape, steps: Shape) -> Shape:
    return tuple((size - 1) * step + 1 for size, step in zip(shape, steps, strict=True))


PADDINGS = ("edge_padding_low", "edge_padding_high", "interior_padding")


@op("STABLEHLO_PAD")
class StablehloPad(Spread):
    """The numbers of elements are options."""

    least = most = 2
    cases = (
        Case(((2, 5, 3), np.array(1.5, np.float32)), named(PADDINGS, (1, 0, 2), (0, 3, 1), (0, 0, 0))),
        Case(((2, 5, 3), np.array(1.5, np.float32)), named(PADDINGS, (1, -2, 0), (-1, 3, 1), (2, 0, 1))),
        Case(((4, 5), np.array([1.5], np.float32)), named(PADDINGS, (-2, -3), (-1, -4), (2, 3))),
        Case(((4, 5), ()), named(PADDINGS, (1, -1), (2, 0), (0, 3))),
        Case((Fed((7,), "int64"), Fed((), "int64")), named(PADDINGS, (-4,), (2,), (2,))),
        Case((Fed((2, 3), "int8"), np.array(7, np.int8)), named(PADDINGS, (0, 1), (1, 0), (1, 1))),
    )

    def edges(self, call: Call) -> Margins:
        return self._edges(call.node.attrs)

    def steps(self, call: Call) -> Shape:
        return self._steps(call.node.attrs)

    @staticmethod
    def _edges(attrs: Mapping[str, Any]) -> Margins:
        low, high = (tuple(map(int, attrs.get(name) or ())) for name in PADDINGS[:2])
        return list(zip(low, high, strict=False))

    @staticmethod
    def _steps(attrs: Mapping[str, Any]) -> Shape:
        return tuple(1 + int(count) for count in attrs.get(PADDINGS[2]) or ())

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, value = given(arrays)
        return [self.spread(data, value.flat[0], self._edges(attrs), self._steps(attrs))]


@op("DILATE")
class Dilate(Spread):
    """The second operand holds, for every axis, one more than the number of elements in between."""

    least = most = 3
    parameters = (1,)
    parameter_types = ("int32",)
    value = 2
    cases = (
        Case(((3, 5), ints(2, 3), np.array(-1, np.float32))),
        Case(((2, 3, 4), ints(1, 4, 1), ())),
        Case((Fed((2, 3), "int8"), ints(1, 2), np.array(7, np.int8))),
    )

    def edges(self, call: Call) -> Margins:
        return [(0, 0)] * len(call.shape(0))

    def steps(self, call: Call) -> Shape:
        return call.integers(1)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, steps, value = given(arrays)
        return [self.spread(data, value.flat[0], [(0, 0)] * data.ndim, tuple(steps.tolist()))]
