"""Operators that reduce whole axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, clamp
from jitdelegate.ir.forms import IndexMap, Map, Reduce, View
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.quantized import half_away, quantize, rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, Shape, given, scale, zero
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.pointwise import X, mapped
from jitdelegate.ops.quantization import (
    FIXED,
    SIXTEEN,
    centred,
    factor_problems,
    limits,
    multiple,
    multiplier,
    per_tensor_problems,
    plus,
    reach,
    result_problems,
    same_scale_problems,
    tensor_problems,
)
from jitdelegate.ops.registry import BOOLEANS, BYTES, HALF, MAX_PARTS, NUMBERS, Lowering, Op, cast, op, view
from jitdelegate.ops.rounding import AWAY, EVEN, FUSED, SIXTEENS, UP, WIDE, rounding
from jitdelegate.ops.shape import axis_problems, reordered

MOST_LEFT = 30
"""Most bits by which LiteRT shifts an int32 to the left to some purpose."""
AT_ONCE = 32
"""Most factors of a product of quantized numbers in one kernel."""


class Reduction(Op):
    """Operands (data, axes); negative axes count from the end; the option `keep_dims` keeps reduced axes, with size
    1."""

    least = most = 2
    parameters = (1,)
    types: ClassVar[tuple[str, ...]] = NUMBERS
    kind: ClassVar[str]
    function: ClassVar[Callable[..., Any]]
    cases: ClassVar[tuple[Case, ...]] = (
        Case(((1, 7, 7, 17), ints(1, 2)), {"keep_dims": False}),
        Case(((2, 4, 5, 6), ints(1, 2)), {"keep_dims": True}),
        Case(((2, 4, 5, 6), ints(-1)), {"keep_dims": True}),
        Case(((2, 4, 5, 6), ints(3, -4)), {"keep_dims": False}),
        Case(((3, 5), ints(0)), {"keep_dims": False}),
        Case(((2, 3, 4), ints(0, 1, 2)), {"keep_dims": False}),
        Case(((2, 3, 4), np.array(1, np.int32)), {"keep_dims": False}),
        Case(((2, 3, 4), np.zeros(0, np.int32)), {"keep_dims": False}),
        Case(((), np.zeros(0, np.int32)), {"keep_dims": False}),
        Case(((2, 3, 2, 4, 5), ints(1, 3)), {"keep_dims": True}),
        Case(((2, 3, 2, 2, 2, 3), ints(0, 2, 5)), {"keep_dims": False}),
    )
    whole: ClassVar[tuple[Case, ...]] = tuple(
        Case((Fed(shape, dtype), ints(*axes)), {"keep_dims": keep})
        for dtype in ("int32", "int64")
        for shape, axes, keep in (((3, 7), (1,), False), ((2, 5, 19), (0, 2), True))
    )

    def problems(self, call: Call) -> Iterator[str]:
        for axis in call.integers(1):
            yield from axis_problems(call, axis, len(call.shape(0)))

    @staticmethod
    def axes(call: Call) -> Shape:
        """The axes, counted from the front, each once, in order."""
        return tuple(sorted({axis % len(call.shape(0)) for axis in call.integers(1)})) if call.shape(0) else ()

    def shape(self, call: Call) -> Shape:
        axes, data = self.axes(call), call.shape(0)
        if call.option("keep_dims", False):
            return tuple(1 if axis in axes else size for axis, size in enumerate(data))
        return tuple(size for axis, size in enumerate(data) if axis not in axes)

    def lowering(self, call: Call) -> Lowering:
        """A view if all reduced axes have size 1, for one element is its own reduction; else a Reduce."""
        axes = self.axes(call)
        stays = all(call.shape(0)[axis] == 1 for axis in axes)
        return Lowering(View() if stays else Reduce(kind=self.kind, axes=axes), (call.index(0),))

    def count(self, call: Call) -> int:
        """The number of elements that become one."""
        return prod(call.shape(0)[axis] for axis in self.axes(call))

    def of_sum(self, call: Call, formula: Expr) -> Lowering:
        """The formula of the sums of stored numbers, which X is, in the output's type."""
        kept, accumulator = self.shape(call), ELEMENT_TYPES[call.tensor(0).dtype].accumulator
        sums = Reduce(kind="sum", axes=self.axes(call), accumulator=accumulator)
        total = Lowering(sums, (call.index(0),), kept, accumulator)
        return mapped(formula, (total, kept), shape=kept, dtype=call.output.dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, axes = given(arrays)
        chosen = tuple({int(axis) % data.ndim for axis in axes.flat})
        exact = data.astype(np.float64) if data.dtype == np.float32 else data
        result = type(self).function(exact, axis=chosen, keepdims=bool(attrs.get("keep_dims")))
        return [np.asarray(result).astype(data.dtype)]


@op("MEAN")
class Mean(Reduction):
    """The mean over the axes."""

    kind, function = "mean", np.mean
    narrow = HALF
    quantized = ("int8", "uint8", "int16")
    cases = (*Reduction.cases, *Reduction.whole)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        data, output = call.tensor(0), call.output
        if self._rule(call) == SIXTEENS:
            yield from per_tensor_problems(call, data, output)
        else:  # floats, which large results do not leave, or whole numbers that wrap
            yield from tensor_problems(call, data, output)
        left = -_mean_multiplier(self.count(call), data, output)[1]
        if self._rule(call) == AWAY and left > MOST_LEFT:
            yield f"MEAN: LiteRT shifts sums to the left by {left} bits, at most {MOST_LEFT} are supported."
        channels = call.output.shape[-1] if call.output.shape else 1
        if self._rule(call) == SIXTEENS and channels > SIXTEEN and channels % SIXTEEN:
            yield f"MEAN: LiteRT rounds the last {channels % SIXTEEN} of {channels} channels in another way."

    def _rule(self, call: Call) -> str:
        """LiteRT's optimized kernel is one for images."""
        data, rule = call.tensor(0), rounding(call, call.tensor(0).dtype)
        is_image = self.axes(call) == (1, 2) and len(data.shape) == 4 and call.option("keep_dims", False)
        return AWAY if rule == SIXTEENS and not is_image else rule

    def quantized_lowering(self, call: Call) -> Lowering:
        """The sum, then one multiple of it."""
        mean = _mean(Cast(X, "int32"), self.count(call), call.tensor(0), call.output, self._rule(call))
        return self.of_sum(call, mean)

    def lowering(self, call: Call) -> Lowering:
        """For integers, the 64-bit sum, divided and truncated towards zero."""
        axes, shape, dtype = self.axes(call), call.shape(0), call.output.dtype
        if dtype == "float32":
            return super().lowering(call)
        wide, kept = cast(call.index(0), shape, "int64"), self.shape(call)
        total = Lowering(Reduce(kind="sum", axes=axes), (wide,), kept, "int64")
        return mapped(Cast(X / prod(shape[axis] for axis in axes), dtype), (total, kept), shape=kept, dtype=dtype)


def _mean(total: Expr, count: int, data: Tensor, output: Tensor, rule: str) -> Expr:
    """The mean of `count` stored numbers with this sum, an int32, in the output's type.

    LiteRT's optimized kernel for images rounds the zero point's share apart. Its other kernels divide the multiplier by
    the count.
    """
    middle, (low, high) = zero(data), limits(output)
    if rule in (EVEN, FUSED):
        factor = scale(data) / scale(output) * (np.float32(1) / np.float32(count))
        return _even(total, count, data, output, factor, rule)
    if rule == SIXTEENS:
        offset = int(half_away(np.float32(middle) * scale(data) / scale(output)))
        m, shift = multiplier(float(scale(data) / (np.float32(count) * scale(output))))
        last = UP if output.shape[-1] >= SIXTEEN else AWAY
        rounded = rescale(total, m, shift, "int32", rounding=FIXED[last])
        return Cast(clamp(rounded + Const(zero(output) - offset), low, high), output.dtype)
    (m, right), value = _mean_multiplier(count, data, output), total - Const(middle * count)
    if right < 0 and reach(data) * count << -right >= 1 << 31:  # LiteRT's shift to the left wraps
        value, right = binary("shift_left", value, Const(-right)), 0
    rounded = rescale(value, m, 31 + right, "int32", rounding=FIXED[AWAY])
    return Cast(clamp(rounded + Const(zero(output)), low, high), output.dtype)


def _mean_multiplier(count: int, data: Tensor, output: Tensor) -> tuple[int, int]:
    """(m, right): the factor that makes a mean of a sum of `count` numbers is m / 2**(31 + right)."""
    m, shift = multiplier(float(scale(data)) / float(scale(output)))
    more = min(count.bit_length() - 1, 32, 62 - shift)
    return (m << more) // count, shift + more - 31


def _even(total: Expr, count: int, data: Tensor, output: Tensor, factor: np.float32, rule: str) -> Expr:
    """XNNPACK's multiple of a sum: it adds both zero points before it rounds, so their parity decides ties."""
    share, is_fused = np.float32(zero(data)) * np.float32(count), rule == FUSED
    offset = np.float32(zero(output)) - (np.float64(share) * factor if is_fused else share * factor)
    real = plus(Cast(total, "float32"), float(factor), Const(float(np.float32(offset))), is_fused=is_fused)
    return quantize(real, output.dtype, 0, *limits(output))


@op("SUM")
class Sum(Reduction):
    """The sum over the axes."""

    takes_empty = True
    kind, function = "sum", np.sum
    narrow = HALF
    quantized = ("int8", "uint8", "int16")
    cases = (*Reduction.cases, *Reduction.whole)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, call.tensor(0), call.output)
        if call.graph.quantized.rounding == "reference":
            yield "SUM of quantized values is not supported in the rounding of LiteRT's reference kernels."
        elif rounding(call, call.tensor(0).dtype) not in (EVEN, FUSED):
            factor = float(scale(call.tensor(0)) / scale(call.output))
            yield from result_problems(call, self.count(call) * reach(call.tensor(0)) * factor)

    def quantized_lowering(self, call: Call) -> Lowering:
        data, output, count = call.tensor(0), call.output, self.count(call)
        factor, rule = scale(data) / scale(output), rounding(call, data.dtype)
        if rule in (EVEN, FUSED):
            return self.of_sum(call, _even(Cast(X, "int32"), count, data, output, factor, rule))
        middle = np.float32(-zero(data)) * factor * np.float32(count)
        real = Cast(Cast(X, "int32"), "float32") * Const(float(factor)) + Const(float(middle))
        return self.of_sum(call, quantize(real, output.dtype, zero(output), *limits(output), "away"))


