"""Models of one quantized operator with random weights, and the results of LiteRT's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder

KERNELS = {"litert": "AUTO", "reference": "BUILTIN_REF"}
"""The option `quantized_rounding` -> the kernels of LiteRT that round so."""
Value = tuple[tuple[int, ...], str, float, int]
"""Shape, type, scale and zero point."""


def per_tensor(scale: float, zero: int = 0) -> Quant:
    return Quant((float(scale),), (zero,))


def numbers(random: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Any numbers of an integer type."""
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, np.int64, endpoint=True).astype(dtype)


def one_op(op: str, data: Sequence[Value], output: Value, version: int = 1, **options: Any) -> bytes:
    """An operator of fed values."""
    model = ModelBuilder()
    operands = [model.input(shape, dtype, quant=per_tensor(scale, zero)) for shape, dtype, scale, zero in data]
    shape, dtype, scale, zero = output
    quant = per_tensor(scale, zero)
    model.output(model.op(op, operands, shape, options=options, dtype=dtype, quant=quant, version=version))
    return model.finish()


def transposed(kernel: int, stride: int, padding: str, channels: int = 11) -> bytes:
    """A TRANSPOSE_CONV of int8, many of whose results lie halfway between two numbers."""
    model, random = ModelBuilder(), np.random.default_rng(0)
    data = model.input((1, 4, 5, 3), "int8", quant=per_tensor(2.0**-4, 3))
    weights = random.integers(-100, 100, (channels, kernel, kernel, 3)).astype(np.int8)
    edge = kernel if padding == "VALID" and kernel > stride else stride
    sizes = [size * stride if padding == "SAME" else (size - 1) * stride + edge for size in (4, 5)]
    shape, quant = (1, *sizes, channels), per_tensor(2.0**-5, -5)
    operands = [model.constant(np.array(shape, np.int32)), model.constant(weights, quant=per_tensor(2.0**-7)), data]
    options = {"padding": padding, "stride_h": stride, "stride_w": stride}
    model.output(model.op("TRANSPOSE_CONV", operands, shape, options=options, dtype="int8", quant=quant))
    return model.finish()


@dataclass(frozen=True)
class LstmModel:
    """An LSTM of quantized data; sizes, scales and which of its optional operands there are."""

    op: str = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    steps: int = 4
    batch: int = 2
    depth: int = 21
    units: int = 17
    outputs: int = 0
    time_major: bool = True
    coupled: bool = False
    peepholes: bool = False
    norm: bool = False
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    power: int = -11
    zero: int = -1
    hidden: tuple[float, int] = (0.0078, -1)
    bias: int = 3000
    gates: tuple[float, ...] = (2.0**-12,) * 4
    activation: str = "TANH"
    peephole: tuple[float, int] = (2.0**-15, 32767)

    @property
    def width(self) -> int:
        return self.outputs or self.units

    @property
    def data_shape(self) -> tuple[int, ...]:
        if self.op == "LSTM":
            return (self.batch, self.depth)
        leading = (self.steps, self.batch) if self.time_major else (self.batch, self.steps)
        return (*leading, self.depth)

    def content(self) -> bytes:
        """The .tflite file."""
        model, random = ModelBuilder(), np.random.default_rng(self.units)
        data = model.input(self.data_shape, "int8", name="data", quant=per_tensor(0.02, -5))

        def weights(shape: tuple[int, ...], scale: float, dtype: str = "int8", most: int = 127) -> int:
            found = random.integers(-most, most, shape, np.int64, endpoint=True).astype(dtype)
            return model.constant(found, quant=per_tensor(scale * random.uniform(0.5, 1.5)))

        def four(*shape: int, scale: float = 0.008, dtype: str = "int8", most: int = 127) -> list[int | None]:
            return [None if self.coupled and not k else weights(shape, scale, dtype, most) for k in range(4)]

        units, width = self.units, self.width
        operands = [data, *four(units, self.depth), *four(units, width)]
        step, most = self.peephole
        peepholes = four(units, scale=step, dtype="int16", most=most) if self.peepholes else [None] * 4
        operands += [*peepholes[:2], peepholes[3], *four(units, scale=1.6e-4, dtype="int32", most=self.bias)]
        projection = [weights((width, units), 0.008), weights((width,), 6e-5, "int32", 3000)]
        operands += projection if self.outputs else [None, None]
        operands.append(model.variable((self.batch, width), "int8", quant=per_tensor(0.0078, self.zero)))
        operands.append(model.variable((self.batch, units), "int16", quant=per_tensor(2.0**self.power)))
        operands += four(units, scale=2.0**-15, dtype="int16", most=32767) if self.norm else [None] * 4
        output = model.tensor((*self.data_shape[:-1], width), "int8", quant=per_tensor(0.0078, self.zero))
        inside = [model.tensor((), "int16", quant=per_tensor(scale)) for scale in self.gates]
        inside.append(model.tensor((), "int8", quant=per_tensor(*self.hidden)))
        own: Mapping[str, Any] = {"kernel_type": "FULL"} if self.op == "LSTM" else {"time_major": self.time_major}
        activation = {"fused_activation_function": self.activation}
        options = {**activation, "cell_clip": self.cell_clip, "proj_clip": self.proj_clip, **own}
        model.node(self.op, operands, [output], options=options, version=3, intermediates=inside)
        model.output(output)
        return model.finish()


