"""Operators that relate every element to the other elements of its row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir import forms
from jitdelegate.ir.expr import binary, maximum, unary
from jitdelegate.ir.forms import Contract, Reduce
from jitdelegate.ir.graph import ABSENT
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, Shape, given, scale, zero
from jitdelegate.ops.case import Case
from jitdelegate.ops.pointwise import X, Y, Z, mapped
from jitdelegate.ops.quantization import factor_problems, per_tensor_problems
from jitdelegate.ops.quantized_rows import (
    PAIRS,
    quantized_l2_normalization,
    quantized_log_softmax,
    quantized_softmax,
    softmax_problems,
)
from jitdelegate.ops.registry import BYTES, HALF, Lowering, Op, op

MAX_CHANNELS = 1 << 12
"""Most channels of a local response normalization: its sums are a product with a matrix of all pairs of channels."""

ROWS = (
    Case(((1, 10),)),
    Case(((3, 1001),)),
    Case(((1, 4, 5, 21),)),
    Case(((7,),)),
    Case(((2, 3, 1),)),
    Case(((2, 1, 3, 2, 5),)),
    Case(((1, 2, 1, 3, 2, 33),)),
)


class Rows(Op):
    """One operand, and an output of the same shape, computed row by row."""

    cases: ClassVar[tuple[Case, ...]] = ROWS

    def problems(self, call: Call) -> Iterator[str]:
        if not call.shape(0):
            yield f"{self.name}: the input is a scalar, expected rank 1 or more."

    def reduced(self, kind: str, source: int | Lowering, shape: Shape) -> tuple[Lowering, Shape]:
        """One number for each row of a value of `shape`, and the shape of these numbers."""
        column = (*shape[:-1], 1)
        return Lowering(Reduce(kind=kind, axes=(len(shape) - 1,)), (source,), column, "float32"), column


@op("SOFTMAX")
class Softmax(Rows):
    """exp(beta * (x - max)) / sum of the same, over the last axis."""

    narrow = HALF
    quantized = ("int8", "uint8", "int16")
    quantized_results: ClassVar = {0: quantized}
    cases = tuple(Case(case.inputs, {"beta": beta}) for case, beta in zip(ROWS, (1, 0.5, 1, 2, 1, 1, 1), strict=True))

    def lowering(self, call: Call) -> Lowering:
        return Lowering(forms.Softmax(beta=float(call.option("beta", 0.0))), (call.index(0),))

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, call.tensor(0), call.output)
        types = call.tensor(0).dtype, call.output.dtype
        if types not in PAIRS:
            yield f"SOFTMAX from {types[0]} to {types[1]} is not supported."
        least = ELEMENT_TYPES[types[1]].minimum
        if types[1] in BYTES and zero(call.output) != least:
            yield f"SOFTMAX: the zero point of the output is {zero(call.output)}, expected {least}."
        yield from softmax_problems(call)
        yield from factor_problems(call, scale(call.tensor(0)) * np.float32(call.option("beta", 0.0)))

    def quantized_lowering(self, call: Call) -> Lowering:
        return quantized_softmax(call)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        powers = np.exp((data.astype(np.float64) - data.max(axis=-1, keepdims=True)) * attrs.get("beta", 0.0))
        return [np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)]


@op("LOG_SOFTMAX")
class LogSoftmax(Rows):
    """x - max - log(sum of exp(x - max)), over the last axis."""

    quantized = BYTES

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, call.tensor(0), call.output)
        if call.graph.quantized.rounding == "reference":
            yield "LOG_SOFTMAX of quantized data is not supported in the rounding of LiteRT's reference kernels."

    def quantized_lowering(self, call: Call) -> Lowering:
        return quantized_log_softmax(call)

    def lowering(self, call: Call) -> Lowering:
        shape, data = call.shape(0), (call.index(0), call.shape(0))
        top = self.reduced("max", call.index(0), shape)
        powers = mapped(unary("exp", X - Y), data, top, shape=shape)
        total = self.reduced("sum", powers, shape)
        return mapped(X - Y - unary("log", Z), data, top, total, shape=shape)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        below = data.astype(np.float64) - data.max(axis=-1, keepdims=True)
        return [np.asarray(below - np.log(np.exp(below).sum(axis=-1, keepdims=True)), np.float32)]


@op("L2_NORMALIZATION")
class L2Normalization(Rows):
    """x / max(sqrt(sum of x * x), 1e-6), over the last axis."""

    quantized = BYTES

    cases = (*ROWS, Case(((2, 5),), low=0, high=1e-12))

    def lowering(self, call: Call) -> Lowering:
        shape, data = call.shape(0), (call.index(0), call.shape(0))
        total = self.reduced("sum", mapped(X * X, data, shape=shape), shape)
        return mapped(X / maximum(unary("sqrt", Y), 1e-6), data, total, shape=shape)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, call.tensor(0), call.output)

    def quantized_lowering(self, call: Call) -> Lowering:
        return quantized_l2_normalization(call)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        exact = data.astype(np.float64)
        size = np.sqrt((exact * exact).sum(axis=-1, keepdims=True))
        return [np.asarray(exact / np.maximum(size, 1e-6), np.float32)]


@op("LOCAL_RESPONSE_NORMALIZATION")
class LocalResponseNormalization(Rows):
    """x * (bias + alpha * sum of x * x) ** -beta; the sum is over the channels of a pixel within `radius`."""

    cases = (
        Case(((1, 3, 4, 17),), {"radius": 2, "bias": 1.0, "alpha": 0.5, "beta": 0.75}),
        Case(((2, 2, 2, 8),), {"radius": 20, "bias": 2.0, "alpha": 0.125, "beta": 0.5}),
        Case(((1, 2, 2, 5),), {"radius": 0, "bias": 1.0, "alpha": 1.0, "beta": 1.0}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        shape, radius = call.shape(0), call.option("radius", 0)
        if len(shape) != 4 or radius < 0 or shape[-1] > MAX_CHANNELS:
            yield f"{self.name} of radius {radius} over {list(shape)} is not supported."

    @staticmethod
    def _near(channels: int, radius: int) -> np.ndarray:
        """f32[channels, 1, 1, channels]: 1 for each pair of channels within `radius`, 0 for all others."""
        numbers = np.arange(channels)
        near = abs(numbers[:, None] - numbers) <= radius
        return near.astype(np.float32).reshape(channels, 1, 1, channels)

    def lowering(self, call: Call) -> Lowering:
        shape, data = call.shape(0), (call.index(0), call.shape(0))
        near = self._near(shape[-1], call.option("radius", 0))
        squares = mapped(X * X, data, shape=shape)
        total = Lowering(Contract(), (squares, near, ABSENT), shape, "float32")
        bias, alpha, beta = (float(call.option(name, 0.0)) for name in ("bias", "alpha", "beta"))
        return mapped(X * binary("pow", Y * alpha + bias, -beta), data, (total, shape), shape=shape)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        exact = data.astype(np.float64)
        total = exact * exact @ self._near(data.shape[-1], attrs["radius"])[:, 0, 0]
        return [np.asarray(exact * (attrs["bias"] + attrs["alpha"] * total) ** -attrs["beta"], np.float32)]
