"""Scalar expressions as float32 device code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitdelegate.ir.expr import Apply, Arg, Const, Expr
from jitdelegate.targets.cuda.device_code import Code, Value


def emit(code: Code, expr: Expr, arguments: Sequence[Value]) -> Value:
    """The value of `expr` with `arguments` for its Args; equal sub-expressions are computed once."""
    known: dict[Expr, Value] = {}

    def value(part: Expr) -> Value:
        if isinstance(part, Arg):
            return arguments[part.index]
        if isinstance(part, Const):
            return code.real(part.value)
        assert isinstance(part, Apply)
        if part not in known:
            known[part] = FUNCTIONS[part.function](code, *map(value, part.arguments))
        return known[part]

    return value(expr)


def _device_function(name: str) -> Callable[[Code, Value], Value]:
    return lambda code, x: code.call(name, [x])


def _logistic(code: Code, x: Value) -> Value:
    return 1.0 / (1.0 + code.call("__nv_expf", [-x]))


def maximum(code: Code, a: Value, b: Value) -> Value:
    """As `Expr.maximum`: the larger, and NaN where `a` is NaN, so that a clamp keeps it."""
    return code.select(a < b, b, a)


def minimum(code: Code, a: Value, b: Value) -> Value:
    """As `Expr.minimum`: the smaller, and NaN where `a` is NaN."""
    return code.select(b < a, b, a)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "neg": lambda code, x: -x,
    "abs": _device_function("__nv_fabsf"),
    "exp": _device_function("__nv_expf"),
    "log": _device_function("__nv_logf"),
    "sqrt": _device_function("__nv_fsqrt_rn"),
    "rsqrt": lambda code, x: 1.0 / code.call("__nv_fsqrt_rn", [x]),
    "tanh": _device_function("__nv_tanhf"),
    "logistic": _logistic,
    "floor": _device_function("__nv_floorf"),
    "add": lambda code, a, b: a + b,
    "sub": lambda code, a, b: a - b,
    "mul": lambda code, a, b: a * b,
    "div": lambda code, a, b: a / b,
    "max": maximum,
    "min": minimum,
}
"""Every name of `ir.expr.UNARY` and `BINARY`."""
