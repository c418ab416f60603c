"""Operators that compute each element of one operand on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Cast as Converted
from jitdelegate.ir.expr import Expr, clamp, converted, fma, maximum, minimum, unary
from jitdelegate.ops.call import WORDS, Call, given, scale
from jitdelegate.ops.case import Case, Fed, Weights
from jitdelegate.ops.fourier import part, rank_problems
from jitdelegate.ops.pointwise import Pointwise, X, Y, mapped, pointwise
from jitdelegate.ops.quantization import (
    EIGHT,
    LEAST_FACTOR,
    centred,
    factor_problems,
    multiple,
    per_tensor_problems,
    tabulated,
)
from jitdelegate.ops.quantize import Grouped
from jitdelegate.ops.quantized_elementwise import (
    elu,
    gelu,
    hard_swish,
    inverse_root,
    leaky_relu,
    looked_up,
    magnitude,
    prelu,
)
from jitdelegate.ops.quantized_words import (
    curve_problems,
    logistic_16,
    sigmoid_problems,
    square_root,
    tabulated_16,
    tanh_16,
)
from jitdelegate.ops.registry import ANY, BYTES, HALF, NUMBERS, SHORT, Lowering, Op, cast, op
from jitdelegate.ops.rounding import AWAY, EIGHTS, rounding

SHAPES = (Case(((1, 8, 8, 4),)), Case(((5,),)), Case(((1, 1, 1, 1),)), Case(((),)))
WHOLE = tuple(Case((Fed((2, 3, 5), dtype),)) for dtype in ("int32", "int64"))
POSITIVE = (Case(((1, 8, 8, 4),), low=0.125), Case(((2, 3, 5),), low=0.125))


HARD_SWISH_RATIOS = 2.0**-9, 2.0**7
"""Of the input's scale to the output's: the least one, and the first that is too large."""


class Elementwise(Pointwise):
    """One operand, and an output of the same shape. Of quantized values, a table of all of them."""

    quantized: ClassVar[tuple[str, ...]] = BYTES
    narrow: ClassVar[tuple[str, ...]] = HALF
    cases: ClassVar[tuple[Case, ...]] = SHAPES

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, call.tensor(0), call.output)

    def quantized_lowering(self, call: Call) -> Lowering:
        return pointwise(tabulated(self.expression(call.node.attrs), call.tensor(0), call.output), call)


@op("ABS")
class Abs(Elementwise):
    """y = |x|"""

    types = WORDS
    narrow = (*HALF, "int16")
    quantized = ("int8", "int16")
    cases = (*SHAPES, WHOLE[0])
    formula = unary("abs", X)

    def quantized_lowering(self, call: Call) -> Lowering:
        return pointwise(magnitude(call.tensor(0), call.output), call)


@op("NEG")
class Neg(Elementwise):
    """y = -x; of quantized values LiteRT negates the stored numbers, whatever their zero point"""

    types = NUMBERS
    narrow = (*SHORT, "int8", "int16")
    quantized = ("int8", "int16")
    cases = (*SHAPES, *WHOLE)
    formula = -X

    def quantized_lowering(self, call: Call) -> Lowering:
        negated = Converted(-Converted(X, "int32"), call.output.dtype)
        return pointwise(looked_up(negated, call.tensor(0), call.output), call)


@op("FLOOR")
class Floor(Elementwise):
    """y = the largest integer that is not above x"""

    narrow = SHORT
    formula = unary("floor", X)


@op("CEIL")
class Ceil(Elementwise):
    """y = the smallest integer that is not below x"""

    formula = unary("ceil", X)


@op("ROUND")
class Round(Elementwise):
    """y = the integer nearest to x; of two, the even one"""

    narrow = SHORT
    cases = (*SHAPES, Case((Fed((3, 4), "float32"),), low=-0.5, high=0.5))
    formula = unary("round", X)


@op("SIGN")
class Sign(Elementwise):
    """y = -1, 0 or 1"""

    types = WORDS
    narrow = ()
    cases = (*SHAPES, WHOLE[0])
    formula = unary("sign", X)


@op("SIN")
class Sin(Elementwise):
    """y = the sine of x"""

    formula = unary("sin", X)


@op("COS")
class Cos(Elementwise):
    """y = the cosine of x"""

    formula = unary("cos", X)


@op("SQUARE")
class Square(Elementwise):
    """y = x * x"""

    formula = X * X


class Curve(Elementwise):
    """A function that is a table of int16 numbers too, between whose entries values are interpolated."""

    quantized: ClassVar[tuple[str, ...]] = ("int8", "int16")

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        if call.tensor(0).dtype == "int16":
            yield from curve_problems(call)

    def quantized_lowering(self, call: Call) -> Lowering:
        is_word = call.tensor(0).dtype == "int16"
        return pointwise(tabulated_16(call), call) if is_word else super().quantized_lowering(call)


@op("EXP")
class Exp(Curve):
    """y = e to the power of x"""

    formula = unary("exp", X)


@op("LOG")
class Log(Curve):
    """y = the natural logarithm of x"""

    cases = POSITIVE
    formula = unary("log", X)


@op("SQRT")
class Sqrt(Elementwise):
    """y = the square root of x; of quantized values below 0, at which LiteRT stops, any number"""

    quantized = ("int8", "int16")
    cases = POSITIVE
    formula = unary("sqrt", X)

    def quantized_lowering(self, call: Call) -> Lowering:
        data, output = call.tensor(0), call.output
        return pointwise(looked_up(square_root(data, output), data, output), call)


@op("RSQRT")
class Rsqrt(Curve):
    """y = 1 / the square root of x; of quantized values below 0, at which LiteRT stops, any number"""

    cases = POSITIVE
    formula = unary("rsqrt", X)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        factor = 2.0**-20 / (np.sqrt(scale(call.tensor(0))) * scale(call.output))
        yield from factor_problems(call, factor, least=LEAST_FACTOR if call.tensor(0).dtype == "int8" else 0.0)

    def quantized_lowering(self, call: Call) -> Lowering:
        data, output = call.tensor(0), call.output
        return pointwise(inverse_root(data, output), call) if data.dtype == "int8" else super().quantized_lowering(call)


class Sigmoid(Elementwise):
    """A function whose results are in (-1, 1); that of int16 numbers is computed with integers alone."""

    quantized = ("int8", "uint8", "int16")
    words: ClassVar[Callable[[Call], Expr]]

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        if call.tensor(0).dtype == "int16":
            yield from sigmoid_problems(call)

    def quantized_lowering(self, call: Call) -> Lowering:
        is_word = call.tensor(0).dtype == "int16"
        return pointwise(type(self).words(call), call) if is_word else super().quantized_lowering(call)


@op("TANH")
class Tanh(Sigmoid):
    """y = the hyperbolic tangent of x"""

    narrow = SHORT
    formula = unary("tanh", X)
    words = tanh_16


@op("LOGISTIC")
class Logistic(Sigmoid):
    """y = 1 / (1 + e to the power of -x)"""

    narrow = SHORT
    formula = unary("logistic", X)
    words = logistic_16


class Activation(Elementwise):
    """An activation that is an operator of its own."""

    quantized = ("int8", "uint8", "int16")

    def quantized_lowering(self, call: Call) -> Lowering:
        """The stored numbers in the output's scale, limited like a fused activation."""
        data, output = call.tensor(0), call.output
        factor = np.asarray(scale(data) / scale(output), np.float64)
        rounded, _ = multiple(centred(X, data), factor, AWAY, output, self.name, 1)
        return pointwise(rounded, call)


