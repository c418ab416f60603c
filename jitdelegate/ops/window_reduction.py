"""REDUCE_WINDOW and STABLEHLO_REDUCE_WINDOW: sums, products, extremes and truths over windows of any rank.

Source: https://openxla.org/stablehlo/spec#reduce_window, and LiteRT's kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.combiners import COMBINERS, Combiner
from jitdelegate.ir.expr import Arg, Cast, Expr, binary, evaluate, substitute
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case, Fed
from jitdelegate.ops.padding import Margins
from jitdelegate.ops.pointwise import X, Y, computed, mapped
from jitdelegate.ops.registry import QUANTIZED, Lowering, op, view
from jitdelegate.ops.stablehlo import Spread
from jitdelegate.ops.stablehlo_windows import COMPUTATION, KINDS

Source = int | Lowering
AT_ONCE = 16
"""Elements of a window along one axis that a kernel combines; those of longer ones are combined in groups first."""
REGIONS: Mapping[str, str] = {
    **KINDS,
    "ADD": "sum",
    "MUL": "prod",
    "MAXIMUM": "max",
    "MINIMUM": "min",
    **dict.fromkeys(("ALL", "LOGICAL_AND", "STABLEHLO_AND"), "all"),
    **dict.fromkeys(("ANY", "LOGICAL_OR", "STABLEHLO_OR"), "any"),
}
"""The operator in the region, or the option `reduce_function` -> a row of COMBINERS, or of TRUTHS."""
TRUTHS = {"all": "min", "any": "max"}
"""Kinds whose elements and results are 0 or 1, of any type -> the row of COMBINERS."""


@dataclass(frozen=True, slots=True)
class Windows:
    """For each axis: elements of a window, elements from one window to the next, and from element to element."""

    sizes: Shape
    strides: Shape
    dilations: Shape

    def counts(self, data: Shape) -> Shape:
        """The number of windows along each axis of data of this shape."""
        axes = zip(data, self.sizes, self.strides, self.dilations, strict=True)
        return tuple((size - (own - 1) * apart - 1) // stride + 1 for size, own, stride, apart in axes)


class WindowReduction(Spread):
    """The initial value combined with the elements of a window, for each window."""

    folds = 1 << 16
    types = ("float32", "int32", "int64", "bool", "int8", "uint8", "int16")
    quantized = QUANTIZED

    def windows(self, call: Call) -> Windows:
        raise NotImplementedError

    def kind(self, attrs: Mapping[str, Any]) -> str:
        """A value of REGIONS; "" for a region that is none."""
        raise NotImplementedError

    def problems(self, call: Call) -> Iterator[str]:
        rank, windows, kind = len(call.shape(0)), self.windows(call), self.kind(call.node.attrs)
        lists = windows.sizes, windows.strides, windows.dilations
        if any(len(each) != rank or min(each, default=1) < 1 for each in lists):
            yield f"{self.name}: windows of {list(windows.sizes)} do not fit the shape {list(call.shape(0))}."
            return
        if not kind:
            yield f"{self.name} with another region than one sum, product, maximum, minimum, and or or."
        if call.tensor(0).dtype == "bool" and kind in ("sum", "prod"):
            yield f"{self.name}: a {kind} of truth values is not supported."
        yield from super().problems(call)

    def shape(self, call: Call) -> Shape:
        return self.windows(call).counts(super().shape(call))

    def work(self, call: Call) -> int:
        return prod(self.shape(call)) * sum(self.windows(call).sizes)

    def lowering(self, call: Call) -> Lowering:
        """Axis by axis; then the initial value, unless it is the identity."""
        dtype, kind, windows, shape = call.output.dtype, self.kind(call.node.attrs), self.windows(call), call.shape(0)
        source: Source = call.index(0)
        if any(map(any, self.edges(call))) or set(self.steps(call)) != {1}:
            source, shape = super().lowering(call), super().shape(call)
        combiner, initial = COMBINERS[TRUTHS.get(kind, kind)], call.constant(1)
        identity = combiner.identity_of(dtype)
        if kind in TRUTHS:
            source = mapped(_truth(X, dtype), (source, shape), shape=shape, dtype=dtype)
            initial, identity = None if initial is None else initial != 0, kind == "all"
        fold = _Fold(combiner, dtype)
        counts = windows.counts(shape)
        for axis, count in enumerate(counts):
            own, stride, apart = windows.sizes[axis], windows.strides[axis], windows.dilations[axis]
            if own > 1 or stride > 1:
                source = fold.along(source, shape, axis, (own, stride, apart), count)
                shape = (*shape[:axis], count, *shape[axis + 1 :])
        if initial is not None and initial.item() == identity:
            return view(source, shape, dtype)
        start = _truth(Y, dtype) if kind in TRUTHS else Y
        combined = substitute(fold.of(2), [X, start])
        return mapped(combined, (source, shape), (call.index(1), call.shape(1)), shape=shape, dtype=dtype)

    def reduced(
        self, data: np.ndarray, start: np.ndarray, edges: Margins, steps: Shape, windows: Windows, kind: str
    ) -> np.ndarray:
        """The reference."""
        dtype, step = str(data.dtype), COMBINERS[TRUTHS.get(kind, kind)].step_of(str(data.dtype))
        exact = self.spread(data, start.flat[0], edges, steps)
        exact, first = ((each != 0) * 1 if kind in TRUTHS else each for each in (exact, start.flat[0]))
        exact = exact.astype(np.float64 if dtype == "float32" else dtype)
        out = np.full(windows.counts(exact.shape), first, exact.dtype)
        for offset in np.ndindex(*windows.sizes):
            axes = zip(offset, windows.strides, windows.dilations, out.shape, strict=True)
            cut = tuple(slice(at * apart, at * apart + (n - 1) * stride + 1, stride) for at, stride, apart, n in axes)
            out = evaluate(step, [out, exact[cut]]).astype(exact.dtype)
        return out.astype(dtype)


def _truth(value: Expr, dtype: str) -> Expr:
    return Cast(binary("ne", value, 0), dtype)


@dataclass(frozen=True, slots=True)
class _Fold:
    """Combines elements of a type."""

    combiner: Combiner
    dtype: str

    def of(self, count: int) -> Expr:
        """The Args from 0 on, combined."""
        step = self.combiner.step_of(self.dtype)
        arguments: list[Expr] = [*map(Arg, range(count))]
        total = reduce(lambda a, b: substitute(step, [a, b]), arguments)
        return total if self.dtype == "bool" else computed(total, self.dtype)

    def along(self, source: Source, shape: Shape, axis: int, window: Shape, count: int) -> Lowering:
        """`count` windows along an axis of a value of `shape`.

        Args:
            window: elements, elements from one window to the next, and from element to element.
        """
        own, stride, apart = window
        whole, rest = divmod(own, AT_ONCE) if own > AT_ONCE else (0, own)
        result = (*shape[:axis], count, *shape[axis + 1 :])
        inputs: list[Source] = []
        accesses: list[IndexMap] = []
        if whole:
            near = shape[axis] - (AT_ONCE - 1) * apart
            groups = self.along(source, shape, axis, (AT_ONCE, 1, apart), near)
            joined = (whole, stride, apart * AT_ONCE)
            inputs.append(self.along(groups, (*shape[:axis], near, *shape[axis + 1 :]), axis, joined, count))
            accesses.append(IndexMap.broadcast(result, result))
        for number in range(own - rest, own):
            inputs.append(source)
            accesses.append(_strided(len(shape), axis, number * apart, stride))
        return Lowering(Map(self.of(len(inputs)), tuple(accesses)), tuple(inputs), result, self.dtype)


def _strided(rank: int, axis: int, start: int, step: int) -> IndexMap:
    """Every `step`-th element along one axis."""
    starts, steps = ([at if each == axis else other for each in range(rank)] for at, other in ((start, 0), (step, 1)))
    return IndexMap(tuple(range(rank)), tuple(starts), tuple(steps))


OPTIONS = ("window_dimensions", "window_strides", "window_dilations", "base_dilations", "padding")


@op("STABLEHLO_REDUCE_WINDOW")
class StablehloReduceWindow(WindowReduction):
    """Windows, and the numbers of initial values between and around the elements, are options; the region has one
    operator: a sum, product, maximum, minimum, and or or."""

    least = most = 2

    def kind(self, attrs: Mapping[str, Any]) -> str:
        return REGIONS.get(attrs.get(COMPUTATION, ""), "")

    def windows(self, call: Call) -> Windows:
        return self._windows(call.node.attrs, len(call.shape(0)))

    def edges(self, call: Call) -> Margins:
        return self._edges(call.node.attrs, len(call.shape(0)))

    def steps(self, call: Call) -> Shape:
        return _numbers(call.node.attrs, "base_dilations", len(call.shape(0)), 1)

    @staticmethod
    def _windows(attrs: Mapping[str, Any], rank: int) -> Windows:
        return Windows(*(_numbers(attrs, name, rank, 1) for name in OPTIONS[:3]))

    @staticmethod
    def _edges(attrs: Mapping[str, Any], rank: int) -> Margins:
        flat = _numbers(attrs, "padding", 2 * rank, 0)
        return list(zip(flat[::2], flat[1::2], strict=False))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, start = given(arrays)
        edges, windows = self._edges(attrs, data.ndim), self._windows(attrs, data.ndim)
        steps = _numbers(attrs, "base_dilations", data.ndim, 1)
        return [self.reduced(data, start, edges, steps, windows, self.kind(attrs))]


def _numbers(attrs: Mapping[str, Any], name: str, count: int, default: int) -> Shape:
    """An option that is a list; `count` times the default where the file leaves it out."""
    return tuple(map(int, attrs.get(name) or [default] * count))


def _case(
    data: Shape,
    start: float,
    function: str,
    sizes: Shape,
    strides: Shape = (),
    *,
    dilations: Shape = (),
    dtype: str = "float32",
) -> Case:
    """A REDUCE_WINDOW."""
    lists = [np.array(each or (1,) * len(data), np.int64) for each in (sizes, strides, dilations)]
    low, high = (-2, 3) if dtype != "uint8" else (0, 100)
    return Case((Fed(data, dtype), np.array(start, dtype), *lists), {"reduce_function": function}, low=low, high=high)


@op("REDUCE_WINDOW")
class ReduceWindow(WindowReduction):
    """Operands (data, initial value, elements of a window, strides, dilations), all windows inside the data; the option
    `reduce_function` is ADD, MUL, MINIMUM, MAXIMUM, ALL or ANY."""

    least = most = 5
    parameters = (2, 3, 4)
    parameter_types = ("int64",)
    cases: ClassVar[tuple[Case, ...]] = (
        _case((2, 9, 7, 3), 0.0, "ADD", (1, 3, 2, 1), (1, 2, 1, 1)),
        _case((3, 40), 0.0, "ADD", (1, 37)),
        _case((3, 40), -np.inf, "MAXIMUM", (2, 3), dilations=(1, 4)),
        _case((5, 17), 1.5, "MINIMUM", (2, 1), (2, 3)),
        _case((6, 4), 2.0, "MUL", (2, 2)),
        _case((11,), 3, "ADD", (5,), (2,), dtype="int32"),
        _case((4, 11), 1, "MUL", (2, 2), dtype="int64"),
        _case((4, 11), -128, "MAXIMUM", (3, 2), dtype="int8"),
        _case((4, 11), 7, "ADD", (3, 4), dtype="uint8"),
        _case((4, 11), True, "ALL", (1, 2), dtype="bool"),
        _case((4, 11), False, "ANY", (2, 1), dtype="bool"),
        _case((4, 11), 5, "ALL", (2, 1), dtype="int16"),
        _case((4, 11), -128, "ANY", (2, 1), dtype="int8"),
        _case((4, 11), 0, "ANY", (1, 1), dtype="int32"),
    )

    def kind(self, attrs: Mapping[str, Any]) -> str:
        return REGIONS.get(attrs.get("reduce_function", ""), "")

    def windows(self, call: Call) -> Windows:
        return Windows(*map(call.integers, self.parameters))

    def edges(self, call: Call) -> Margins:
        return [(0, 0)] * len(call.shape(0))

    def steps(self, call: Call) -> Shape:
        return (1,) * len(call.shape(0))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, start, *lists = given(arrays)
        windows = Windows(*(tuple(each.tolist()) for each in lists))
        return [self.reduced(data, start, [(0, 0)] * data.ndim, (1,) * data.ndim, windows, self.kind(attrs))]
