"""Operators that reduce whole axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Cast
from jitdelegate.ir.forms import Reduce, View
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.pointwise import X, mapped
from jitdelegate.ops.registry import BOOLEANS, NUMBERS, Lowering, Op, cast, op
from jitdelegate.ops.shape import axis_problems


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
        """A view if all reduced axes have size 1, else a Reduce."""
        axes = self.axes(call)
        stays = all(call.shape(0)[axis] == 1 for axis in axes)
        return Lowering(View() if stays else Reduce(kind=self.kind, axes=axes), (call.index(0),))

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
    cases = (*Reduction.cases, *Reduction.whole)

    def lowering(self, call: Call) -> Lowering:
        """For integers, the 64-bit sum, divided and truncated towards zero."""
        axes, shape, dtype = self.axes(call), call.shape(0), call.output.dtype
        if dtype == "float32":
            return super().lowering(call)
        wide, kept = cast(call.index(0), shape, "int64"), self.shape(call)
        total = Lowering(Reduce(kind="sum", axes=axes), (wide,), kept, "int64")
        return mapped(Cast(X / prod(shape[axis] for axis in axes), dtype), (total, kept), shape=kept, dtype=dtype)


@op("SUM")
class Sum(Reduction):
    """The sum over the axes."""

    takes_empty = True
    kind, function = "sum", np.sum
    cases = (*Reduction.cases, *Reduction.whole)


@op("REDUCE_PROD")
class ReduceProd(Reduction):
    """The product over the axes."""

    takes_empty = True
    kind, function = "prod", np.prod
    cases = (
        *(Case(case.inputs, case.attrs, low=0.9, high=1.1) for case in Reduction.cases),
        *(Case(case.inputs, case.attrs, low=1, high=3) for case in Reduction.whole),
    )


@op("REDUCE_MAX")
class ReduceMax(Reduction):
    """The largest value over the axes."""

    kind, function = "max", np.max
    cases = (*Reduction.cases, *Reduction.whole)


@op("REDUCE_MIN")
class ReduceMin(Reduction):
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