@op("RELU")
class Relu(Activation):
    """y = max(x, 0)"""

    formula = maximum(X, 0)


@op("RELU6")
class Relu6(Activation):
    """y = x limited to [0, 6]"""

    formula = clamp(X, 0, 6)


@op("RELU_N1_TO_1")
class ReluN1To1(Activation):
    """y = x limited to [-1, 1]"""

    formula = clamp(X, -1, 1)


@op("RELU_0_TO_1")
class Relu0To1(Activation):
    """y = x limited to [0, 1]"""

    narrow = ()
    formula = clamp(X, 0, 1)


@op("HARD_SWISH")
class HardSwish(Elementwise):
    """y = x * relu6(x + 3) / 6"""

    formula = X * clamp(fma(X, 1 / 6, 0.5), 0, 1)  # rounded as XNNPACK does it

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        ratio = scale(call.tensor(0)) / scale(call.output)
        if not HARD_SWISH_RATIOS[0] <= ratio < HARD_SWISH_RATIOS[1]:
            yield f"HARD_SWISH: the input's scale is {ratio:.3g} times the output's, beyond LiteRT's 16 bits."

    def quantized_lowering(self, call: Call) -> Lowering:
        """LiteRT's kernel on aarch64 computes eight elements at once, and rounds them in another way than the rest."""
        data, output = call.tensor(0), call.output
        rest = hard_swish(data, output)
        whole = hard_swish(data, output, is_up=True) if rounding(call, data.dtype) == EIGHTS else rest
        return Grouped(whole, rest, EIGHT).lowering(call)


