"""Quotients and remainders, rounded towards zero or down. They never trap."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.targets.maths.builder import Builder, V, native

TAKEN = 28
"""Quotient bits per round: their product with the divisor's 24 bits fits a double."""
ROUNDS = -(-(128 + 149) // TAKEN)
"""Number of rounds: enough for the largest float divided by the smallest."""


def integer_quotient(b: Builder[V], x: V, y: V) -> V:
    """Quotient of signed integers, rounded towards zero; 0 if `y` is 0; overflow wraps."""
    return _divided(b, x, y)[0]


def integer_floor_quotient(b: Builder[V], x: V, y: V) -> V:
    """Quotient of signed integers, rounded down; 0 if `y` is 0."""
    quotient, rest = _divided(b, x, y)
    return b.select(_leans_away(b, rest, y), quotient - 1, quotient)


def integer_floor_remainder(b: Builder[V], x: V, y: V) -> V:
    """Remainder of signed integers, with the sign of `y`; 0 if `y` is 0."""
    _, rest = _divided(b, x, y)
    return b.select(_leans_away(b, rest, y), rest + y, rest)


def _divided(b: Builder[V], x: V, y: V) -> tuple[V, V]:
    """(quotient rounded towards zero, remainder). Divisors 0 and -1 are replaced by 1, so that no division traps."""
    zero, minus_one = b.compare("eq", y, 0), b.compare("eq", y, -1)
    divisor = b.select(zero | minus_one, 1, y)
    whole = b.sdiv(x, divisor)
    quotient = b.select(zero, 0, b.select(minus_one, -x, whole))
    return quotient, x - whole * divisor


def _leans_away(b: Builder[V], rest: V, y: V) -> V:
    """Whether a nonzero remainder has another sign than the divisor."""
    return b.compare("ne", rest, 0) & b.compare("slt", rest ^ y, 0)


def floor_quotient(b: Builder[V], x: V, y: V) -> V:
    """floor(x / y). The quotient is in double precision, as in TFLite: 1 / 0.1f would round to 10 in float32."""
    quotient = b.convert("fpext", x, "double") / b.convert("fpext", y, "double")
    return b.convert("fptrunc", native(b, "floor", quotient), "float")


def floor_remainder(b: Builder[V], x: V, y: V) -> V:
    """C's fmodf(x, y), which is exact, plus y if the remainder's sign differs from y's."""
    found = b.native("fmod", x, y)
    rest = _remainder(b, x, y) if found is None else found
    differ = b.compare("olt", rest, 0.0) ^ b.compare("olt", y, 0.0)
    return b.select(differ & b.compare("une", rest, 0.0), rest + y, rest)


def _remainder(b: Builder[V], x: V, y: V) -> V:
    """C's fmodf by long division: each round subtracts y times the leading bits of the quotient."""
    divisor = b.convert("fpext", y, "double")

    def take(i: V, rest: V) -> Sequence[V]:
        quotient = b.convert("bitcast", native(b, "trunc", rest / divisor), "i64")
        return [rest - b.convert("bitcast", quotient & -(1 << 53 - TAKEN), "double") * divisor]

    (wide,) = b.repeat(ROUNDS, take, b.convert("fpext", x, "double"))
    rest = b.convert("fptrunc", wide, "float")
    infinite = b.compare("oeq", native(b, "abs", y), float("inf"))
    return native(b, "copysign", b.select(infinite, x + (x - x), rest), x)