@dataclass(frozen=True)
class BasicLstmModel:
    """An LSTM of the kernel BASIC of quantized data, whose states are variables."""

    batch: int = 2
    depth: int = 21
    units: int = 17
    zero: int = 131
    bias_scale: float = 2.0**-15
    state: float = 2.0**-11

    @property
    def data_shape(self) -> tuple[int, ...]:
        return (self.batch, self.depth)

    def content(self) -> bytes:
        """The .tflite file; all that the operator writes is an output."""
        model, random = ModelBuilder(), np.random.default_rng(self.units)
        batch, depth, units = self.batch, self.depth, self.units
        value, state = per_tensor(2.0**-7, 128), per_tensor(self.state)
        data = model.input((batch, depth), "uint8", name="data", quant=value)
        hidden = model.variable((batch, units), "uint8", quant=value)
        weights = numbers(random, (4 * units, depth + units), "uint8")
        bias = random.integers(-30000, 30000, 4 * units).astype(np.int32)
        operands = [data, hidden, model.constant(weights, quant=per_tensor(self.bias_scale * 128, self.zero))]
        operands.append(model.constant(bias, quant=per_tensor(self.bias_scale)))
        operands.append(model.variable((batch, units), "int16", quant=state))
        widths, types = (units, units, depth + units, 4 * units), ("uint8", "int16", "uint8", "int16")
        quants = (value, state, value, per_tensor(2.0**-12))
        values = zip(widths, types, quants, strict=True)
        outputs = [model.tensor((batch, width), dtype, quant=quant) for width, dtype, quant in values]
        options = {"fused_activation_function": "TANH", "kernel_type": "BASIC"}
        model.node("LSTM", operands, outputs, options=options, version=2)
        model.output(*outputs)
        return model.finish()


@dataclass(frozen=True)
class SvdfModel:
    """An SVDF of quantized data. States and weights over time have the type `memory`."""

    batch: int = 2
    depth: int = 33
    units: int = 7
    rank: int = 2
    length: int = 10
    bias: bool = True
    memory: str = "int16"

    def content(self) -> bytes:
        """The .tflite file."""
        model, random = ModelBuilder(), np.random.default_rng(self.units)
        filters = self.units * self.rank
        data = model.input((self.batch, self.depth), "int8", name="data", quant=per_tensor(0.02, -5))
        features = model.constant(numbers(random, (filters, self.depth), "int8"), quant=per_tensor(0.008))
        times = random.integers(-100, 100, (filters, self.length)).astype(self.memory)
        operands = [data, features, model.constant(times, quant=per_tensor(0.003)), None]
        if self.bias:
            bias = random.integers(-30000, 30000, self.units).astype(np.int32)
            operands[3] = model.constant(bias, quant=per_tensor(3e-6))
        scale, zero = (0.001, 0) if self.memory == "int16" else (0.4, -20)
        operands.append(model.variable((self.batch, filters * self.length), self.memory, quant=per_tensor(scale, zero)))
        options = {"rank": self.rank, "fused_activation_function": "RELU"}
        shape, quant = (self.batch, self.units), per_tensor(0.02, 3)
        model.output(model.op("SVDF", operands, shape, options=options, dtype="int8", quant=quant, version=3))
        return model.finish()


class LiteRT:
    """LiteRT's own interpreter, with the kernels that a value of `quantized_rounding` stands for."""

    def __init__(self, content: bytes, rounding: str = "litert") -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = getattr(OpResolverType, KERNELS[rounding])
        self._interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
        self._interpreter.allocate_tensors()

    def run(self, *feeds: np.ndarray) -> np.ndarray:
        """The first output."""
        return self.outputs(*feeds)[0]

    def outputs(self, *feeds: np.ndarray) -> list[np.ndarray]:
        """All outputs."""
        for detail, feed in zip(self._interpreter.get_input_details(), feeds, strict=True):
            self._interpreter.set_tensor(detail["index"], feed)
        self._interpreter.invoke()
        details = self._interpreter.get_output_details()
        return [np.asarray(self._interpreter.get_tensor(detail["index"])) for detail in details]
