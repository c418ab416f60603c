"""Operators with two operands that broadcast as in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import frexp, prod
from operator import mul
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, clamp, maximum, minimum, select, substitute
from jitdelegate.ir.forms import IndexMap, Map, Reduce
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.index_forms import Gather
from jitdelegate.ops.call import OPTION, WORDS, Call, given, scale, zero
from jitdelegate.ops.case import Case, Fed, Weights
from jitdelegate.ops.pointwise import Pointwise, X, Y, Z, mapped, pointwise
from jitdelegate.ops.quantization import (
    EIGHT,
    SIXTEEN,
    centred,
    factor_problems,
    fixed,
    limits,
    multiple,
    per_tensor_problems,
    reach,
    result_problems,
    shifted,
    tensor_problems,
)
from jitdelegate.ops.quantized_elementwise import quotient
from jitdelegate.ops.registry import FLOATS, HALF, MAX_PARTS, NUMBERS, QUANTIZED, SHORT, Lowering, Op, op, view
from jitdelegate.ops.rounding import AWAY, INTEGER, WRAPPED, rounding

BROADCASTS = (
    Case(((1, 4, 5, 6), (1, 4, 5, 6))),
    Case(((1, 4, 5, 6), Weights((6,)))),
    Case(((1, 4, 5, 6), Weights(()))),
    Case((Weights((1, 1, 1, 1)), (1, 4, 5, 6))),
    Case(((2, 1, 5, 1), (4, 1, 6))),
    Case(((3,), (3,))),
    Case(((), ())),
    Case(((2, 3, 1, 2, 5), (1, 4, 1, 5))),
    Case(((2, 1, 3, 1, 2, 5), (3, 1, 2, 2, 1))),
    Case(((2, 1, 2, 3, 2, 1, 2, 2), (2, 1, 2, 1, 2, 1, 2, 1))),
)


def typed(*dtypes: str) -> tuple[Case, ...]:
    """Cases of two integer operands."""
    shapes = (((2, 1, 5), (4, 1)), ((3, 7), (3, 7)), ((4, 17), ()))
    return tuple(Case((Fed(a, dtype), Fed(b, dtype)), low=-50, high=50) for dtype in dtypes for a, b in shapes)


def by_constants(dtype: str, *constants: np.ndarray) -> tuple[Case, ...]:
    """Cases of integers divided by constants."""
    return tuple(Case((Fed((2, 17), dtype), constant.astype(dtype)), low=-50, high=50) for constant in constants)


DIVISORS = (np.array([3]), np.array([-7]), np.where(np.arange(17) % 2, -4, 5))
FUSED = tuple(Case(((1, 4, 5, 6), (1, 1, 1, 6)), {OPTION: name}) for name in ("RELU", "RELU6", "RELU_N1_TO_1"))
RUNTIME = tuple(Case(case.inputs, low=1, high=50) for case in typed("int32"))
POSITIVE = tuple(Case(case.inputs, case.attrs, low=0.5) for case in BROADCASTS)


class Arithmetic(Pointwise):
    """A number for each pair of elements of two operands."""

    least = most = 2
    types: ClassVar[tuple[str, ...]] = NUMBERS
    cases: ClassVar[tuple[Case, ...]] = (*BROADCASTS, *typed("int32", "int64"))


def refused_where(condition: Expr, call: Call, operand: int, words: str) -> Lowering:
    """A scalar int32, 0; no run has it in which the condition on X holds for an element of an operand.

    Such an element gives the index -1, at which a Gather refuses the run with these words.
    """
    shape = call.shape(operand)
    index = mapped(-Cast(condition, "int32"), (call.index(operand), shape), shape=shape, dtype="int32")
    if prod(shape) != 1:
        index = Lowering(Reduce(kind="min", axes=tuple(range(len(shape)))), (index,), (), "int32")
    gathered = Lowering(Gather(refusal=words), (np.zeros(1, np.int32), view(index, (1, 1), "int32")), (1,), "int32")
    return view(gathered, (), "int32")


def checked(result: Lowering, check: Lowering) -> Lowering:
    """The result of a Map, which reads the scalar `check`: 0 instead of any element where that is negative."""
    form = result.form
    assert isinstance(form, Map)
    is_allowed = binary("ge", Arg(len(form.operands)), 0)
    chosen = select(is_allowed, form.epilogue, Const(0))
    return Lowering(
        Map(chosen, (*form.operands, IndexMap.along())), (*result.inputs, check), result.shape, result.dtype
    )


class Division(Arithmetic):
    """At a 0 among the divisors that LiteRT's kernel refuses, the run ends in its error; constants are checked while
    compiling."""

    words: ClassVar[str] = "Division by 0"
    """What LiteRT says of a 0."""
    refuses: ClassVar[tuple[str, ...]] = ("float32", "int32", "int8", "int16")
    """The types of divisors in which LiteRT refuses a 0."""

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        divisors = call.constant(1)
        if divisors is not None and (divisors == self._nothing(call)).any() and self._is_checked(call):
            yield f"{self.name}: input 1 has a 0, at which LiteRT stops with an error."

    def lowering(self, call: Call) -> Lowering:
        return self._refusing(super().lowering(call), call)

    def quantized_lowering(self, call: Call) -> Lowering:
        """FLOOR_DIV and FLOOR_MOD divide stored numbers, whatever they stand for."""
        return self._refusing(pointwise(Cast(self._of_stored(), call.output.dtype), call), call)

    def _of_stored(self) -> Expr:
        return substitute(self.formula, (Cast(X, "int32"), Cast(Y, "int32")))

    def _refusing(self, result: Lowering, call: Call) -> Lowering:
        if call.constant(1) is not None or not self._is_checked(call):
            return result
        words = f"{self.words}: found a 0 in input 1, expected other divisors"
        return checked(result, refused_where(binary("eq", X, self._nothing(call)), call, 1, words))

    def _is_checked(self, call: Call) -> bool:
        return call.tensor(1).dtype in self.refuses

    def _nothing(self, call: Call) -> int:
        """The stored number that is a 0."""
        return 0


def _is_power(number: float) -> bool:
    return frexp(number)[0] == 0.5


HIGHEST_SHORT = 2.0**15
"""Products of uint8 by one number have 16 bits in LiteRT's kernel, in steps of the output."""
HIGHEST_SCALE = 2.0**64
"""Of operands of a product."""
HIGHEST_REACH = 127
"""Sums of bytes with such scales, in units of the output's, have 16 bits in LiteRT's kernel."""


