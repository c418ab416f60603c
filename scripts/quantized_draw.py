"""Random choices for quantized models: shapes, scales, zero points (often at the ends of the range), weights, biases.

Half of the models have powers of two for scales, so that many results lie halfway between two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.tflite.write import ModelBuilder

Shape = tuple[int, ...]
BYTES = ("int8", "uint8")
ALL = (*BYTES, "int16")
ACTIVATIONS = ("NONE", "NONE", "NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")
VERSIONS = {"BROADCAST_TO": 2}
"""Of operators that LiteRT has no first version of."""
BIASES = ("usual", "usual", "usual", "no parameters", "one scale", "rank 2")
BIASES_16 = ("int64", "int64", "int32")
"""Of int16 data: LiteRT has another kernel for each type."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Operands of a product, the products' scales, and the options that say of what type the bias is."""

    filter: int
    bias: int
    scales: tuple[float, ...]
    options: dict[str, Any]


class Draw(ModelBuilder):
    """A model under construction, and the random choices for it.

    Attributes:
        dtype: of activations.
        ties: whether scales are powers of two.
        said: how the model was drawn.
    """

    def __init__(self, op: str, seed: int, dtype: str, ties: bool) -> None:
        super().__init__()
        self.random = np.random.default_rng((crc32(op.encode()), seed))
        self.ties = ties
        self.dtype = dtype
        self.said: list[str] = [self.dtype, "ties" if self.ties else "any scales"]

    def choice(self, values: Sequence[Any]) -> Any:
        return values[int(self.random.integers(len(values)))]

    def chance(self, one_in: int) -> bool:
        return not self.random.integers(one_in)

    def say(self, name: str, value: Any) -> Any:
        self.said.append(f"{name}={value}")
        return value

    def pick(self, name: str, values: Sequence[Any]) -> Any:
        """One of the values, and said."""
        return self.say(name, self.choice(values))

    def size(self, most: int = 9) -> int:
        return int(self.random.integers(1, most + 1))

    def shape(self, *ranks: int, most: int = 9) -> Shape:
        """Sizes up to `most`, of one of the ranks."""
        return tuple(self.size(most) for _ in range(self.choice(ranks or (4,))))

    def image(self, multiple: int = 1) -> Shape:
        """[N, H, W, C], with a multiple of so many channels."""
        return self.choice([1, 1, 2]), self.size(12), self.size(12), multiple * self.choice([1, 3, 8, 17, 33])

    def rows(self) -> Shape:
        """Any number of axes, the last of which is summed up."""
        lead = self.choice([(1,), (3,), (4, 5), (self.size(16),)])
        return *lead, self.choice([1, 7, 32, 65])

    def scale(self, exponent: float = -5.0) -> float:
        """Near 2**exponent."""
        if self.ties:
            return 2.0 ** round(exponent + float(self.random.uniform(-1.5, 1.5)))
        return float(np.float32(2.0 ** (exponent + float(self.random.uniform(-1.5, 1.5)))))

    def zero(self, dtype: str | None = None) -> int:
        element = ELEMENT_TYPES[dtype or self.dtype]
        if element.bits > 8:
            return 0
        middle = (element.minimum + element.maximum + 1) // 2
        anywhere = int(self.random.integers(element.minimum, element.maximum + 1))
        near = middle + int(self.random.integers(-20, 21))
        return int(self.choice([element.minimum, element.maximum, middle, near, near, anywhere]))

    def quant(self, exponent: float = -5.0, dtype: str | None = None) -> Quant:
        return Quant((self.scale(exponent),), (self.zero(dtype),))

    def along(self, quant: Quant, shape: Shape) -> Quant:
        """Now and then with another axis, which one scale needs not, but XNNPACK looks at."""
        if len(quant.scales) != 1 or len(shape) < 2 or not self.chance(24):
            return quant
        return replace(quant, axis=self.say("quantized_dimension", int(self.random.integers(1, len(shape)))))

    def codes(self, shape: Shape, dtype: str | None = None, symmetric: bool = False) -> np.ndarray:
        """Uniform over the stored numbers."""
        element = ELEMENT_TYPES[dtype or self.dtype]
        low = element.minimum + (symmetric and element.is_signed)
        return self.random.integers(low, element.maximum + 1, shape).astype(element.name)

    def data(self, shape: Shape, quant: Quant | None, dtype: str | None = None) -> int:
        """An input of the model."""
        return self.input(shape, dtype or self.dtype, quant=quant and self.along(quant, shape))

    def operand(self, shape: Shape, quant: Quant) -> int:
        """An input of the model or, now and then, a constant."""
        if self.random.integers(3):
            return self.data(shape, quant)
        self.said.append("constant operand")
        return self.constant(self.codes(shape), quant=self.along(quant, shape))

    def integers(self, values: Any) -> int:
        """A constant for axes, sizes and the like."""
        return self.constant(np.array(values, np.int32))

    def result(
        self, op: str, inputs: Sequence[int | None], shape: Shape, quant: Quant | None, dtype: str = "", **options: Any
    ) -> None:
        """The operator, whose output is the model's."""
        self.results(op, inputs, [shape], quant, dtype, **options)

    def results(
        self,
        op: str,
        inputs: Sequence[int | None],
        shapes: Sequence[Shape],
        quant: Quant | None,
        dtype: str = "",
        **options: Any,
    ) -> None:
        """As `result`, with an output for each shape."""
        found = [self.tensor(each, dtype or self.dtype, quant=quant and self.along(quant, each)) for each in shapes]
        self.node(op, inputs, found, options=options or None, version=VERSIONS.get(op, 1))
        self.output(*found)

    def activation(self) -> str:
        return str(self.pick("activation", ACTIVATIONS))

    def weights(
        self,
        shape: Shape,
        axis: int,
        channels: int,
        data: Quant,
        biases: Sequence[str] = BIASES_16,
        words: Sequence[str] = ("int8",),
    ) -> Weights:
        """Weights, of uint8 with a zero point, of others maybe by channel, and a bias of any kind.

        Args:
            biases: the types of the bias of int16 data.
            words: the types of the weights of int16 data.
        """
        if self.dtype == "uint8":
            quant = Quant((self.scale(-7),), (self.zero("uint8"),))
            values = self.codes(shape, "uint8")
        else:
            count = channels if self.pick("per channel", [True, True, False]) else 1
            quant = Quant(tuple(self.scale(-7) for _ in range(count)), (0,) * count, axis if count > 1 else 0)
            has_choice = self.dtype == "int16" and len(words) > 1
            values = self.codes(shape, self.pick("weights", words) if has_choice else "int8", symmetric=True)
        weights = self.constant(values, quant=self.along(quant, shape))
        scales = tuple(float(np.float32(data.scales[0]) * np.float32(scale)) for scale in quant.scales)
        is_word = self.dtype == "int16"
        kind = self.pick("bias", biases if is_word else BIASES)
        spread = 1 << (18 if is_word else 12)
        bias = self.random.integers(-spread, spread, channels).astype(kind if is_word else "int32")
        own: Quant | None = Quant(scales, (0,) * len(scales))
        if kind == "no parameters":
            own = None
        elif kind in ("one scale", "rank 2"):
            own = Quant(scales[:1], (0,))
        if kind == "rank 2":
            bias = bias.reshape(1, -1)
        is_named = kind == "int32" or (kind == "int64" and values.dtype == np.int16)
        options = {"quantized_bias_type": str(kind).upper()} if is_named else {}
        return Weights(weights, self.constant(bias, quant=own), scales, options)

    def product_quant(self, scales: Sequence[float], taps: int) -> Quant:
        """Of sums of `taps` products with these scales, most of which it holds."""
        is_word = self.dtype == "int16"
        spread = 73.0 * (19000.0 if is_word else 73.0) * math.sqrt(taps) / (12000.0 if is_word else 60.0)
        return Quant((self.scale(math.log2(float(np.median(scales)) * spread)),), (self.zero(),))
