"""Elementwise functions of int16 numbers: interpolated tables of 513 entries, LOGISTIC and TANH of fixed-point numbers.

Source: experiments with LiteRT 2.3, and the kernels of its sources (tflite/kernels/internal/common.h,
reference/integer_ops/logistic.h and tanh.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from functools import cache
from math import e, erfc, frexp, log2, tanh

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, clamp, minimum, select, unary
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.quantized import DIGITS, Table, half_away
from jitdelegate.ops.call import Call, scale, zero
from jitdelegate.ops.quantization import limits, real_value
from jitdelegate.ops.rounding import FUSED, rounding

X = Arg(0)
HALF, RANGE = 1 << 15, (1 << 16) - 1
EXPONENT = 32
POLYNOMIAL = tuple(
    c / EXPONENT**k for c, k in ((0.05550361559341535, 3), (0.2402284522445722, 2), (0.6931471806916203, 1))
)
"""Of 2**(r / EXPONENT), by powers of r. Source: glibc, sysdeps/ieee754/flt-32/e_exp2f_data.c."""


def exponential_32(x: np.ndarray) -> np.ndarray:
    """e**x of float32 as glibc's expf gives it, which not always is the nearest float32: 2**(k / 32) * a polynomial."""
    turns = x.astype(np.float64) * (EXPONENT * log2(e))
    k = np.rint(turns)
    cubic, square, line = POLYNOMIAL
    r = turns - k
    polynomial = (cubic * r + square) * (r * r) + (line * r + 1)
    return np.asarray(polynomial * np.exp2(k / EXPONENT), np.float32)


def interpolated(value: Expr, entries: tuple[int, ...]) -> Expr:
    """A table's function of an int32, which is limited to the range of an int16 before; an int32."""
    fine = Table(Cast(clamp(value, -HALF, HALF - 1), "int16"), entries, "int32")
    return binary("shift_right", fine + Const(1 << DIGITS - 1), Const(DIGITS))


def table_16(
    function: Callable[[np.ndarray], np.ndarray],
    step: float,
    middle: int,
    result: float,
    dtype: str = "float32",
    *,
    is_fused: bool = False,
) -> tuple[int, ...]:
    """The 513 entries of a function of int16 numbers with scale `step` and zero point `middle`.

    Entries lie so that the largest errors between and at them are alike. LiteRT calculates them in `dtype`, and gets
    infinite ones for values that it has no number for; those that then are no numbers become 0.

    Args:
        is_fused: whether products are rounded only after what is added to them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _entries(function, step, middle, result, dtype, "float64" if is_fused else dtype)


def _entries(
    function: Callable[[np.ndarray], np.ndarray], step: float, middle: int, result: float, dtype: str, wide: str
) -> tuple[int, ...]:
    real = np.dtype(dtype).type
    first, last = (real(step) * real(limit - middle) for limit in (-HALF, HALF - 1))
    steps = (last - first) / real(512)
    fine = real(RANGE + 1) / (real(result) * real(HALF - 1) - real(result) * real(-HALF))
    at = (np.arange(513, dtype=wide) * steps + first).astype(dtype)
    values, between = (half_away(function(points) * fine) for points in (at[:-1], at[:-1] + steps / real(2)))
    following = (function(at[1:]).astype(wide) * fine + values).astype(dtype)
    error = half_away(following / real(2)) - between
    entries = np.append(values - half_away(error / real(2)), half_away(function(np.array([last])) * fine))
    return tuple(np.nan_to_num(np.clip(entries, -HALF, HALF - 1), nan=0).astype(int).tolist())


def curve_problems(call: Call) -> Iterator[str]:
    """Reasons to refuse EXP, LOG, RSQRT or GELU of int16 data."""
    if zero(call.tensor(0)) or zero(call.output):
        yield f"{call.node.op} of int16 has zero points, expected 0."
    if np.abs(np.diff(_curve(call))).max() >= HALF:
        yield f"{call.node.op}: its table for int16 rises so steeply that LiteRT's interpolation overflows."


def tabulated_16(call: Call) -> Expr:
    """EXP, LOG, RSQRT and GELU."""
    return Cast(interpolated(Cast(X, "int32"), _curve(call)), "int16")


def _curve(call: Call) -> tuple[int, ...]:
    data, output = call.tensor(0), call.output
    below, above = (np.float32(limit) * scale(output) for limit in (-HALF, HALF - 1))

    def logarithm(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, np.log(np.maximum(x, 1e-38).astype(np.float64)).astype(np.float32), below)

    def inverse_root(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, np.float32(1) / np.sqrt(np.maximum(x, np.float32(1e-38))), above)

    functions = {"EXP": exponential_32, "LOG": logarithm, "RSQRT": inverse_root, "GELU": exact_gelu}
    function = approximate_gelu if call.option("approximate", False) else functions[call.node.op]
    is_fused = rounding(call, data.dtype) == FUSED
    return table_16(function, float(scale(data)), 0, float(scale(output)), is_fused=is_fused)


def exact_gelu(x: np.ndarray) -> np.ndarray:
    """x / 2 * erfc(-x / sqrt(2)) of float32, in the order of LiteRT's kernel."""
    return np.asarray(np.float32(0.5) * x * of_floats("erfc", x * np.float32(-(0.5**0.5))))


