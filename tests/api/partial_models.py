"""Models of which LiteRT keeps a part, and every way to run them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import jitdelegate
from jitdelegate.engine.litert_delegate.trust import refusal
from jitdelegate.ir.graph import Quant
from jitdelegate.targets.cpu import target as cpu_target
from jitdelegate.tflite.write import ModelBuilder

Values = Sequence[np.ndarray]
Rounds = Sequence[Values]

KERNELS = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
ONLY = ("ADD", "CAST", "FULLY_CONNECTED", "GREATER", "LESS", "MUL", "SUB", "TANH", "UNIDIRECTIONAL_SEQUENCE_LSTM")
LOADERS = ("partitions", "delegate")
RANDOM = ("TANH", "ADD", "MUL", "NEG", "LESS", "SELECT_V2", "CAST", "STORE", "FAKE_QUANT")


def options(**further: Any) -> dict[str, Any]:
    """All but ONLY is left to LiteRT, however little is gained by that."""
    return {"target": "cpu", "partitioning": "all", "only_ops": ONLY, "serialization_dir": False} | further


def choose_loader(monkeypatch: pytest.MonkeyPatch, loader: str) -> None:
    """Let models of a few small operators be programs for that loader."""
    if loader == "partitions":
        monkeypatch.setattr(cpu_target, "IN_LITERT", "nowhere")
    else:
        skip_without_host()


def skip_without_host() -> None:
    trouble = refusal(None)
    if trouble:
        pytest.skip(trouble)


def rounds_for(content: bytes, count: int = 3, seed: int = 0) -> list[list[np.ndarray]]:
    """Random inputs for some runs."""
    dice = np.random.default_rng(seed)
    details = LiteRT(model_content=content).get_input_details()
    return [[random_values(dice, detail["shape"], detail["dtype"]) for detail in details] for _ in range(count)]


def random_values(dice: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return np.asarray(dice.normal(size=tuple(shape)), dtype)
    return np.asarray(dice.integers(0, 2 if dtype == np.bool_ else 7, tuple(shape)), dtype)


def expected(content: bytes, rounds: Rounds) -> list[list[np.ndarray]]:
    """What LiteRT's own kernels answer."""
    return invoked(LiteRT(model_content=content, experimental_op_resolver_type=KERNELS), rounds)


def invoked(interpreter: Any, rounds: Rounds) -> list[list[np.ndarray]]:
    """The outputs of every run, through the methods that both interpreters have."""
    interpreter.allocate_tensors()
    return [_invoked(interpreter, values) for values in rounds]


def _invoked(interpreter: Any, values: Values) -> list[np.ndarray]:
    for detail, value in zip(interpreter.get_input_details(), values, strict=True):
        if tuple(detail["shape"]) != value.shape:
            interpreter.resize_tensor_input(detail["index"], value.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def called(model: jitdelegate.Model, rounds: Rounds) -> list[list[np.ndarray]]:
    """The outputs of every run of a loaded model."""
    found = []
    for values in rounds:
        outputs = model(*values)
        found.append([np.array(each) for each in (outputs if isinstance(outputs, tuple) else (outputs,))])
    return found


def by_load(content: bytes, rounds: Rounds, **further: Any) -> list[list[np.ndarray]]:
    with jitdelegate.load(content, options=options(**further)) as model:
        return called(model, rounds)


def by_interpreter(content: bytes, rounds: Rounds, **further: Any) -> list[list[np.ndarray]]:
    return invoked(interpreter(content, **further), rounds)


def by_litert(content: bytes, rounds: Rounds, **further: Any) -> list[list[np.ndarray]]:
    return invoked(litert(content, **further), rounds)


ROADS: dict[str, Callable[..., list[list[np.ndarray]]]] = {
    "load": by_load,
    "interpreter": by_interpreter,
    "litert": by_litert,
}


def interpreter(content: bytes, **further: Any) -> jitdelegate.Interpreter:
    return jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate(**further)])


def litert(content: bytes, arguments: dict[str, Any] | None = None, **further: Any) -> LiteRT:
    """LiteRT's own interpreter with our delegate in it."""
    skip_without_host()
    return LiteRT(model_content=content, experimental_delegates=[delegate(**further)], **(arguments or {}))


def delegate(**further: Any) -> jitdelegate.GpuDelegate:
    return jitdelegate.GpuDelegate(**options(**further))