@op("REDUCE_PROD")
class ReduceProd(Reduction):
    """The product over the axes; of quantized values, rounded after each element, in order."""

    takes_empty = True
    kind, function = "prod", np.prod
    narrow = (*BYTES, "int16")
    quantized = ("int8", "int16")
    cases = (
        *(Case(case.inputs, case.attrs, low=0.9, high=1.1) for case in Reduction.cases),
        *(Case(case.inputs, case.attrs, low=1, high=3) for case in Reduction.whole),
    )

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, call.tensor(0), call.output)
        if self.count(call) < 2:
            yield "REDUCE_PROD of quantized values over axes of one element, whose results LiteRT leaves unwritten."
        factor, most = self._factor(call), float(reach(call.tensor(0)))
        yield from factor_problems(call, factor)
        if self.count(call) > MAX_PARTS:
            yield f"REDUCE_PROD: products of {self.count(call)} quantized numbers, at most {MAX_PARTS} are supported."
        with np.errstate(over="ignore"):
            yield from result_problems(call, most * float(np.float64(max(most * factor, 1)) ** (self.count(call) - 1)))

    def _factor(self, call: Call) -> float:
        """By which each step is multiplied; all of them give the input's scale to the power of the count, divided by
        the output's."""
        root: float = float(scale(call.output)) ** (1.0 / self.count(call))
        return float(scale(call.tensor(0))) / root

    def quantized_lowering(self, call: Call) -> Lowering:
        data, axes, count, kept = call.tensor(0), self.axes(call), self.count(call), self.shape(call)
        order = (*(axis for axis in range(len(data.shape)) if axis not in axes), *axes)
        shape = (prod(kept), count)
        rows = view(reordered(call.index(0), data.shape, order, data.dtype), shape, data.dtype)
        factor, whole = np.asarray(self._factor(call)), replace(call.output, dtype="int32", quant=None)
        total: Lowering | None = None
        product: Expr | None
        for start in range(0, count, AT_ONCE):
            stop = min(start + AT_ONCE, count)
            inputs, accesses, product = list[Lowering](), list[IndexMap](), None
            if total is not None:
                inputs, accesses, product = [total], [IndexMap.along(0)], Cast(X, "int64")
            for place in range(start, stop):
                number = Cast(centred(Arg(len(inputs)), data), "int64")
                inputs.append(rows)
                accesses.append(IndexMap((0, -1), (0, place), (1, 1)))
                product = number if product is None else Cast(self._scaled(product * number, factor, whole), "int64")
            assert product is not None
            result = call.output if stop == count else whole
            rounded = self._scaled(product, factor, result) if stop == count else Cast(product, whole.dtype)
            total = Lowering(Map(rounded, tuple(accesses)), tuple(inputs), shape[:1], result.dtype)
        assert total is not None
        return view(total, kept, call.output.dtype)

    @staticmethod
    def _scaled(product: Expr, factor: np.ndarray, output: Tensor) -> Expr:
        return multiple(product, factor, WIDE, output, "NONE", 0)[0]