class QuantizedArithmetic(Arithmetic):
    """Of quantized values too: both operands and the output have their own scales."""

    quantized: ClassVar[tuple[str, ...]] = ("int8", "uint8", "int16")
    activates = True

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from self.scale_problems(call)
        scales = [float(scale(tensor)) for tensor in (*call.operands, call.output)]
        if call.output.dtype == "int16" and call.option("pot_scale_int16", False) and all(map(_is_power, scales)):
            yield f"{self.name} of int16 with scales that are powers of two is not supported."

    def scale_problems(self, call: Call) -> Iterator[str]:
        """Reasons to refuse the parameters of operands and output."""
        yield from per_tensor_problems(call, *call.operands, call.output)

    def quantized_lowering(self, call: Call) -> Lowering:
        rule = rounding(call, call.output.dtype)
        return pointwise(self.rounded(rule, call.tensor(0), call.tensor(1), call), call)

    def rounded(self, rule: str, a: Tensor, b: Tensor, call: Call) -> Expr:
        """The formula of stored numbers, rounded by the rule."""
        raise NotImplementedError


def quantized_sum(rule: str, a: Tensor, b: Tensor, call: Call, sign: int) -> Expr:
    """X + sign * Y, of the stored numbers of tensors with scales of their own.

    XNNPACK has integer factors, of 21 bits for the larger scale. LiteRT's kernels scale both to twice the larger scale
    with 20 further bits (15 for int16), and the sum to the output: three roundings, the first two of which are double
    ones, but not where ADD's kernel for int16 computes sixteen elements at once.
    """
    output, activation, values = call.output, call.option(OPTION, "NONE"), (centred(X, a), centred(Y, b))
    if rule == INTEGER:
        ratios = scale(a) / scale(output), scale(b) / scale(output)
        shift = 21 - frexp(max(ratios))[1]
        factors = [int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios]
        return shifted(values[0] * Const(factors[0]) + values[1] * Const(sign * factors[1]), shift, output, activation)
    left = 15 if output.dtype == "int16" else 20
    twice = 2.0 * float(max(scale(a), scale(b)))
    at_once = sign > 0 and output.dtype == "int16" and _sums_sixteen(call)
    parts = [
        fixed(value, float(scale(t)) / twice * 2.0**left)
        if at_once
        else fixed(value * Const(1 << left), float(scale(t)) / twice)
        for value, t in zip(values, (a, b), strict=True)
    ]
    total = parts[0] + parts[1] if sign > 0 else parts[0] - parts[1]
    rounded, _ = multiple(total, np.asarray(twice / (2.0**left * float(scale(output)))), rule, output, activation, 2)
    return rounded


