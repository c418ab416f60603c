"""Operators on two operands that broadcast as numpy's do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Const, Expr, evaluate, maximum, minimum
from jitdelegate.ir.forms import Access, Map
from jitdelegate.ops.activation import ACTIVATIONS, OPTION
from jitdelegate.ops.call import Call, Shape
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.registry import NUMBERS, Lowering, Op, op

BROADCASTS = (
    Case(((1, 4, 5, 6), (1, 4, 5, 6))),
    Case(((1, 4, 5, 6), Weights((6,)))),
    Case(((1, 4, 5, 6), Weights(()))),
    Case((Weights((1, 1, 1, 1)), (1, 4, 5, 6))),
    Case(((2, 1, 5, 1), (4, 1, 6))),
    Case(((3,), (3,))),
    Case(((2, 3, 1, 2, 5), (1, 4, 1, 5))),
)
FUSED = (
    *(Case(((1, 4, 5, 6), (1, 1, 1, 6)), {OPTION: name}) for name in ("RELU", "RELU6", "RELU_N1_TO_1")),
    *BROADCASTS,
)
DIVISORS = tuple(Case(case.inputs, case.attrs, low=0.5) for case in FUSED)


def divisor_problems(call: Call) -> Iterator[str]:
    """A reason to refuse, where integers may be divided by zero: LiteRT then stops with an error, kernels cannot."""
    divisors = call.constant(1)
    if call.tensor(1).dtype != "float32" and (divisors is None or not divisors.all()):
        yield f"{call.node.op}: input 1 may be zero; integers are divided by constants other than 0 only."


class Arithmetic(Op):
    """Two operands and their broadcast; a subclass gives the formula in `scalar`."""

    least = most = 2
    types = NUMBERS
    cases: ClassVar[tuple[Case, ...]] = BROADCASTS

    def scalar(self, a: Expr, b: Expr) -> Expr:
        """The formula for one element."""
        raise NotImplementedError

    def problems(self, call: Call) -> Iterator[str]:
        a, b = call.shape(0), call.shape(1)
        if any(1 not in sizes and len(set(sizes)) > 1 for sizes in zip(a[::-1], b[::-1], strict=False)):
            yield f"{self.name}: the shapes {list(a)} and {list(b)} do not broadcast together."

    def shape(self, call: Call) -> Shape:
        return np.broadcast_shapes(call.shape(0), call.shape(1))

    def lowering(self, call: Call) -> Lowering:
        """A constant of one element becomes part of the expression; all else is read through its broadcast."""
        values: list[Expr] = []
        read: list[int] = []
        for operand in (0, 1):
            number = self._number(call, operand)
            values.append(Arg(len(read)) if number is None else number)
            read += [operand] if number is None else []
        expr = ACTIVATIONS[call.option(OPTION, "NONE")](self.scalar(values[0], values[1]))
        accesses = tuple(Access.broadcast(call.shape(operand), call.output.shape) for operand in read)
        return Lowering(Map(expr, accesses), tuple(call.index(operand) for operand in read))

    @staticmethod
    def _number(call: Call, operand: int) -> Const | None:
        data = call.constant(operand)
        return Const(data.flat[0].item()) if data is not None and data.size == 1 else None

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        a, b = arrays
        assert a is not None
        assert b is not None
        return [evaluate(ACTIVATIONS[attrs.get(OPTION, "NONE")](self.scalar(Arg(0), Arg(1))), [a, b])]


@op("ADD")
class Add(Arithmetic):
    """y = a + b"""

    activates = True
    cases = FUSED

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a + b


@op("SUB")
class Sub(Arithmetic):
    """y = a - b"""

    activates = True
    cases = FUSED

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a - b


@op("MUL")
class Mul(Arithmetic):
    """y = a * b"""

    activates = True
    cases = FUSED

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a * b


@op("DIV")
class Div(Arithmetic):
    """y = a / b, of integers rounded towards zero"""

    activates = True
    cases = DIVISORS

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        yield from divisor_problems(call)

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a / b


@op("MAXIMUM")
class Maximum(Arithmetic):
    """y = the larger of a and b"""

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return maximum(a, b)


@op("MINIMUM")
class Minimum(Arithmetic):
    """y = the smaller of a and b"""

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return minimum(a, b)


@op("SQUARED_DIFFERENCE")
class SquaredDifference(Arithmetic):
    """y = (a - b) * (a - b)"""

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return (a - b) * (a - b)
