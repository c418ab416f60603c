"""Operators that pad their operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Expr, binary, select
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ops.call import Call, Shape, given, zero
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.quantization import same_scale_problems
from jitdelegate.ops.registry import ANY, MAX_NUMBERED, NUMBERS, QUANTIZED, Lowering, Op, moved, op

Margins = list[tuple[int, int]]
"""The number of elements before and after each axis."""


def widened(shape: Shape, margins: Margins) -> Shape:
    """The shape with its margins."""
    return tuple(before + size + after for size, (before, after) in zip(shape, margins, strict=True))


class Padding(Op):
    """Pads the data: row a of the second operand holds the numbers of elements before and after axis a."""

    types = ANY
    quantized = QUANTIZED
    takes_empty = True
    least = most = 2
    parameters = (1,)

    def problems(self, call: Call) -> Iterator[str]:
        if not call.shape(0):
            yield f"{self.name}: the input is a scalar, expected rank 1 or more."
        if call.shape(1) != (len(call.shape(0)), 2):
            shape = list(call.shape(1))
            yield f"{self.name}: the paddings' shape is {shape}, expected [{len(call.shape(0))}, 2]."
        if min(call.integers(1), default=0) < 0:
            yield f"{self.name}: the paddings are {list(call.integers(1))}, expected none below 0."

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from same_scale_problems(call, call.tensor(0), call.output)

    @staticmethod
    def borders(call: Call) -> Margins:
        """(before, after) for every axis."""
        flat = call.integers(1)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def shape(self, call: Call) -> Shape:
        return widened(call.shape(0), self.borders(call))


@op("PAD")
class Pad(Padding):
    """Pads the data with zeros, which quantized data has as its zero point."""

    cases: ClassVar[tuple[Case, ...]] = (
        Case(((1, 4, 5, 6), ints((0, 0), (1, 2), (2, 1), (0, 0)))),
        Case(((1, 4, 5, 17), ints((0, 0), (0, 1), (0, 1), (0, 0)))),
        Case(((2, 3, 4), np.array([[1, 0], [0, 0], [2, 3]]))),
        Case(((1, 4, 4, 6), ints((0, 0), (0, 0), (0, 0), (0, 10)))),
        Case(((2, 1, 3, 2, 3), ints((0, 1), (1, 0), (0, 0), (2, 2), (1, 1)))),
    )

    def value(self, call: Call) -> float | None:
        """The value of the padding; None where it is known only at run time."""
        return zero(call.tensor(0))

    def lowering(self, call: Call) -> Lowering:
        rank, borders = len(call.shape(0)), self.borders(call)
        starts = tuple(-before for before, _ in borders)
        return moved(call.index(0), IndexMap.along(*range(rank), starts=starts, fill=self.value(call)))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, borders, *value = given(arrays)
        return [np.pad(data, borders, constant_values=value[0].flat[0] if value else 0)]


@op("PADV2")
class PadV2(Pad):
    """As PAD, with the third operand as the value."""

    least = most = 3
    cases = (
        *(Case((*case.inputs, np.array([1.5], np.float32))) for case in Pad.cases),
        *(Case((*case.inputs, (1,))) for case in Pad.cases[:3]),
        Case((Fed((2, 3), "int64"), ints((1, 0), (2, 3)), np.array([(1 << 53) + 1]))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        if prod(call.shape(2)) != 1:
            yield f"PADV2: the value's shape is {list(call.shape(2))}, expected one element."
        if call.constant(2) is None and call.output.dtype not in (*NUMBERS, "bool"):
            yield f"PADV2: input 2 ('{call.tensor(2).title}') of type {call.output.dtype} is not a constant."
        if call.constant(2) is None and max(call.shape(0), default=0) > MAX_NUMBERED:
            yield f"PADV2 of {list(call.shape(0))} with a value that is known at run time only is not supported."

    def value(self, call: Call) -> float | None:
        data = call.constant(2)
        return None if data is None else data.item()

    def lowering(self, call: Call) -> Lowering:
        """A value known only at run time is selected outside the data; a vector per padded axis marks the inside."""
        padded = [(axis, before) for axis, (before, after) in enumerate(self.borders(call)) if before or after]
        if self.value(call) is not None or not padded:
            return super().lowering(call)
        shape, rank = call.shape(0), len(call.shape(0))
        starts = tuple(-before for before, _ in self.borders(call))
        everywhere = IndexMap.broadcast(call.shape(2), call.output.shape)
        accesses = [IndexMap.along(*range(rank), starts=starts, fill=0), everywhere]
        masks: list[Expr] = [Arg(2 + number) for number in range(len(padded))]
        inside = reduce(partial(binary, "and"), masks)
        accesses += [IndexMap.along(axis, starts=(-before,), fill=0) for axis, before in padded]
        ones = tuple(np.ones(shape[axis], bool) for axis, _ in padded)
        return Lowering(Map(select(inside, Arg(0), Arg(1)), tuple(accesses)), (call.index(0), call.index(2), *ones))
