"""How reductions combine elements: one row for each kind, which operators, passes and all targets read."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from jitdelegate.ir.expr import Apply, Arg, Expr, binary, maximum, minimum
from jitdelegate.ir.types import ELEMENT_TYPES

A, B = Arg(0), Arg(1)
"""Two elements, or results of a reduction of some elements each."""


@dataclass(frozen=True, slots=True)
class Combiner:
    """A kind of reduction.

    `step` is associative and commutative, and gives x for the identity and x; both hold but for rounding and NaN. So
    targets combine elements in any order and from the identity on, and one element is its own reduction.

    Attributes:
        identity: infinite where it is the lowest or the highest number of a type.
        step: over A and B.
        of_bools: the same for bools, where targets have a better instruction; None if it is `step`.
        mean_of: the kind whose result is divided by the number of elements; "" where nothing is divided.
    """

    identity: float
    step: Expr
    of_bools: Expr | None = None
    mean_of: str = ""

    def identity_of(self, dtype: str) -> float:
        """The identity as a number of a type."""
        element = ELEMENT_TYPES[dtype]
        return self.identity if element.is_float else int(min(max(self.identity, element.minimum), element.maximum))

    def step_of(self, dtype: str) -> Expr:
        """The step for elements of a type."""
        return self.of_bools if self.of_bools and dtype == "bool" else self.step

    @property
    def adds(self) -> bool:
        """Whether it is a sum or a mean."""
        return self.step == A + B

    @property
    def selects(self) -> bool:
        """Whether the result is one of the elements."""
        return isinstance(self.step, Apply) and self.step.function in ("max", "min")


COMBINERS = {
    "sum": Combiner(0.0, A + B),
    "mean": Combiner(0.0, A + B, mean_of="sum"),
    "prod": Combiner(1.0, A * B),
    "max": Combiner(-inf, maximum(A, B), binary("or", A, B)),
    "min": Combiner(inf, minimum(A, B), binary("and", A, B)),
}
"""Combiners by the `kind` of a form."""
