"""Scalar expressions as vector instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr, argument_types, parts
from jitdelegate.targets.cpu.division import (
    floor_quotient,
    floor_remainder,
    integer_floor_quotient,
    integer_floor_remainder,
    integer_quotient,
)
from jitdelegate.targets.cpu.element import cast, literal
from jitdelegate.targets.cpu.exponential import erf, exp, log, logistic, negate, tanh
from jitdelegate.targets.cpu.power import integer_power, power
from jitdelegate.targets.cpu.trigonometry import atan2, cos, sin
from jitdelegate.targets.cpu.vector_ir import INDEX, Function, Value, element_type, is_float


def emit(
    f: Function, expr: Expr, arguments: Sequence[Value], types: Sequence[str], lanes: int, dtype: str = "float32"
) -> Value:
    """The value of `expr` with `arguments`, of `types` and `lanes` elements each, for its Args.

    Equal sub-expressions are emitted once. `dtype` is the type of an expression that is but a constant.
    """
    known: dict[Expr, Value] = {}

    def value(part: Expr, of: str) -> Value:
        if isinstance(part, Arg):
            return arguments[part.index]
        if isinstance(part, Const):
            return literal(f, of, lanes, part.value)
        if part not in known:
            inner = argument_types(part, types)
            values = [value(*pair) for pair in zip(parts(part), inner, strict=True)]
            known[part] = (
                cast(f, values[0], inner[0], part.dtype) if isinstance(part, Cast) else _apply(f, part, values)
            )
        return known[part]

    return value(expr, dtype)


def _apply(f: Function, part: Expr, values: Sequence[Value]) -> Value:
    assert isinstance(part, Apply)
    functions = FUNCTIONS if is_float(values[-1].type) else INTEGER_FUNCTIONS
    return functions[part.function](f, *values)


def _comparison(condition: str) -> Callable[[Function, Value, Value], Value]:
    return lambda f, a, b: f.compare(condition, a, b)


def _bitwise(operation: str) -> Callable[[Function, Value, Value], Value]:
    return lambda f, a, b: f.emit(a.type, f"{operation} {a}, {b.text}")


def _sign(f: Function, x: Value) -> Value:
    """-1, 0 or 1; NaN as it is."""
    one, minus = f.literal(x.type, 1.0), f.literal(x.type, -1.0)
    return f.select(f.compare("ogt", x, 0.0), one, f.select(f.compare("olt", x, 0.0), minus, x))


def _integer_sign(f: Function, x: Value) -> Value:
    below = f.intrinsic("smin", x.type, x, f.literal(x.type, 1))
    return f.intrinsic("smax", x.type, below, f.literal(x.type, -1))


def _shift_right(f: Function, x: Value, count: Value) -> Value:
    """By none to all but one of its bits; it keeps its sign."""
    most = f.literal(x.type, 63 if element_type(x.type) == INDEX else 31)
    count = f.intrinsic("smax", x.type, count, f.literal(x.type, 0))
    return f.emit(x.type, f"ashr {x}, {f.intrinsic('smin', x.type, count, most).text}")


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": lambda f, a, b: a + b,
    "sub": lambda f, a, b: a - b,
    "mul": lambda f, a, b: a * b,
    "div": lambda f, a, b: a / b,
    "max": lambda f, a, b: f.maximum(a, b),
    "min": lambda f, a, b: f.minimum(a, b),
    "neg": negate,
    "abs": lambda f, x: f.intrinsic("fabs", x.type, x),
    "sqrt": lambda f, x: f.intrinsic("sqrt", x.type, x),
    "rsqrt": lambda f, x: f.literal(x.type, 1.0) / f.intrinsic("sqrt", x.type, x),
    "floor": lambda f, x: f.intrinsic("floor", x.type, x),
    "ceil": lambda f, x: f.intrinsic("ceil", x.type, x),
    "round": lambda f, x: f.intrinsic("rint", x.type, x),
    "trunc": lambda f, x: f.intrinsic("trunc", x.type, x),
    "sign": _sign,
    "sin": sin,
    "cos": cos,
    "erf": erf,
    "floor_div": floor_quotient,
    "floor_mod": floor_remainder,
    "pow": power,
    "atan2": atan2,
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "logistic": logistic,
    "select": lambda f, condition, a, b: f.select(condition, a, b),
    "eq": _comparison("oeq"),
    "ne": _comparison("une"),
    "lt": _comparison("olt"),
    "le": _comparison("ole"),
    "gt": _comparison("ogt"),
    "ge": _comparison("oge"),
}
"""How each function of `ir.expr` is emitted on floats."""

INTEGER_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": lambda f, a, b: a + b,
    "sub": lambda f, a, b: a - b,
    "mul": lambda f, a, b: a * b,
    "div": integer_quotient,
    "floor_div": integer_floor_quotient,
    "floor_mod": integer_floor_remainder,
    "pow": integer_power,
    "shift_right": _shift_right,
    "sign": _integer_sign,
    "max": lambda f, a, b: f.intrinsic("smax", a.type, a, b),
    "min": lambda f, a, b: f.intrinsic("smin", a.type, a, b),
    "neg": lambda f, x: f.literal(x.type, 0) - x,
    "abs": lambda f, x: f.intrinsic("smax", x.type, x, f.literal(x.type, 0) - x),
    "and": _bitwise("and"),
    "or": _bitwise("or"),
    "xor": _bitwise("xor"),
    "not": lambda f, x: f.compare("eq", x, 0),
    "select": lambda f, condition, a, b: f.select(condition, a, b),
    "eq": _comparison("eq"),
    "ne": _comparison("ne"),
    "lt": _comparison("slt"),
    "le": _comparison("sle"),
    "gt": _comparison("sgt"),
    "ge": _comparison("sge"),
}
"""How they are emitted on integers and bools."""