def _sums_sixteen(call: Call) -> bool:
    """Whether LiteRT's optimized kernel for operands of one shape computes, for all but the last elements. Axes of size
    1 before the others do not count."""
    is_optimized, rank = call.graph.quantized.rounding == "litert", len(call.output.shape)
    shapes = {(1,) * (rank - len(shape)) + shape for shape in map(call.shape, range(2))}
    return is_optimized and len(shapes) == 1 and call.output.size >= SIXTEEN


@op("ADD")
class Add(QuantizedArithmetic):
    """y = a + b"""

    narrow = (*HALF, "int16")

    cases = (*FUSED, *Arithmetic.cases)
    formula = X + Y

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        is_optimized = call.graph.quantized.rounding == "litert" and rounding(call, call.output.dtype) == AWAY
        ratio = sum(float(scale(tensor) / scale(call.output)) for tensor in call.operands)
        if is_optimized and call.output.dtype in ("int8", "uint8") and ratio >= HIGHEST_REACH:
            yield f"ADD: scales that are {ratio:.3g} times the output's, for which LiteRT's sums of bytes overflow."

    def rounded(self, rule: str, a: Tensor, b: Tensor, call: Call) -> Expr:
        return quantized_sum(rule, a, b, call, 1)


@op("SUB")
class Sub(QuantizedArithmetic):
    """y = a - b"""

    narrow = HALF

    cases = (*FUSED, *Arithmetic.cases)
    formula = X - Y

    def rounded(self, rule: str, a: Tensor, b: Tensor, call: Call) -> Expr:
        return quantized_sum(rule, a, b, call, -1)


@op("MUL")
class Mul(QuantizedArithmetic):
    """y = a * b"""

    types = (*NUMBERS, "uint32")
    narrow = (*HALF, "int16")

    cases = (*FUSED, *Arithmetic.cases)
    formula = X * Y

    def scale_problems(self, call: Call) -> Iterator[str]:
        """Only the product of the scales counts: a large one may meet a small one."""
        yield from tensor_problems(call, *call.operands, call.output, most=HIGHEST_SCALE)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        a, b = call.operands
        factor = scale(a) * scale(b) / scale(call.output)
        yield from factor_problems(call, factor)
        is_own = rounding(call, call.output.dtype) == AWAY
        is_optimized = is_own and call.graph.quantized.rounding == "litert"
        most = reach(a) * reach(b) * float(factor)
        yield from result_problems(call, most if is_own else 0.0)
        if is_optimized and call.output.dtype == "uint8" and 1 in (a.size, b.size) and most >= HIGHEST_SHORT:
            yield f"MUL: results that reach {most:.3g} steps of the output, for which LiteRT's products overflow."

    def rounded(self, rule: str, a: Tensor, b: Tensor, call: Call) -> Expr:
        product = centred(X, a) * centred(Y, b)
        factor = np.asarray(scale(a) * scale(b) / scale(call.output), np.float64)
        rounded, _ = multiple(product, factor, rule, call.output, call.option(OPTION, "NONE"), 2)
        return rounded


