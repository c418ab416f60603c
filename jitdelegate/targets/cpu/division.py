"""Quotients and remainders: rounded towards zero or down, and never a trap."""

from __future__ import annotations

from jitdelegate.targets.cpu.vector_ir import DOUBLE, INDEX, Function, Value, is_float, lanes_of, vector

TAKEN = 28
"""Bits of a float's quotient that one round takes off: times the divisor's 24 they fit a double."""
ROUNDS = -(-(128 + 149) // TAKEN)
"""Enough for the largest float by the smallest."""


def integer_quotient(f: Function, a: Value, b: Value) -> Value:
    """Towards zero; 0 where `b` is 0, and no division traps."""
    minus_one, zero = f.compare("eq", b, -1), f.compare("eq", b, 0)
    one = f.literal(b.type, 1)
    divisor = f.select(minus_one, one, f.select(zero, one, b))
    quotient = f.select(minus_one, f.literal(a.type, 0) - a, f.arithmetic("sdiv", a, divisor))
    return f.select(zero, f.literal(a.type, 0), quotient)


def integer_floor_quotient(f: Function, a: Value, b: Value) -> Value:
    """Rounded down; 0 where `b` is 0."""
    quotient = integer_quotient(f, a, b)
    rest = f.select(f.compare("eq", b, 0), b, a - quotient * b)
    return f.select(_is_across(f, rest, b), quotient - 1, quotient)


def integer_floor_remainder(f: Function, a: Value, b: Value) -> Value:
    """With the sign of `b`; 0 where that is 0."""
    rest = f.select(f.compare("eq", b, 0), b, a - integer_quotient(f, a, b) * b)
    return f.select(_is_across(f, rest, b), rest + b, rest)


def _is_across(f: Function, rest: Value, b: Value) -> Value:
    """Whether the rest is not 0 and its sign not that of `b`."""
    less, other = ("olt", "une") if is_float(b.type) else ("slt", "ne")
    below = f.compare(less, rest, 0)
    differ = f.emit(below.type, f"xor {below}, {f.compare(less, b, 0).text}")
    return f.emit(below.type, f"and {differ}, {f.compare(other, rest, 0).text}")


def floor_quotient(f: Function, a: Value, b: Value) -> Value:
    """floor(a / b), the quotient in double precision."""
    double = vector(lanes_of(a.type), DOUBLE)
    quotient = f.cast("fpext", a, double) / f.cast("fpext", b, double)
    return f.cast("fptrunc", f.intrinsic("floor", double, quotient), a.type)


def floor_remainder(f: Function, a: Value, b: Value) -> Value:
    """C's fmodf(a, b), which is exact, plus b where the signs of the two differ."""
    double = vector(lanes_of(a.type), DOUBLE)
    divisor = f.cast("fpext", b, double)

    def take(i: Value, rest: Value) -> list[Value]:
        quotient = f.intrinsic("trunc", double, rest / divisor)
        bits = f.cast("bitcast", quotient, vector(lanes_of(a.type), INDEX))
        mask = f.literal(bits.type, -(1 << (53 - TAKEN)))
        quotient = f.cast("bitcast", f.emit(bits.type, f"and {bits}, {mask.text}"), double)
        return [rest - quotient * divisor]

    (rest,) = f.loop(ROUNDS, take, f.cast("fpext", a, double))
    rest = f.cast("fptrunc", rest, a.type)
    infinite = f.compare("oeq", f.intrinsic("fabs", b.type, b), float("inf"))
    rest = f.intrinsic("copysign", a.type, f.select(infinite, a + (a - a), rest), a)
    return f.select(_is_across(f, rest, b), rest + b, rest)
