"""Comparisons, truth values, and the choice between two values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Const, binary, evaluate, select, substitute, unary
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ops.call import Call, given, scale
from jitdelegate.ops.case import Case, Fed
from jitdelegate.ops.pointwise import Pointwise, X, Y, Z, pointwise
from jitdelegate.ops.quantization import centred, fixed, per_tensor_problems, same_scale_problems
from jitdelegate.ops.registry import ANY, BOOLEANS, BYTES, HALF, NUMBERS, QUANTIZED, SHORT, Lowering, op

SHAPES = (((1, 4, 5, 6), (1, 4, 5, 6)), ((2, 1, 5), (4, 1)), ((3,), ()), ((1, 2, 1, 3, 1, 2), (2, 1, 2, 1, 5, 1)))
COMPARED = tuple(
    Case((Fed(a, dtype), Fed(b, dtype)), low=-3, high=3) for dtype in ("int32", "int64") for a, b in SHAPES
)
TRUTHS = tuple(Case((Fed(a, "bool"), Fed(b, "bool"))) for a, b in SHAPES)


class Comparison(Pointwise):
    """A truth value for every pair of elements; false where one of them is NaN, except for NOT_EQUAL."""

    least = most = 2
    types: ClassVar[tuple[str, ...]] = NUMBERS
    results: ClassVar = {0: BOOLEANS}
    narrow: ClassVar[tuple[str, ...]] = (*HALF, "int16")
    quantized = BYTES
    cases: ClassVar[tuple[Case, ...]] = (*(Case(shapes) for shapes in SHAPES), *COMPARED)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, *call.operands)
        largest = max(map(scale, call.operands))
        if largest >= 1:
            yield f"{self.name} of quantized data with the scale {largest}, which LiteRT expects below 1."

    def quantized_lowering(self, call: Call) -> Lowering:
        """Compares real numbers with 8 bits of fraction, as LiteRT's kernel does: nearer ones are equal."""
        a, b = (call.tensor(operand) for operand in (0, 1))
        values = [fixed(centred(x, t) * Const(256), float(scale(t))) for x, t in ((X, a), (Y, b))]
        return pointwise(substitute(self.formula, values), call)


@op("EQUAL")
class Equal(Comparison):
    """y = whether a and b are equal"""

    types = (*NUMBERS, "bool")
    cases = (*Comparison.cases, *TRUTHS)
    formula = binary("eq", X, Y)


@op("NOT_EQUAL")
class NotEqual(Comparison):
    """y = whether a and b differ; LiteRT leaves those of int16 unwritten"""

    narrow = HALF
    types = (*NUMBERS, "bool")
    cases = (*Comparison.cases, *TRUTHS)
    formula = binary("ne", X, Y)


@op("LESS")
class Less(Comparison):
    """y = a < b"""

    narrow = (*SHORT, "int16")
    formula = binary("lt", X, Y)


@op("LESS_EQUAL")
class LessEqual(Comparison):
    """y = a <= b"""

    formula = binary("le", X, Y)


@op("GREATER")
class Greater(Comparison):
    """y = a > b"""

    narrow = (*SHORT, "int16")
    formula = binary("gt", X, Y)


@op("GREATER_EQUAL")
class GreaterEqual(Comparison):
    """y = a >= b"""

    formula = binary("ge", X, Y)


class Logical(Pointwise):
    """Truth values computed from truth values."""

    least = most = 2
    types = BOOLEANS
    cases: ClassVar[tuple[Case, ...]] = TRUTHS


@op("LOGICAL_AND")
class LogicalAnd(Logical):
    """y = whether both are true"""

    formula = binary("and", X, Y)


@op("LOGICAL_OR")
class LogicalOr(Logical):
    """y = whether one or both are true"""

    formula = binary("or", X, Y)


@op("LOGICAL_NOT")
class LogicalNot(Logical):
    """y = whether x is false"""

    least = most = 1
    cases = (Case((Fed((2, 5), "bool"),)), Case((Fed((), "bool"),)))
    formula = unary("not", X)


@op("SELECT_V2")
class SelectV2(Pointwise):
    """y = a where the condition is true, b elsewhere"""

    least = most = 3
    types = tuple(dtype for dtype in ANY if dtype not in SHORT)
    narrow = HALF
    quantized = QUANTIZED
    kinds: ClassVar = {0: BOOLEANS}
    formula = select(X, Y, Z)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from same_scale_problems(call, call.tensor(1), call.tensor(2), call.output)

    cases = (
        *(Case((Fed((1, 4, 5, 6), "bool"), Fed((1, 4, 5, 6), dtype), Fed((1, 4, 5, 6), dtype))) for dtype in types),
        Case((Fed((4, 1, 6), "bool"), (2, 1, 5, 1), ())),
        Case((Fed((2, 4, 3), "bool"), (2, 4, 3), np.array([-1e9], np.float32))),
        Case((Fed((2, 5), "bool"), np.array([7], np.int64), np.array([[-3]]))),
        Case((Fed((2, 5), "bool"), np.array(True), np.array(False))),
        Case((Fed((), "bool"), (2, 3), (3,))),
        Case((Fed((1, 1, 3, 4), "bool"), Fed((1,), "int64"), Fed((2, 5, 3, 4), "int64"))),
    )


@op("SELECT")
class Select(SelectV2):
    """As SELECT_V2, with a condition for every element, for every slice along the first axis, or for everything"""

    cases = (
        *(Case((Fed((2, 3, 4), "bool"), Fed((2, 3, 4), dtype), Fed((2, 3, 4), dtype))) for dtype in SelectV2.types),
        Case((Fed((2,), "bool"), (2, 3, 4, 5), (2, 3, 4, 5))),
        Case((Fed((4,), "bool"), Fed((4, 3), "int32"), Fed((4, 3), "int32"))),
        Case((Fed((), "bool"), (2, 3), (2, 3))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        condition, a, b = (call.shape(operand) for operand in range(3))
        if a != b:
            yield f"SELECT: the shapes {list(a)} and {list(b)} differ."
        if condition not in ((), a, a[:1]):
            yield f"SELECT: a condition of shape {list(condition)} does not fit {list(a)}."

    def shape(self, call: Call) -> tuple[int, ...]:
        return call.shape(1)

    def lowering(self, call: Call) -> Lowering:
        if len(call.shape(0)) != 1:
            return super().lowering(call)
        values = IndexMap.broadcast(call.shape(1), call.shape(1))
        return Lowering(Map(self.formula, (IndexMap.along(0), values, values)), call.node.inputs)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        condition, a, b = given(arrays)
        along = condition.reshape(*condition.shape, *(1,) * (a.ndim - 1)) if condition.ndim == 1 else condition
        return [evaluate(self.formula, [along, a, b])]
