"""Operators that reduce whole axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.forms import Reduce
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case, ints
from jitdelegate.ops.registry import Lowering, Op, op


class Reduction(Op):
    """Operands (data, axes); negative axes count from the end, the option `keep_dims` leaves size 1 behind."""

    least = most = 2
    parameters = (1,)
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
    )

    def problems(self, call: Call) -> Iterator[str]:
        rank, axes = len(call.shape(0)), call.integers(1)
        wrong = [axis for axis in axes if not -rank <= axis < rank]
        if wrong:
            yield f"{self.name}: axis {wrong[0]} is out of range for an input of rank {rank}."

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
        return Lowering(Reduce(kind=self.kind, axes=self.axes(call)), (call.index(0),))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, axes = given(arrays)
        chosen = tuple({int(axis) % data.ndim for axis in axes.flat})
        result = type(self).function(data.astype(np.float64), axis=chosen, keepdims=bool(attrs.get("keep_dims")))
        return [np.asarray(result, np.float32)]


@op("MEAN")
class Mean(Reduction):
    """The mean over the axes."""

    kind, function = "mean", np.mean


@op("SUM")
class Sum(Reduction):
    """The sum over the axes."""

    kind, function = "sum", np.sum


@op("REDUCE_PROD")
class ReduceProd(Reduction):
    """The product over the axes."""

    kind, function = "prod", np.prod
    cases = tuple(Case(case.inputs, case.attrs, low=0.9, high=1.1) for case in Reduction.cases)


@op("REDUCE_MAX")
class ReduceMax(Reduction):
    """The largest value over the axes."""

    kind, function = "max", np.max


@op("REDUCE_MIN")
class ReduceMin(Reduction):
    """The smallest value over the axes."""

    kind, function = "min", np.min