@op("DIV")
class Div(Division):
    """y = a / b; quotients of integers are rounded towards zero, those of quantized values as LiteRT's kernel does"""

    types = WORDS
    narrow = HALF
    quantized = ("int8", "uint8", "int16")
    words = "data[i] != zero_point was not true"
    refuses = ("int32", *quantized)
    activates = True
    cases = (
        *POSITIVE,
        *(Case(case.inputs, case.attrs, low=0.5) for case in FUSED),
        *by_constants("int32", *DIVISORS),
        *RUNTIME,
    )
    formula = X / Y

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, *call.operands, call.output)

    def quantized_lowering(self, call: Call) -> Lowering:
        data, divisor, output = *call.operands, call.output
        factor = float(scale(data) / (scale(divisor) * scale(output)))
        whole = quotient(centred(X, data), centred(Y, divisor), factor) + Const(zero(output))
        limited = Cast(clamp(whole, *limits(output, call.option(OPTION, "NONE"))), output.dtype)
        return self._refusing(pointwise(limited, call), call)

    def _nothing(self, call: Call) -> int:
        return zero(call.tensor(1))


@op("FLOOR_DIV")
class FloorDiv(Division):
    """y = a / b, rounded down; of stored numbers where the values are quantized"""

    types = WORDS
    quantized = ("int8", "int16")
    cases = (*POSITIVE, *by_constants("int32", *DIVISORS), *RUNTIME)
    formula = binary("floor_div", X, Y)

    def quantized_lowering(self, call: Call) -> Lowering:
        """The lowest number by -1 is the highest one in LiteRT's groups of eight elements, itself elsewhere."""
        shape, size = call.output.shape, call.output.size
        is_wrapped = rounding(call, call.output.dtype) == WRAPPED
        whole = size - size % EIGHT if call.shape(0) == call.shape(1) and not is_wrapped else 0
        if not whole:
            return super().quantized_lowering(call)
        exact, limit = self._of_stored(), limits(call.output)[1]
        if whole == size:
            return self._refusing(pointwise(Cast(minimum(exact, limit), call.output.dtype), call), call)
        highest = np.where(np.arange(size) < whole, limit, limit + 1).astype(np.int32).reshape(shape)
        first, second = ((call.index(operand), shape) for operand in (0, 1))
        limited = Cast(minimum(exact, Z), call.output.dtype)
        divided = mapped(limited, first, second, (highest, shape), shape=shape, dtype=call.output.dtype)
        return self._refusing(divided, call)


@op("FLOOR_MOD")
class FloorMod(Division):
    """y = a - b * floor(a / b); of stored numbers where the values are quantized"""

    quantized = ("int8", "int16")
    refuses = ("int32", "int64", *quantized)

    cases = (*POSITIVE, *by_constants("int32", *DIVISORS), *by_constants("int64", *DIVISORS), *RUNTIME)
    formula = binary("floor_mod", X, Y)


class Selection(Arithmetic):
    """One of two operands. Of quantized ones LiteRT compares stored numbers, whatever they stand for."""

    narrow = (*SHORT, "int8", "uint8", "int16")

    quantized = QUANTIZED


@op("MAXIMUM")
class Maximum(Selection):
    """y = the larger of a and b"""

    formula = maximum(X, Y)


@op("MINIMUM")
class Minimum(Selection):
    """y = the smaller of a and b"""

    formula = minimum(X, Y)


