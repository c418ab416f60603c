"""Scalar expressions as device code, every part in the type of its operands."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr, argument_types, parts
from jitdelegate.targets.cuda.cast import cast
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import constant
from jitdelegate.targets.cuda.float_functions import FLOAT_FUNCTIONS
from jitdelegate.targets.cuda.integer_functions import INTEGER_FUNCTIONS


def emit(code: Code, expr: Expr, arguments: Sequence[Value], types: Sequence[str], dtype: str = "float32") -> Value:
    """The value of `expr` with `arguments`, of `types`, for its Args; equal sub-expressions are computed once.

    `dtype` is the type of an expression that is but a constant.
    """
    known: dict[Expr, Value] = {}

    def value(part: Expr, of: str) -> Value:
        if isinstance(part, Arg):
            return arguments[part.index]
        if isinstance(part, Const):
            return constant(code, of, part.value)
        if isinstance(part, Cast) and isinstance(part.value, Const):
            return constant(code, part.dtype, part.value.value)
        if part not in known:
            inner = argument_types(part, types)
            known[part] = _result(code, part, inner, list(map(value, parts(part), inner)))
        return known[part]

    return value(expr, dtype)


def _result(code: Code, part: Expr, types: Sequence[str], values: Sequence[Value]) -> Value:
    """A cast or function of values of `types`."""
    if isinstance(part, Cast):
        return cast(code, values[0], types[0], part.dtype)
    assert isinstance(part, Apply)
    if part.function == "select":
        return code.select(*values)
    if types[-1] == "float32":
        return FLOAT_FUNCTIONS[part.function](code, *values)
    assert types[-1] != "float16", f"{part} of float16, which is only moved"
    return INTEGER_FUNCTIONS[part.function](code, types[-1], *values)