def assert_same(found: Sequence[Values], wanted: Sequence[Values]) -> None:
    """The same types and shapes in all rounds, and numbers that differ by rounding at most."""
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [(one.dtype, one.shape) for one in ours] == [(one.dtype, one.shape) for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(one, other)


def alternating(*, open_batch: bool = False, signature: bool = False, width: int = 4) -> bytes:
    """f32[1,4] -> FULLY_CONNECTED, TANH, NEG, ADD, NEG, MUL: two outputs, one of which is read inside too.

    The input goes to the first and the last partition; what the first makes is read by all others.
    """
    model, dice = ModelBuilder(), np.random.default_rng(1)
    shape = (1, width)
    x = model.input(shape, name="x", shape_signature=(-1, width) if open_batch else None)
    weights = model.constant(dice.normal(size=(width, width)).astype(np.float32))
    first = model.op("TANH", [model.op("FULLY_CONNECTED", [x, weights, None], shape)], shape)
    inner = model.op("NEG", [first], shape, name="inner")
    both = model.op("NEG", [model.op("ADD", [inner, first], shape)], shape)
    last = model.op("MUL", [both, x], shape, name="last")
    model.output(last, inner)
    if signature:
        model.signature("serve", {"x": x}, {"last": last, "inner": inner})
    return model.finish()


def loop() -> bytes:
    """f32[1,4], i32[1] -> as many rounds of a dense layer as the second says, between two compiled parts."""
    model = ModelBuilder()
    x, count = model.input((1, 4), name="x"), model.input((1,), "int32", name="count")
    start = model.op("MUL", [model.op("TANH", [x], (1, 4)), model.constant(np.float32(1.5))], (1, 4))
    condition, body = model.subgraph("condition"), model.subgraph("body")
    left = condition.input((1,), "int32")
    condition.input((1, 4))
    condition.output(condition.op("GREATER", [left, condition.constant(np.zeros(1, np.int32))], (1,), dtype="bool"))
    left, value = body.input((1,), "int32"), body.input((1, 4))
    weights = body.constant(np.random.default_rng(3).normal(size=(4, 4)).astype(np.float32))
    dense = body.op("TANH", [body.op("FULLY_CONNECTED", [value, weights, None], (1, 4))], (1, 4))
    body.output(body.op("SUB", [left, body.constant(np.ones(1, np.int32))], (1,), dtype="int32"), dense)
    ends = [model.tensor((1,), "int32"), model.tensor((1, 4))]
    model.node("WHILE", [count, start], ends, options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    model.output(model.op("TANH", [ends[1]], (1, 4)), ends[0], start)
    return model.finish()


def branch() -> bytes:
    """f32[2,3] -> twice or minus its TANH, as the sign of the sum says."""
    model = ModelBuilder()
    x = model.input((2, 3), name="x")
    soft = model.op("TANH", [x], (2, 3))
    total = model.op("SUM", [soft, model.constant(np.array([0, 1], np.int32))], (), options={"keep_dims": False})
    below = model.op("LESS", [total, model.constant(np.float32(0))], (), dtype="bool")
    then, otherwise = model.subgraph("then"), model.subgraph("otherwise")
    value = then.input((2, 3))
    then.output(then.op("ADD", [value, value], (2, 3)))
    otherwise.output(otherwise.op("NEG", [otherwise.input((2, 3))], (2, 3)))
    arms = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    model.output(model.op("IF", [below, soft], (2, 3), options=arms), below, soft)
    return model.finish()


def remembering(*, batch: int = 1) -> bytes:
    """f32[1,5,3] -> TANH -> LSTM with variables -> NEG, and the LSTM's own result."""
    model, dice, units = ModelBuilder(), np.random.default_rng(5), 4
    x = model.input((batch, 5, 3), name="x", shape_signature=(-1, 5, 3))

    def weights(*shape: int) -> int:
        return model.constant((dice.normal(size=shape) / 2).astype(np.float32))

    operands = [model.op("TANH", [x], (batch, 5, 3)), *(weights(units, 3) for _ in range(4))]
    operands += [weights(units, units) for _ in range(4)]
    states = [model.variable((batch, units), name=name) for name in ("hidden", "cell")]
    every = [*operands, None, None, None, *(weights(units) for _ in range(4)), None, None, *states, *[None] * 4]
    attributes = {"fused_activation_function": "TANH", "cell_clip": 0.0, "proj_clip": 0.0, "time_major": False}
    found = model.op("UNIDIRECTIONAL_SEQUENCE_LSTM", every, (batch, 5, units), options=attributes)
    model.output(model.op("TANH", [model.op("NEG", [found], (batch, 5, units))], (batch, 5, units)), found)
    return model.finish()


def stored() -> bytes:
    """i8[1,4] -> DEQUANTIZE, TANH, ADD (of another input), QUANTIZE: only the middle could be compiled."""
    model, quant = ModelBuilder(), Quant((0.05,), (3,))
    value = model.op("DEQUANTIZE", [model.input((1, 4), "int8", quant=quant)], (1, 4), version=2)
    soft = model.op("TANH", [model.input((1, 4))], (1, 4))
    both = model.op("ADD", [value, model.op("MUL", [soft, soft], (1, 4))], (1, 4))
    model.output(soft, model.op("QUANTIZE", [both], (1, 4), dtype="int8", quant=Quant((0.1,), (-4,))))
    return model.finish()


def chain(count: int, *, width: int = 2) -> bytes:
    """TANH and NEG by turns, `count` in all; the first and the last result are outputs."""
    model = ModelBuilder()
    first = value = model.op("TANH", [model.input((width,))], (width,))
    for position in range(1, count):
        value = model.op("NEG" if position % 2 else "TANH", [value], (width,))
    model.output(value, first)
    return model.finish()


class RandomModel:
    """A random graph over tensors of one shape, of the types that cross between LiteRT and compiled code."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._model = ModelBuilder()
        self._shape = self.dice.choice(((2, 3), (1, 8), (3, 5), (), (4,), (1, 2, 2, 3)))
        self._values: dict[str, list[int]] = {"float32": [], "bool": [], "int32": [], "int64": [], "int8": []}
        for _ in range(self.dice.randint(1, 3)):
            self._values["float32"].append(self._model.input(self._shape))
        if self.dice.random() < 0.3:
            self._values["int32"].append(self._model.input(self._shape, "int32"))

    def finish(self) -> bytes:
        """The file, whose outputs may be inputs, and the same tensor twice."""
        for _ in range(self.dice.randint(2, 25)):
            self._add(
                self.dice.choice(("TANH", "ADD", "MUL", "NEG", "LESS", "SELECT_V2", "CAST", "STORE", "FAKE_QUANT"))
            )
        every = [index for indices in self._values.values() for index in indices]
        self._model.output(*self.dice.choices(every, k=self.dice.randint(1, 4)), self._values["float32"][-1])
        return self._model.finish()

    def _pick(self, dtype: str = "float32") -> int:
        found = self._values[dtype]
        return self.dice.choice(found[-self.dice.randint(1, len(found)) :])

    def _op(self, op: str, operands: list[int], dtype: str = "float32", **attributes: Any) -> int:
        made = self._model.op(op, operands, self._shape, dtype=dtype, options=attributes)
        self._values[dtype].append(made)
        return made

    def _add(self, op: str) -> None:
        if op in ("TANH", "NEG"):
            self._op(op, [self._pick()])
        elif op in ("ADD", "MUL"):
            self._op(op, [self._pick(), self._pick() if self.dice.random() < 0.5 else self._factor()])
        elif op == "LESS":
            self._op(op, [self._pick(), self._pick()], "bool")
        elif op == "SELECT_V2" and self._values["bool"]:
            self._op(op, [self._pick("bool"), self._pick(), self._pick()])
        elif op == "CAST":
            self._cast()
        elif op == "STORE" and self.dice.random() < 0.3:
            quant = Quant((0.05,), (3,))
            self._values["int8"].append(
                self._model.op("QUANTIZE", [self._pick()], self._shape, dtype="int8", quant=quant)
            )
        elif op == "FAKE_QUANT" and self.dice.random() < 0.2:
            self._op(op, [self._pick()], min=-3.0, max=3.0, num_bits=8)

    def _factor(self) -> int:
        return self._model.constant(np.float32(self.dice.choice((0.5, -1.25))))

    def _cast(self) -> None:
        source = self.dice.choice([dtype for dtype in ("bool", "int32", "int64") if self._values[dtype]] or ["float32"])
        target = self.dice.choice(("int32", "int64")) if source == "float32" else "float32"
        value = self._pick(source)
        if source == "float32":
            value = self._op("MUL", [self._op("TANH", [value]), self._model.constant(np.float32(2.7))])
        self._op("CAST", [value], target, in_data_type=source.upper(), out_data_type=target.upper())