def approximate_gelu(x: np.ndarray) -> np.ndarray:
    """x / 2 * (1 + tanh(...)) of float32, in the order of LiteRT's kernel."""
    inner = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(np.float32(0.5) * x * (np.float32(1) + of_floats("tanh", inner)))


def of_floats(name: str, x: np.ndarray) -> np.ndarray:
    """erfc or tanh of float32s, by the C library of this machine, as in LiteRT: its results may be an ulp beside the
    nearest ones, which stand for them where no such library is found."""
    function = _library_function(name)
    return np.array([function(value) for value in x.tolist()], np.float32)


@cache
def _library_function(name: str) -> Callable[[float], float]:
    try:
        function = getattr(ctypes.CDLL(find_library("m")), f"{name}f")
    except (AttributeError, OSError):
        return {"erfc": erfc, "tanh": tanh}[name]
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    return function  # type: ignore[no-any-return]


def square_root(data: Tensor, output: Tensor) -> Expr:
    """SQRT: the real root, divided by the scale and truncated."""
    root = Cast(unary("sqrt", real_value(X, data)) / Const(float(scale(output))), "int32") + Const(zero(output))
    return Cast(clamp(root, *limits(output)), output.dtype)


def sigmoid_problems(call: Call) -> Iterator[str]:
    """Reasons to refuse LOGISTIC or TANH of int16 data."""
    if zero(call.tensor(0)) or zero(call.output) or scale(call.output) != np.float32(2.0**-15):
        yield f"{call.node.op} of int16 has other zero points than 0, or another scale of the output than 2**-15."


def logistic_16(call: Call) -> Expr:
    """LOGISTIC: gemmlowp's where the data has 12 bits of fraction, else a table of the sigmoid."""
    if _whole(call) == 3:
        return Cast(FixedPoint("logistic", X, 3), "int16")
    size, result = _sigmoid(_thirds(call, (0,)), 9)
    fine = select(binary("ge", size, 0), result + Const(1 << 9), Const((1 << 25) + (1 << 9) - 1) - result)
    return Cast(binary("shift_right", fine, Const(10)), "int16")


def tanh_16(call: Call) -> Expr:
    """TANH: gemmlowp's where the data has 12 or 11 bits of fraction, else 2 * the sigmoid of 2 * x - 1."""
    whole = _whole(call)
    if whole in (3, 4):
        return Cast(FixedPoint("tanh", X, whole), "int16")
    size, result = _sigmoid(_thirds(call, (0, 1)), 8)
    middle, half = (1 << 23), 1 << 7
    fine = select(binary("ge", size, 0), result - Const(middle - half), Const(middle + half - 1) - result)
    return Cast(binary("shift_right", fine, Const(8)), "int16")


def _whole(call: Call) -> int | None:
    """The integer bits of the data, if its scale is a power of two and LiteRT's optimized kernels compute the node."""
    mantissa, exponent = frexp(scale(call.tensor(0)))
    is_power = mantissa == 0.5 and call.graph.quantized.rounding != "reference"
    return exponent + 14 if is_power else None


def _thirds(call: Call, shifts: tuple[int, ...]) -> Expr:
    """The data in steps of 1 / (3 * 4096), an int32.

    shifts: for scales that are 1 / 4096 times 2 to one of these powers, the factor is a whole number.
    """
    mantissa, exponent = frexp(scale(call.tensor(0)))
    if mantissa == 0.5 and exponent + 11 in shifts:
        return Cast(X, "int32") * Const(3 << exponent + 11)
    factor, shift = float(scale(call.tensor(0))) * 4096 * 3, 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = 2 * factor, shift + 1
    half = 1 << shift >> 1
    return binary("shift_right", Cast(X, "int32") * Const(int(factor)) + Const(half), Const(shift))


@cache
def _sigmoid_entries() -> tuple[int, ...]:
    """The logistic of k / 24 in 16 bits of fraction, and half of what a straight line to the next entry lacks. The last
    one is the largest number."""
    ends, middles = (65536 / (1 + np.exp(-(np.arange(256) + offset) / 24)) for offset in (0, 0.5))
    balanced = ends[:-1] + (middles[:-1] - (ends[:-1] + ends[1:]) / 2) / 2
    return (*half_away(balanced).astype(int).tolist(), RANGE)


def _sigmoid(value: Expr, bits: int) -> tuple[Expr, Expr]:
    """The value, and the logistic of its magnitude / 24 / 2**bits: between two entries, by `bits` bits."""
    size = unary("abs", value)
    entry, rest = binary("shift_right", size, Const(bits)), binary("and", size, Const((1 << bits) - 1))
    at = Cast(minimum(entry, 255), "uint8")
    entries = _sigmoid_entries()
    low, high = (Table(at, values, "int32") for values in (entries, (*entries[1:], RANGE)))
    between = low * Const(1 << bits) + rest * (high - low)
    most = HALF - 1 << 10 if bits == 9 else RANGE << 8
    return value, select(binary("ge", entry, 255), most, between)
