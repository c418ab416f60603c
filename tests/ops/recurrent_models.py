"""Models of one recurrent operator with random weights, as converters write them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jitdelegate.tflite.write import ModelBuilder


@dataclass(frozen=True)
class LstmModel:
    """One LSTM; sizes, and which of its optional operands there are."""

    op: str = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    steps: int = 5
    batch: int = 2
    depth: int = 3
    units: int = 7
    outputs: int = 7
    time_major: bool = False
    coupled: bool = False
    peepholes: bool = False
    norm: bool = False
    projection: bool = False
    projection_bias: bool = False
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    activation: str = "TANH"
    merge_outputs: bool = False

    @property
    def data_shape(self) -> tuple[int, ...]:
        if self.op == "LSTM":
            return (self.batch, self.depth)
        leading = (self.steps, self.batch) if self.time_major else (self.batch, self.steps)
        return (*leading, self.depth)

    def content(self) -> bytes:
        """The .tflite file."""
        model, random = ModelBuilder(), np.random.default_rng(self.units)
        data = model.input(self.data_shape, name="data")
        options = {
            "fused_activation_function": self.activation,
            "cell_clip": self.cell_clip,
            "proj_clip": self.proj_clip,
            **({"kernel_type": "FULL"} if self.op == "LSTM" else {"time_major": self.time_major}),
        }
        shape = (*self.data_shape[:-1], self.outputs)
        if self.op == "BIDIRECTIONAL_SEQUENCE_LSTM":
            operands = [data, *self._weights(model, random), *self._weights(model, random)]
            operands += [*self._states(model), *self._states(model), *[None] * 9]
            options["merge_outputs"] = self.merge_outputs
            shapes = [(*shape[:-1], 2 * self.outputs)] if self.merge_outputs else [shape, shape]
        else:
            operands = [data, *self._weights(model, random), *self._states(model), *self._norms(model, random)]
            shapes = [shape]
        results = [model.tensor(each) for each in shapes]
        model.node(self.op, operands, results, options=options)
        model.output(*results)
        return model.finish()

    def _weights(self, model: ModelBuilder, random: np.random.Generator) -> list[int | None]:
        def weights(*shape: int, given: bool = True) -> int | None:
            return model.constant(random.uniform(-0.7, 0.7, shape).astype(np.float32)) if given else None

        def each(*shape: int) -> list[int | None]:
            return [weights(*shape, given=gate > 0 or not self.coupled) for gate in range(4)]

        units, outputs = self.units, self.outputs
        input_, forget, output = (weights(units, given=self.peepholes) for _ in range(3))
        peepholes = [None if self.coupled else input_, forget, output]
        projection = [weights(outputs, units, given=self.projection), weights(outputs, given=self.projection_bias)]
        return [*each(units, self.depth), *each(units, outputs), *peepholes, *each(units), *projection]

    def _states(self, model: ModelBuilder) -> list[int | None]:
        return [model.variable((self.batch, self.outputs)), model.variable((self.batch, self.units))]

    def _norms(self, model: ModelBuilder, random: np.random.Generator) -> list[int | None]:
        if not self.norm:
            return [None] * 4
        scales = [model.constant(random.uniform(0.5, 1.5, self.units).astype(np.float32)) for _ in range(4)]
        return [None if self.coupled else scales[0], *scales[1:]]


def basic_lstm(batch: int, depth: int, units: int) -> bytes:
    """LSTM of the kernel BASIC, whose states are variables; hidden and state are the outputs."""
    model, random = ModelBuilder(), np.random.default_rng(units)
    data, hidden = model.input((batch, depth), name="data"), model.variable((batch, units))
    weights = model.constant(random.uniform(-0.7, 0.7, (4 * units, depth + units)).astype(np.float32))
    bias = model.constant(random.uniform(-0.7, 0.7, 4 * units).astype(np.float32))
    state = model.variable((batch, units))
    widths = (units, units, depth + units, 4 * units)
    outputs = [model.tensor((batch, width)) for width in widths]
    options = {"fused_activation_function": "TANH", "kernel_type": "BASIC"}
    model.node("LSTM", [data, hidden, weights, bias, state], outputs, options=options, version=2)
    model.output(*outputs[:2])
    return model.finish()


def rnn(op: str, data: tuple[int, ...], batch: int, units: int, **options: object) -> bytes:
    """RNN, or UNIDIRECTIONAL_SEQUENCE_RNN."""
    model, random = ModelBuilder(), np.random.default_rng(units)
    shapes = ((units, data[-1]), (units, units), (units,))
    value = model.input(data, name="data")
    weights = [model.constant(random.uniform(-0.7, 0.7, shape).astype(np.float32)) for shape in shapes]
    operands = [value, *weights, model.variable((batch, units))]
    model.output(model.op(op, operands, (*data[:-1], units), options=options))
    return model.finish()


def svdf(batch: int, depth: int, units: int, rank: int, memory: int, *, bias: bool, activation: str = "NONE") -> bytes:
    """SVDF."""
    model, random = ModelBuilder(), np.random.default_rng(units)

    def weights(*shape: int) -> int:
        return model.constant(random.uniform(-1, 1, shape).astype(np.float32))

    data, filters = model.input((batch, depth), name="data"), units * rank
    operands = [data, weights(filters, depth), weights(filters, memory), weights(units) if bias else None]
    operands.append(model.variable((batch, filters * memory)))
    options = {"rank": rank, "fused_activation_function": activation}
    model.output(model.op("SVDF", operands, (batch, units), options=options))
    return model.finish()


def float16_lstm(first: float = 0.0) -> bytes:
    """An LSTM as converters write it with float16 weights: even the first states are DEQUANTIZEs of constants."""
    model, random = ModelBuilder(), np.random.default_rng(0)

    def dequantized(values: np.ndarray, is_variable: bool = False) -> int:
        result = model.tensor(values.shape, is_variable=is_variable)
        model.node("DEQUANTIZE", [model.constant(values.astype(np.float16))], [result])
        return result

    def four(*shape: int) -> list[int]:
        return [dequantized(random.uniform(-1, 1, shape)) for _ in range(4)]

    data = model.input((1, 5, 3), name="data")
    operands = [data, *four(4, 3), *four(4, 4), None, None, None, *four(4), None, None]
    operands += [dequantized(np.full((1, 4), first), is_variable=True) for _ in range(2)]
    options = {"fused_activation_function": "TANH", "time_major": False}
    model.output(model.op("UNIDIRECTIONAL_SEQUENCE_LSTM", [*operands, *[None] * 4], (1, 5, 4), options=options))
    return model.finish()