@op("LEAKY_RELU")
class LeakyRelu(Elementwise):
    """y = x where x is positive, alpha * x elsewhere"""

    quantized = (*BYTES, "int16")
    cases = (*(Case(case.inputs, {"alpha": 0.25}) for case in SHAPES), Case(((2, 3),), {"alpha": 1.5}))

    def expression(self, attrs: Mapping[str, Any]) -> Expr:
        return maximum(X, 0) + minimum(X, 0) * float(attrs.get("alpha", 0.0))

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        alpha = np.float32(call.option("alpha", 0.0))
        yield from factor_problems(call, abs(scale(call.tensor(0)) * alpha / scale(call.output)))
        if alpha < 0 and call.graph.quantized.rounding == "reference":
            yield "LEAKY_RELU with a negative alpha is not supported in the rounding of LiteRT's reference kernels."

    def quantized_lowering(self, call: Call) -> Lowering:
        return pointwise(leaky_relu(call), call)


@op("ELU")
class Elu(Elementwise):
    """y = x where x is positive, e to the power of x, minus 1, elsewhere"""

    quantized = ("int8",)
    formula = maximum(X, 0) + (unary("exp", minimum(X, 0)) - 1)

    def quantized_lowering(self, call: Call) -> Lowering:
        return pointwise(elu(call), call)


@op("GELU")
class Gelu(Curve):
    """y = x / 2 * (1 + erf(x / sqrt(2))), or x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))"""

    quantized = ("int8", "uint8", "int16")
    cases = tuple(Case(case.inputs, {"approximate": approximate}) for case in SHAPES for approximate in (True, False))

    def expression(self, attrs: Mapping[str, Any]) -> Expr:
        if attrs.get("approximate", False):
            return X * 0.5 * (unary("tanh", (X + X * X * X * 0.044715) * 0.7978845608028654) + 1)
        return X * 0.5 * (unary("erf", X * 0.7071067811865476) + 1)

    def quantized_lowering(self, call: Call) -> Lowering:
        if call.tensor(0).dtype == "int16":
            return super().quantized_lowering(call)
        return pointwise(gelu(call.tensor(0), call.output, bool(call.option("approximate", False))), call)


BFLOAT16 = "bfloat16"
ROUNDED = "rounded"
"""Our own option of a CAST to float32, set by `passes.compute_wide`: BFLOAT16 where results are rounded to that."""


@op("CAST")
class Cast(Op):
    """The data in the output's type: floats are truncated towards zero; bool is false for 0 and true for all else; of
    complex numbers the real part stays"""

    types = (*ANY, "complex64")
    results: ClassVar = {0: ANY}
    cases = tuple(
        Case((Fed((2, 3, 7), source),), {"in_data_type": source.upper(), "out_data_type": target.upper()})
        for source in (*NUMBERS, "bool", "float16", "complex64")
        for target in ((*NUMBERS, "bool", "float16") if source != "complex64" else ("float32",))
    )

    def problems(self, call: Call) -> Iterator[str]:
        if call.tensor(0).dtype == "complex64":
            yield from rank_problems(call)
            if call.output.dtype != "float32":
                yield f"CAST from complex64 to {call.output.dtype} is not supported."

    def lowering(self, call: Call) -> Lowering:
        if call.tensor(0).dtype == "complex64":
            return part(call, 0)
        if call.option(ROUNDED, "") == BFLOAT16:
            return mapped(unary(BFLOAT16, Converted(X, "float32")), (call.index(0), call.shape(0)), shape=call.shape(0))
        return cast(call.index(0), call.shape(0), call.output.dtype)

    def fold(self, call: Call) -> list[np.ndarray]:
        return self.reference([call.constant(0)], {"out_data_type": call.output.dtype.upper()})

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        real = data.real if data.dtype.kind == "c" else data
        return [converted(real, attrs["out_data_type"].lower())]


@op("PRELU")
class Prelu(Pointwise):
    """y = x where x is positive, alpha * x elsewhere; alpha broadcasts to x."""

    least = most = 2
    narrow = HALF
    quantized = BYTES
    formula = maximum(X, 0) + Y * minimum(X, 0)
    cases = (
        Case(((1, 4, 5, 6), Weights((1, 1, 6)))),
        Case(((1, 4, 5, 6), Weights((1, 1, 1, 1)))),
        Case(((2, 4, 5, 6), Weights((4, 5, 6)))),
        Case(((1, 4, 5, 6), (1, 4, 1, 6))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        if self.shape(call) != call.shape(0):
            yield f"PRELU: alpha of shape {list(call.shape(1))} does not broadcast to {list(call.shape(0))}."

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, *call.operands, call.output)
        yield from factor_problems(call, scale(call.tensor(0)) * scale(call.tensor(1)) / scale(call.output))

    def quantized_lowering(self, call: Call) -> Lowering:
        return pointwise(prelu(call), call)
