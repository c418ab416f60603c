"""Operators on two operands that broadcast as numpy's do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from jitdelegate.ir.expr import maximum, minimum
from jitdelegate.ops.activation import OPTION
from jitdelegate.ops.call import Call
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.pointwise import Pointwise, X, Y
from jitdelegate.ops.registry import NUMBERS, op

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


class Arithmetic(Pointwise):
    """Two operands and their broadcast."""

    least = most = 2
    types = NUMBERS
    cases: ClassVar[tuple[Case, ...]] = BROADCASTS


@op("ADD")
class Add(Arithmetic):
    """y = a + b"""

    activates = True
    cases = FUSED
    formula = X + Y


@op("SUB")
class Sub(Arithmetic):
    """y = a - b"""

    activates = True
    cases = FUSED
    formula = X - Y


@op("MUL")
class Mul(Arithmetic):
    """y = a * b"""

    activates = True
    cases = FUSED
    formula = X * Y


@op("DIV")
class Div(Arithmetic):
    """y = a / b, of integers rounded towards zero"""

    activates = True
    cases = DIVISORS

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        yield from divisor_problems(call)

    formula = X / Y


@op("MAXIMUM")
class Maximum(Arithmetic):
    """y = the larger of a and b"""

    formula = maximum(X, Y)


@op("MINIMUM")
class Minimum(Arithmetic):
    """y = the smaller of a and b"""

    formula = minimum(X, Y)


@op("SQUARED_DIFFERENCE")
class SquaredDifference(Arithmetic):
    """y = (a - b) * (a - b)"""

    formula = (X - Y) * (X - Y)
