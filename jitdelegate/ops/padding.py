"""Operators that pad their operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
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


def _with_margins(margins: Margins, value: float | None) -> IndexMap:
    return IndexMap.along(*range(len(margins)), starts=tuple(-before for before, _ in margins), fill=value)


def value_problems(call: Call, operand: int) -> Iterator[str]:
    """Reasons to refuse the operand as the value of `padded`."""
    name, dtype, tensor = call.node.op, call.output.dtype, call.tensor(operand)
    if tensor.size != 1:
        yield f"{name}: the value's shape is {list(tensor.shape)}, expected one element."
    if call.constant(operand) is None and dtype not in (*NUMBERS, "bool"):
        yield f"{name}: input {operand} ('{tensor.title}') of type {dtype} is not a constant."
    if call.constant(operand) is None and max(call.shape(0), default=0) > MAX_NUMBERED:
        yield f"{name} of {list(call.shape(0))} with a value that is known at run time only is not supported."


def padded(call: Call, source: int | Lowering, shape: Shape, margins: Margins, operand: int) -> Lowering:
    """Data of this shape with margins, which may be negative, of the value in an operand.

    A value known only at run time is selected outside the data; a vector per padded axis marks the inside.
    """
    value, dtype, result = call.constant(operand), call.output.dtype, widened(shape, margins)
    marked = [(axis, before) for axis, (before, after) in enumerate(margins) if before > 0 or after > 0]
    if value is not None or not marked:
        return moved(source, _with_margins(margins, None if value is None else value.item()), result, dtype)
    accesses = [_with_margins(margins, 0), IndexMap.broadcast(call.shape(operand), result)]
    masks: list[Expr] = [Arg(2 + number) for number in range(len(marked))]
    inside = reduce(partial(binary, "and"), masks)
    accesses += [IndexMap.along(axis, starts=(-before,), fill=0) for axis, before in marked]
    ones = tuple(np.ones(shape[axis], bool) for axis, _ in marked)
    form = Map(select(inside, Arg(0), Arg(1)), tuple(accesses))
    return Lowering(form, (source, call.index(operand), *ones), result, dtype)


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
        return moved(call.index(0), _with_margins(self.borders(call), self.value(call)))

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
        yield from value_problems(call, 2)

    def value(self, call: Call) -> float | None:
        data = call.constant(2)
        return None if data is None else data.item()

    def lowering(self, call: Call) -> Lowering:
        return padded(call, call.index(0), call.shape(0), self.borders(call), 2)
