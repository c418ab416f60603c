"""Operators that find the largest or smallest elements, and running sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.index_forms import ArgReduce, Scan, TopK
from jitdelegate.ir.index_forms import Gather as GatherForm
from jitdelegate.ops.call import INTEGERS, Call, Shape, given, with_axis
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.registry import BYTES, NUMBERS, Lowering, Op, cast, op, view
from jitdelegate.ops.shape import one_axis, one_axis_problems

RANKED = (*BYTES, "int16")
"""Types of quantized values whose order is that of the real numbers that they stand for."""


def comparable(call: Call, *types: str) -> int | Lowering:
    """The data; types other than numbers and `types` are converted to int32."""
    known = call.tensor(0).dtype in (*NUMBERS, *types)
    return call.index(0) if known else cast(call.index(0), call.shape(0), "int32")


class ArgExtreme(Op):
    """The index of the extreme element along an axis, the first of equals; the second operand is the axis."""

    least = most = 2
    parameters = (1,)
    types = ("float32", "int32", "bool", "int8", "uint8")
    quantized = RANKED
    results: ClassVar = {0: INTEGERS}
    kind: ClassVar[str]

    def problems(self, call: Call) -> Iterator[str]:
        yield from one_axis_problems(call, 1)
        asked = str(call.option("output_type", call.output.dtype)).lower()
        if asked != call.output.dtype:
            yield f"{self.name}: the output is {call.output.dtype}, expected {asked}."

    def shape(self, call: Call) -> Shape:
        return with_axis(call.shape(0), one_axis(call, 1))

    def lowering(self, call: Call) -> Lowering:
        return Lowering(ArgReduce(kind=self.kind, axis=one_axis(call, 1)), (comparable(call, *RANKED),))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, axis = given(arrays)
        find = np.argmax if self.kind == "max" else np.argmin
        return [np.asarray(find(data, axis=int(axis.flat[0]))).astype(attrs.get("output_type", "INT64").lower())]


LONG, SHORT = {"output_type": "INT64"}, {"output_type": "INT32"}


@op("ARG_MAX")
class ArgMax(ArgExtreme):
    """The index of the largest element along the axis in the second operand; of equals, the first."""

    kind = "max"
    cases = (
        Case(((3, 5), ints(1)), SHORT),
        Case(((2, 4, 5, 19), np.array(-1, np.int32)), LONG),
        Case(((2, 4, 5, 19), ints(1)), LONG),
        Case(((7,), ints(0)), SHORT),
        Case((Fed((3, 40), "int32"), ints(1)), SHORT),
        Case((Fed((3, 40), "bool"), ints(1)), SHORT),
    )


@op("ARG_MIN")
class ArgMin(ArgExtreme):
    """The index of the smallest element along the axis in the second operand; of equals, the first."""

    kind = "min"
    cases = (Case(((3, 50), ints(1)), SHORT), Case((Fed((6, 9), "int32"), ints(0)), LONG))


@op("TOPK_V2")
class TopKV2(Op):
    """The largest elements of each row, largest first, and their indices; the second operand is their number.

    Of equal elements the earlier one comes first. LiteRT does not define how NaN compares; here positive NaN is
    largest.
    """

    least = most = 2
    parameters = (1,)
    types = ("float32", "int32", "int16", "int8", "uint8")
    quantized = RANKED
    results: ClassVar = {1: ("int32",)}
    cases = (
        Case(((3, 20), np.array(4, np.int32))),
        Case(((2, 3, 33), ints(33))),
        Case((Fed((40,), "int32"), ints(7))),
        Case((Fed((2, 40), "int8"), ints(4))),
        Case((Fed((2, 9), "uint8"), ints(9)), low=100, high=255),
    )

    def outputs(self, call: Call) -> int:
        return 2

    def problems(self, call: Call) -> Iterator[str]:
        asked, shape = call.integers(1), call.shape(0)
        if len(asked) != 1 or not shape or not 0 < asked[0] <= shape[-1]:
            yield f"TOPK_V2: {list(asked)} elements are asked for from the shape {list(shape)}."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return ((*call.shape(0)[:-1], call.integers(1)[0]),) * 2

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        last, shape = len(call.shape(0)) - 1, self.shapes(call)[0]
        indices = Lowering(TopK(), (comparable(call),), shape, "int32")
        values = Lowering(GatherForm(axis=last, batch=last), (call.index(0), view(indices, (*shape, 1), "int32")))
        return values, indices

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, count = given(arrays)
        falling = np.negative(data, dtype=np.float32 if data.dtype.kind == "f" else np.int64)
        indices = np.argsort(falling, axis=-1, kind="stable")[..., : int(count.flat[0])]
        return [np.take_along_axis(data, indices, -1), indices.astype(np.int32)]


@op("CUMSUM")
class Cumsum(Op):
    """Running sums along the axis in the second operand, in the order of the elements. With the option `exclusive`, a
    sum leaves out the element itself; with `reverse`, sums start at the end."""

    least = most = 2
    parameters = (1,)
    types = NUMBERS
    cases = (
        Case(((3, 20), ints(1)), {"exclusive": False, "reverse": False}),
        Case(((3, 20), np.array(-2, np.int32)), {"exclusive": True, "reverse": False}),
        Case(((2, 5, 6, 17), ints(2)), {"exclusive": False, "reverse": True}),
        Case((Fed((4, 5), "int32"), ints(0)), {"exclusive": True, "reverse": True}),
        Case((Fed((9,), "int64"), ints(0)), {"exclusive": False, "reverse": False}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from one_axis_problems(call, 1)

    def lowering(self, call: Call) -> Lowering:
        exclusive, reverse = (bool(call.option(name, False)) for name in ("exclusive", "reverse"))
        return Lowering(Scan(axis=one_axis(call, 1), exclusive=exclusive, reverse=reverse), (call.index(0),))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, axes = given(arrays)
        axis = int(axes.flat[0])
        data = np.flip(data, axis) if attrs.get("reverse") else data
        sums = np.cumsum(data, axis, dtype=np.float64 if data.dtype.kind == "f" else data.dtype)
        if attrs.get("exclusive"):
            sums = np.delete(np.insert(sums, 0, 0, axis), -1, axis)
        return [(np.flip(sums, axis) if attrs.get("reverse") else sums).astype(data.dtype)]