class Extreme(Reduction):
    """The largest or smallest element; of quantized values, in the scale of the output."""

    narrow = (*HALF, *BYTES, "int16")
    quantized = (*BYTES, "int16")

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from same_scale_problems(call, call.tensor(0), call.output)


@op("REDUCE_MAX")
class ReduceMax(Extreme):
    """The largest value over the axes."""

    kind, function = "max", np.max
    cases = (*Reduction.cases, *Reduction.whole)


@op("REDUCE_MIN")
class ReduceMin(Extreme):
    """The smallest value over the axes."""

    kind, function = "min", np.min
    cases = (*Reduction.cases, *Reduction.whole)


class Truths(Reduction):
    """Reductions of truth values."""

    types = BOOLEANS
    cases = tuple(
        Case((Fed(shape, "bool"), ints(*axes)), {"keep_dims": keep})
        for shape, axes, keep in (((3, 4), (1,), False), ((2, 5, 3), (0, 2), True), ((17, 2), (-2,), False))
    )


@op("REDUCE_ANY")
class ReduceAny(Truths):
    """Whether at least one value is true over the axes."""

    kind, function = "max", np.any


@op("REDUCE_ALL")
class ReduceAll(Truths):
    """Whether all values are true over the axes."""

    kind, function = "min", np.all
