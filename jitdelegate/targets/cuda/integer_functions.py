"""The functions of expressions on integers of all sizes and on bools, which wrap and never trap."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jitdelegate.targets.cuda.device_code import Code, Value

RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


def _compare(code: Code, dtype: str, relation: str, a: Value, b: Value) -> Value:
    compare = code.builder.icmp_signed if _is_signed(dtype) else code.builder.icmp_unsigned
    return Value(code, compare(relation, a.value, b.value))


def _comparison(relation: str) -> Callable[..., Value]:
    return lambda code, dtype, a, b: _compare(code, dtype, relation, a, b)


def maximum(code: Code, dtype: str, a: Value, b: Value) -> Value:
    """The larger."""
    return code.select(_compare(code, dtype, "<", a, b), b, a)


def minimum(code: Code, dtype: str, a: Value, b: Value) -> Value:
    """The smaller."""
    return code.select(_compare(code, dtype, "<", b, a), b, a)


def _magnitude(code: Code, dtype: str, x: Value) -> Value:
    return code.select(_compare(code, dtype, "<", x, code.like(0, x)), -x, x)


def _sign(code: Code, dtype: str, x: Value) -> Value:
    zero = code.like(0, x)
    negative = code.select(_compare(code, dtype, "<", x, zero), code.like(-1, x), zero)
    return code.select(_compare(code, dtype, ">", x, zero), 1, negative)


def _divided(code: Code, dtype: str, a: Value, b: Value) -> tuple[Value, Value]:
    """Quotient towards zero and remainder of signed integers: (0, 0) by 0, and what overflows wraps."""
    assert _is_signed(dtype), dtype
    builder = code.builder
    by_zero, by_minus_one = b.equals(0), b.equals(-1)
    divisor = code.select(by_zero | by_minus_one, 1, b)
    whole = Value(code, builder.sdiv(a.value, divisor.value))
    quotient = code.select(by_zero, 0, code.select(by_minus_one, -a, whole))
    return quotient, a - whole * divisor


def _quotient(code: Code, dtype: str, a: Value, b: Value) -> Value:
    return _divided(code, dtype, a, b)[0]


def _floor_quotient(code: Code, dtype: str, a: Value, b: Value) -> Value:
    quotient, rest = _divided(code, dtype, a, b)
    return code.select(_leans_away(rest, b), quotient - 1, quotient)


def _floor_remainder(code: Code, dtype: str, a: Value, b: Value) -> Value:
    _, rest = _divided(code, dtype, a, b)
    return code.select(_leans_away(rest, b), rest + b, rest)


def _leans_away(rest: Value, b: Value) -> Value:
    """Whether a remainder towards zero is not on the divisor's side of 0."""
    return ~rest.equals(0) & ((rest ^ b) < 0)


def _power(code: Code, dtype: str, a: Value, b: Value) -> Value:
    """To the power of a signed integer that is not negative: squared once for each of its bits."""
    start = [code.like(1, a), a, b]
    with code.carried(a.value.type.width - 1, start) as (_, (result, base, left), following):
        odd = ~(left & 1).equals(0)
        following[:] = [code.select(odd, result * base, result), base * base, left >> 1]
    return following[0]


def _shift_right(code: Code, dtype: str, a: Value, b: Value) -> Value:
    """By 0 bits at least, and all but one at most."""
    most = code.like(a.value.type.width - 1, a)
    distance = minimum(code, dtype, maximum(code, dtype, b, code.like(0, b)), most)
    shift = code.builder.ashr if _is_signed(dtype) else code.builder.lshr
    return Value(code, shift(a.value, distance.value))


def _logical_not(code: Code, dtype: str, x: Value) -> Value:
    assert dtype == "bool", dtype
    return ~x


INTEGER_FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "neg": lambda code, dtype, x: -x,
    "abs": _magnitude,
    "sign": _sign,
    "not": _logical_not,
    "add": lambda code, dtype, a, b: a + b,
    "sub": lambda code, dtype, a, b: a - b,
    "mul": lambda code, dtype, a, b: a * b,
    "div": _quotient,
    "floor_div": _floor_quotient,
    "floor_mod": _floor_remainder,
    "pow": _power,
    "max": maximum,
    "min": minimum,
    "and": lambda code, dtype, a, b: a & b,
    "or": lambda code, dtype, a, b: a | b,
    "xor": lambda code, dtype, a, b: a ^ b,
    "shift_right": _shift_right,
    **{name: _comparison(relation) for name, relation in RELATIONS.items()},
}
"""By name of `ir.expr.UNARY`, `BINARY` or `COMPARISONS`."""