@op("SQUARED_DIFFERENCE")
class SquaredDifference(QuantizedArithmetic):
    """y = (a - b) * (a - b)"""

    types = WORDS
    narrow = HALF
    quantized = ("int8",)
    activates = False
    cases = (*BROADCASTS, *typed("int32"))
    formula = (X - Y) * (X - Y)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        yield from factor_problems(call, max(map(scale, call.operands)) ** 2 / scale(call.output))

    def rounded(self, rule: str, a: Tensor, b: Tensor, call: Call) -> Expr:
        """Both scaled to twice the larger scale with 7 further bits, then the square to the output."""
        twice, output = 2.0 * float(max(scale(a), scale(b))), call.output
        parts = [fixed(centred(v, t) * Const(1 << 7), float(scale(t)) / twice) for v, t in ((X, a), (Y, b))]
        difference = parts[0] - parts[1]
        factor = twice * twice / ((1 << 14) * float(scale(output)))
        rounded, _ = multiple(difference * difference, np.asarray(factor), rule, output, "NONE", 2)
        return rounded


@op("ATAN2")
class Atan2(Arithmetic):
    """y = the angle of the point (b, a)"""

    types = FLOATS
    narrow = SHORT
    cases = (Case(((2, 3, 5), (2, 3, 5))), Case(((17,), (17,))))
    formula = binary("atan2", X, Y)

    def problems(self, call: Call) -> Iterator[str]:
        if call.shape(0) != call.shape(1):
            yield f"ATAN2: the shapes {list(call.shape(0))} and {list(call.shape(1))} differ, LiteRT has no broadcast."


@op("BITWISE_XOR")
class BitwiseXor(Arithmetic):
    """y = the bits in which a and b differ"""

    types = ("int32",)
    cases = typed("int32")
    formula = binary("xor", X, Y)


@op("RIGHT_SHIFT")
class RightShift(Arithmetic):
    """y = a shifted right by b bits, keeping its sign; b is limited to the range from 0 to the number of bits - 1"""

    types = ("int32",)
    cases = typed("int32")
    formula = binary("shift_right", X, Y)


@op("POW")
class Pow(Arithmetic):
    """y = a to the power of b; for integers, b is a constant without negative elements; NaN for roots of negatives"""

    types = WORDS
    cases = (
        *POSITIVE,
        *(Case(((2, 17), np.array(exponent, np.float32))) for exponent in (0, 1, 2, 3, -2, 7, 0.5)),
        *by_constants("int32", np.array([3]), np.arange(17) % 5),
    )
    formula = binary("pow", X, Y)

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        exponents = call.constant(1)
        if call.tensor(1).dtype != "float32" and (exponents is None or exponents.min() < 0):
            yield "POW: input 1 may be negative; integers have constants that are not as exponents only."

    def lowering(self, call: Call) -> Lowering:
        """Products, for a few whole exponents."""
        exponents = call.constant(1)
        if exponents is not None and exponents.size == 1 and exponents.flat[0] in (1, 2, 3, 4):
            product = reduce(mul, [X] * int(exponents.flat[0]))
            access = IndexMap.broadcast(call.shape(0), call.output.shape)
            return Lowering(Map(product, (access,)), (call.index(0),))
        return super().lowering(call)


@op("ADD_N")
class AddN(Op):
    """y = the sum of all operands, which have the same shape"""

    types = WORDS
    least, most = 2, MAX_PARTS
    cases = (
        Case(((2, 3, 4),) * 2),
        Case(((1, 4, 5, 6),) * 7),
        Case((Fed((3, 5), "int32"),) * 3),
    )

    def problems(self, call: Call) -> Iterator[str]:
        shapes = {tensor.shape for tensor in call.operands}
        if len(call.operands) < call.count or len(shapes) > 1:
            yield f"ADD_N: the inputs' shapes differ: {' and '.join(str(list(shape)) for shape in sorted(shapes))}."

    def lowering(self, call: Call) -> Lowering:
        shape, dtype = call.shape(0), call.tensor(0).dtype
        first, *others = call.node.inputs
        total: int | Lowering = first
        for index in others:
            total = mapped(X + Y, (total, shape), (index, shape), shape=shape, dtype=dtype)
        assert isinstance(total, Lowering)
        return total

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return [reduce(np.add, given(arrays))]
