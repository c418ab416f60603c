"""Operators on two operands that broadcast as numpy's do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Const, Expr, evaluate, maximum, minimum
from jitdelegate.ir.forms import Access, Map
from jitdelegate.ops.activation import ACTIVATIONS, OPTION, activated
from jitdelegate.ops.call import INTEGERS, Call, Shape
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.registry import Lowering, Op, op

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


class Arithmetic(Op):
    """Two operands and their broadcast; a subclass gives the formula in `scalar`, and in `whole` for integers."""

    least = most = 2
    whole: ClassVar[Callable[..., np.ndarray] | None] = None
    """The function on integers, for the folding of shape arithmetic; None where TFLite's rounding differs."""
    cases: ClassVar[tuple[Case, ...]] = BROADCASTS

    def scalar(self, a: Expr, b: Expr) -> Expr:
        """The formula for one element."""
        raise NotImplementedError

    def problems(self, call: Call) -> Iterator[str]:
        types = {tensor.dtype for tensor in call.operands}
        allowed = ("float32", *(INTEGERS if self.whole else ()))
        if len(types) > 1 or not types <= set(allowed):
            yield f"{self.name}: the inputs are {' and '.join(sorted(types))}, only float32 is supported."
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
        return Const(float(data.flat[0])) if data is not None and data.size == 1 else None

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        a, b = arrays
        assert a is not None
        assert b is not None
        if self.whole and a.dtype.kind == "i":
            return [type(self).whole(a, b)]  # type: ignore[misc]  # checked one line above
        return [activated(attrs.get(OPTION, "NONE"), evaluate(self.scalar(Arg(0), Arg(1)), [a, b]))]


@op("ADD")
class Add(Arithmetic):
    """y = a + b"""

    activates = True
    whole = np.add
    cases = FUSED

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a + b


@op("SUB")
class Sub(Arithmetic):
    """y = a - b"""

    activates = True
    whole = np.subtract
    cases = FUSED

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a - b


@op("MUL")
class Mul(Arithmetic):
    """y = a * b"""

    activates = True
    whole = np.multiply
    cases = FUSED

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a * b


@op("DIV")
class Div(Arithmetic):
    """y = a / b"""

    activates = True
    cases = DIVISORS

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a / b


@op("MAXIMUM")
class Maximum(Arithmetic):
    """y = the larger of a and b"""

    whole = np.maximum

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return maximum(a, b)


@op("MINIMUM")
class Minimum(Arithmetic):
    """y = the smaller of a and b"""

    whole = np.minimum

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return minimum(a, b)


@op("SQUARED_DIFFERENCE")
class SquaredDifference(Arithmetic):
    """y = (a - b) * (a - b)"""

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return (a - b) * (a - b)
