"""The functions of expressions on float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llvmlite import ir

from jitdelegate.targets.cuda.device_code import F32, Code, Value
from jitdelegate.targets.cuda.trigonometry import cosine, sine

F64 = ir.DoubleType()
RELATIONS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""Comparisons that are false where one of the operands is NaN."""


def _device_function(name: str) -> Callable[..., Value]:
    return lambda code, *values: code.call(name, values)


def _comparison(relation: str) -> Callable[..., Value]:
    return lambda code, a, b: Value(code, code.builder.fcmp_ordered(relation, a.value, b.value))


def _differs(code: Code, a: Value, b: Value) -> Value:
    return Value(code, code.builder.fcmp_unordered("!=", a.value, b.value))


def _logistic(code: Code, x: Value) -> Value:
    return 1.0 / (1.0 + code.call("__nv_expf", [-x]))


def maximum(code: Code, a: Value, b: Value) -> Value:
    """As `Expr.maximum`: the larger, and NaN where `a` is NaN, so that a clamp keeps it."""
    return code.select(a < b, b, a)


def minimum(code: Code, a: Value, b: Value) -> Value:
    """As `Expr.minimum`: the smaller, and NaN where `a` is NaN."""
    return code.select(b < a, b, a)


def _sign(code: Code, x: Value) -> Value:
    """NaN stays, and 0 has no sign."""
    return code.select(x > 0.0, 1.0, code.select(x < 0.0, -1.0, x + 0.0))


def _floor_quotient(code: Code, a: Value, b: Value) -> Value:
    """Divided in float64, as TFLite does it: 1 / 0.1f rounds to 10 in float32."""
    builder = code.builder
    quotient = builder.fdiv(builder.fpext(a.value, F64), builder.fpext(b.value, F64))
    whole = code.call("__nv_floor", [Value(code, quotient)], F64)
    return Value(code, builder.fptrunc(whole.value, F32))


def _floor_remainder(code: Code, a: Value, b: Value) -> Value:
    """On the side of 0 that `b` is on."""
    rest = code.call("__nv_fmodf", [a, b])
    leans_away = ((rest < 0.0) & (b > 0.0)) | ((rest > 0.0) & (b < 0.0))
    return code.select(leans_away, rest + b, rest)


FLOAT_FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "neg": lambda code, x: -x,
    "abs": _device_function("__nv_fabsf"),
    "exp": _device_function("__nv_expf"),
    "log": _device_function("__nv_logf"),
    "sqrt": _device_function("__nv_fsqrt_rn"),
    "rsqrt": lambda code, x: 1.0 / code.call("__nv_fsqrt_rn", [x]),
    "tanh": _device_function("__nv_tanhf"),
    "logistic": _logistic,
    "floor": _device_function("__nv_floorf"),
    "ceil": _device_function("__nv_ceilf"),
    "round": _device_function("__nv_rintf"),
    "trunc": _device_function("__nv_truncf"),
    "sign": _sign,
    "sin": sine,
    "cos": cosine,
    "erf": _device_function("__nv_erff"),
    "add": lambda code, a, b: a + b,
    "sub": lambda code, a, b: a - b,
    "mul": lambda code, a, b: a * b,
    "div": lambda code, a, b: a / b,
    "floor_div": _floor_quotient,
    "floor_mod": _floor_remainder,
    "pow": _device_function("__nv_powf"),
    "atan2": _device_function("__nv_atan2f"),
    "max": maximum,
    "min": minimum,
    "ne": _differs,
    **{name: _comparison(relation) for name, relation in RELATIONS.items()},
}
"""By name of `ir.expr.UNARY`, `BINARY` or `COMPARISONS`."""
