"""LSTM of quantized data: values of 8 bits, gates and states of 16, every step rounded where LiteRT rounds it.

The activation is TANH, whatever the file says. Gates have three integer bits; their logistic and tanh are computed by
`ir.fixed_point`. Before a layer normalization they have the scales that the file gives. Source: LiteRT's kernel
(tflite/kernels/lstm_eval.cc, 8x8_16), by experiment.

That kernel computes 16 products with peepholes at once, and on aarch64 16 projected values (neon_tensor_utils.cc), and
rounds them halves up; those left over, and all else, are rounded halves away from zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2

import numpy as np

from jitdelegate.base.targets import AARCH64
from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, Expr, binary, clamp, select
from jitdelegate.ir.fixed_point import MOST_WHOLE, FixedPoint
from jitdelegate.ir.forms import Concat, Contract, IndexMap, Reduce
from jitdelegate.ir.graph import ABSENT, Quant, Tensor
from jitdelegate.ir.quantized import rescale
from jitdelegate.ops.call import Call, Shape, scale, zero
from jitdelegate.ops.lstm_operands import (
    BIAS,
    FORGET_PEEPHOLE,
    INPUT_PEEPHOLE,
    OUTPUT_PEEPHOLE,
    PROJECTION,
    RECURRENT,
    Operands,
)
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.quantization import FIXED, factor_problems, multiple, per_tensor_problems, tensor_problems
from jitdelegate.ops.recurrent_cell import Read, Run, Source, Steps, apply
from jitdelegate.ops.registry import Lowering, view
from jitdelegate.ops.rounding import AWAY, UP

WHOLE, BITS = 3, 15
"""Integer bits of a gate; bits of fraction of its logistic or tanh."""
GATE = Tensor("a gate", (), "int16", quant=Quant((2.0 ** (WHOLE - BITS),), (0,)))
WORD = Tensor("a product", (), "int32")
INTERMEDIATES, HIDDEN = 5, 4
"""Values inside the operator that the file has the quantization of; the number of the hidden value."""
LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1
INPUT, FORGET, CELL, OUTPUT = -4, -3, -2, -1
"""Places of gates, counted from the last one: the first may be missing."""
KERNELS, NORM_KERNELS = 3, 6
"""Kernels of a step without projection and layer normalization, and of the normalization of a gate."""
NORM_BITS = 10
"""Bits of fraction of means and of normalized gates."""
GUARD = 10000
"""Where a gate varies less than a step, its variance is this many times the scale of the normalization's weights."""
AT_ONCE = 16
"""Numbers that LiteRT computes at once."""
MOST_UNITS = 1 << 12
"""Most units of a gate whose normalized values, times an int16, stay below 32 bits."""


def integer_problems(call: Call, operands: Operands, steps: Steps, most: int) -> Iterator[str]:
    """Reasons to refuse an LSTM of quantized data whose operands are those of a cell."""
    name, first, cell = call.node.op, operands.first, call.tensor(operands.state)
    weights = [call.tensor(k) for k in (*range(first, first + BIAS), first + PROJECTION) if call.given(k)]
    yield from per_tensor_problems(call, call.tensor(0), *weights, call.tensor(operands.hidden), cell)
    if any(map(zero, (*weights, cell))):
        yield f"{name}: weights or cell state have zero points, expected 0."
    if any(operands.is_diagonal(call, k) for k in range(first, first + BIAS)):
        yield f"{name} of quantized data with recurrent weights that are diagonals, which LiteRT reads as matrices."
    if call.given(first + OUTPUT_PEEPHOLE) and call.shape(operands.hidden)[1] > call.shape(operands.state)[1]:
        yield f"{name} of quantized data with peepholes and more outputs than units, which LiteRT reads beyond."
    power = log2(scale(cell))
    if power != int(power) or not 0 <= BITS + power <= MOST_WHOLE:
        yield (
            f"{name}: the scale of the cell state is {scale(cell)}, expected a power of two from 2**{-BITS} to "
            f"2**{MOST_WHOLE - BITS}; LiteRT answers with numbers that mean nothing."
        )
    inside = call.node.intermediates
    hidden = inside[HIDDEN] if len(inside) == INTERMEDIATES else None
    if hidden is None or len(hidden.scales) != 1 or not 0 < hidden.scales[0] < np.inf:
        yield f"{name}: the quantization of the hidden value is not given as intermediate {HIDDEN} of {INTERMEDIATES}."
    assert hidden is not None
    yield from tensor_problems(call, _hidden(call, operands))
    if operands.is_normalized(call):
        yield from _norm_problems(call, operands)
    kept, largest = np.float32(hidden.scales[0]), max(map(scale, weights))
    product = largest * max(map(scale, (call.tensor(0), call.tensor(operands.hidden), cell)))
    projected = largest * kept / scale(call.tensor(operands.hidden))
    least = min(scale(_gate_type(call, operands, gate)) for gate in operands.gates(call))
    yield from factor_problems(call, product / least, projected, np.float32(2.0 ** (-2 * BITS)) / kept)
    norms = NORM_KERNELS * len(operands.gates(call)) if operands.is_normalized(call) else 0
    kernels = (KERNELS + norms + operands.is_projected(call)) * steps.count
    if kernels > most:
        yield f"{name}: {steps.count} steps of quantized data take {kernels} kernels, over {most}."


def _norm_problems(call: Call, operands: Operands) -> Iterator[str]:
    """Reasons to refuse a layer normalization."""
    name, gates = call.node.op, operands.gates(call)
    if call.graph.quantized.cpu == AARCH64:
        yield f"{name} of quantized data with layer normalization, which LiteRT computes otherwise on aarch64."
    inside = [call.node.intermediates[gate] for gate in gates]
    if any(quant is None or len(quant.scales) != 1 or not 0 < quant.scales[0] < np.inf for quant in inside):
        yield f"{name}: intermediates do not give the quantization of all gates, which are normalized."
    if call.shape(operands.state)[1] >= MOST_UNITS:
        yield f"{name} of quantized data with layer normalization: {MOST_UNITS} units or more may overflow in LiteRT."
    weights = [call.tensor(operands.norm + gate) for gate in gates]
    yield from tensor_problems(call, *weights)
    yield from factor_problems(call, *(scale(tensor) * 2.0 ** (BITS - WHOLE) for tensor in weights), least=2.0**-18)


def _gate_type(call: Call, operands: Operands, gate: int) -> Tensor:
    """The sums of a gate, before its layer normalization."""
    return replace(GATE, quant=call.node.intermediates[gate]) if operands.is_normalized(call) else GATE


def _hidden(call: Call, operands: Operands) -> Tensor:
    """The hidden value before its projection, if there is one. LiteRT's kernel takes its zero point with the other sign
    then, so that other values are beyond the limits of an int8."""
    quant = call.node.intermediates[HIDDEN]
    assert quant is not None
    sign = -1 if operands.is_projected(call) else 1
    return Tensor("hidden", (), "int8", quant=replace(quant, zero_points=tuple(sign * z for z in quant.zero_points)))


def halved(value: Expr, times: int) -> Expr:
    """value / 2**times, rounded, halves away from zero; an int32 of up to 31 bits."""
    negative = binary("shift_right", value, Const(31))
    return binary("shift_right", value + negative + Const(1 << times - 1), Const(times))


def saturated(value: Expr) -> Expr:
    """An int32 limited to the range of an int16."""
    return clamp(value, LOWEST, HIGHEST)


@dataclass(frozen=True)
class IntegerLstm:
    """The run of a node without `integer_problems` over the steps of its data; each step has kernels of its own.

    Expressions of a step read: Arg(2 * k) what the hidden value adds to gate k, Arg(2 * k + 1) what the data adds, then
    the cell state, then the peepholes.
    """

    call: Call
    operands: Operands
    steps: Steps

    def run(self) -> Run:
        """The kernels of the whole sequence."""
        steps, call, operands = self.steps, self.call, self.operands
        gates, bias = steps.shape(len(self._gates) * self._units), None
        if not self._is_normalized:
            bias = np.concatenate([call.array(operands.first + BIAS + gate) for gate in self._gates])
        data = self._product(steps.source, call.tensor(0), 0, bias, GATE, gates)
        hidden: Source = call.index(operands.hidden)
        state: Source = call.index(operands.state)
        made: dict[int, Lowering] = {}
        for time in steps.order():
            made[time], state = self._step(time, data, hidden, state)
            hidden = made[time]
        assert isinstance(hidden, Lowering)
        assert isinstance(state, Lowering)
        return Run(self._joined([made[time] for time in range(steps.count)]), hidden, state)

    def _step(self, time: int, data: Lowering, hidden: Source, state: Source) -> tuple[Lowering, Lowering]:
        """The new hidden value and the new cell state."""
        units, shape = self._units, (self.steps.batch, self._units)
        before, own = self.call.tensor(self.operands.hidden), IndexMap.broadcast(shape, shape)
        product = self._product(hidden, before, RECURRENT, None, WORD, (shape[0], len(self._gates) * units))
        dims, start = ((-1, 0, 1), (time, 0)) if self.steps.time_major else ((0, -1, 1), (0, time))
        reads: list[Read] = []
        for number in range(len(self._gates)):
            reads.append((product, IndexMap.along(0, 1, starts=(0, number * units))))
            reads.append((data, IndexMap(dims, (*start, number * units), (1, 1, 1))))
        further = [*map(self._peephole, self._peepholes.values()), (self._peephole_groups, IndexMap.along(0, 1))]
        before_state = self._normalized([*reads, (state, own), *further], self._gates[:-1])
        now = apply(self._new_state(), before_state, shape, "int16")
        after_state = self._normalized([*reads, (now, own), *further], self._gates[-1:])
        value = apply(self._new_hidden(), after_state, shape, "int8")
        return self._projected(value), now

    def _normalized(self, reads: list[Read], gates: range) -> list[Read]:
        """The operands of a step's expression with these gates normalized, if they are, in place of what adds to them
        from the hidden value."""
        if not self._is_normalized:
            return reads
        shape, read = (self.steps.batch, self._units), list(reads)
        for gate in gates:
            total = apply(self._sum(gate - self._gates.stop), reads, shape, "int16")
            weights = self.call.tensor(self.operands.norm + gate)
            operands = self.call.index(self.operands.norm + gate), self.call.index(self.operands.first + BIAS + gate)
            found = _layer_norm(total, shape, operands, scale(weights))
            read[2 * (gate - self._gates.start)] = found, IndexMap.broadcast(shape, shape)
        return read

    def _product(
        self, source: Source, data: Tensor, operand: int, bias: np.ndarray | None, result: Tensor, shape: Shape
    ) -> Lowering:
        """The weights of all gates from operand `operand` of the cell on, times data, in steps of gates."""
        numbers = [self.operands.first + operand + gate for gate in self._gates]
        steps = [scale(_gate_type(self.call, self.operands, gate)) for gate in self._gates]
        pairs = zip(numbers, steps, strict=True)
        factors = [float(scale(self.call.tensor(k)) * scale(data) / step) for k, step in pairs]
        weights = np.concatenate([self.call.array(k) for k in numbers])
        return _contract(source, data, weights, bias, np.repeat(factors, self._units), result, shape)

    @property
    def _rows(self) -> int:
        """Sequences of which LiteRT's kernel computes a step together."""
        is_joint = self.steps.time_major or len(self.call.shape(0)) == 2
        return self.steps.batch if is_joint else 1

    def _new_state(self) -> Expr:
        """forget * state + input * cell, limited to the option `cell_clip`."""
        forget = FixedPoint("logistic", self._gate(FORGET), WHOLE)
        entry = FixedPoint("logistic", self._gate(INPUT), WHOLE) if len(self._gates) == 4 else HIGHEST - forget
        added = entry * FixedPoint("tanh", self._gate(CELL), WHOLE)
        kept = forget * Cast(self._state, "int32")
        total = saturated(halved(kept, BITS) + halved(added, 2 * BITS + self._power))
        clip = float(self.call.option("cell_clip", 0.0))
        if clip > 0:
            limit = int(min(float(np.float32(clip) / scale(self.call.tensor(self.operands.state))), HIGHEST))
            total = clamp(total, -limit, limit)
        return Cast(total, "int16")

    def _new_hidden(self) -> Expr:
        """output * tanh(state)."""
        value = FixedPoint("logistic", self._gate(OUTPUT), WHOLE) * FixedPoint("tanh", self._state, BITS + self._power)
        factor = np.float32(2.0**-BITS) / scale(self._hidden) * np.float32(2.0**-BITS)
        rounded, _ = multiple(value, np.asarray(factor, np.float64), AWAY, self._hidden, "NONE", 0)
        return rounded

    def _gate(self, gate: int) -> Expr:
        """A gate, an int16; gates are counted from the last gate."""
        return Arg(2 * (len(self._gates) + gate)) if self._is_normalized else self._sum(gate)

    def _sum(self, gate: int) -> Expr:
        """A gate with its peephole, before its layer normalization."""
        number, count = len(self._gates) + gate, len(self._gates)
        total = saturated(Arg(2 * number) + Cast(Arg(2 * number + 1), "int32"))
        if gate in self._peepholes:
            weights = Arg(2 * count + 1 + list(self._peepholes).index(gate))
            tensor, state = self.call.tensor(self._peepholes[gate]), self.call.tensor(self.operands.state)
            step = scale(_gate_type(self.call, self.operands, self._gates.stop + gate))
            factor = np.asarray(scale(state) * scale(tensor) / step, np.float64)
            product = Cast(weights, "int32") * Cast(self._state, "int32")
            added, at_once = multiple(product, factor, AWAY, WORD, "NONE", 0)[0], self._peephole_groups
            if at_once.any():
                is_left = binary("lt", Arg(2 * count + 1 + len(self._peepholes)), 1)
                added = select(is_left, added, multiple(product, factor, UP, WORD, "NONE", 0)[0])
            total = saturated(added + total)
        return Cast(total, "int16")

    def _peephole(self, operand: int) -> Read:
        """A peephole's weights."""
        if self.call.shape(self.operands.hidden)[1] == self._units:
            return self.call.index(operand), IndexMap.along(1)
        return self._spread(self.call.array(operand)), IndexMap.along(0, 1)

    @property
    def _peephole_groups(self) -> np.ndarray:
        """Which products with a peephole LiteRT computes several at once: int32[batch, units]."""
        return self._spread(_at_once(self.call.shape(self.operands.hidden)[1]))

    def _spread(self, values: np.ndarray) -> np.ndarray:
        """[batch, units] of what belongs to a peephole's weights. Of a projected cell, LiteRT's kernel reads as many of
        them for each sequence as there are outputs, for one unit after another, and leaves the last units without."""
        outputs, rows, shape = self.call.shape(self.operands.hidden)[1], self._rows, (self.steps.batch, self._units)
        spread = np.zeros(rows * self._units, values.dtype)
        spread[: rows * outputs] = np.tile(values[:outputs], rows)
        return np.ascontiguousarray(np.broadcast_to(spread.reshape(rows, -1), shape))

    def _projected(self, hidden: Lowering) -> Lowering:
        if not self.operands.is_projected(self.call):
            return hidden
        operand, result = self.operands.first + PROJECTION, self.call.tensor(self.operands.hidden)
        bias = self.call.array(operand + 1) if self.call.given(operand + 1) else None
        factor = float(scale(self.call.tensor(operand)) * scale(self._hidden) / scale(result))
        weights = self.call.array(operand)
        operands = hidden, self._hidden, weights, bias, np.asarray(factor), result, result.shape
        if self.call.graph.quantized.cpu == AARCH64:
            rows = _at_once(self._rows * result.shape[1]).reshape(self._rows, -1)
            projected = _contract(*operands, np.broadcast_to(rows, result.shape))
        else:
            projected = _contract(*operands)
        clip = float(self.call.option("proj_clip", 0.0))
        if clip <= 0:
            return projected
        limit = int(min(float(np.float32(clip) / scale(result)), 127))
        return replace(projected, form=replace(projected.form, epilogue=clamp(projected.form.epilogue, -limit, limit)))

    def _joined(self, rows: list[Lowering]) -> Lowering:
        """The hidden values of all steps."""
        steps, width = self.steps, self.call.shape(self.operands.hidden)[1]
        shape = (1, steps.batch, width) if steps.time_major else (steps.batch, 1, width)
        parts = tuple(view(row, shape, "int8") for row in rows)
        return Lowering(Concat(axis=0 if steps.time_major else 1), parts, steps.shape(width), "int8")

    @property
    def _gates(self) -> range:
        return self.operands.gates(self.call)

    @property
    def _is_normalized(self) -> bool:
        return self.operands.is_normalized(self.call)

    @property
    def _units(self) -> int:
        return self.call.shape(self.operands.state)[1]

    @property
    def _state(self) -> Arg:
        return Arg(2 * len(self._gates))

    @property
    def _power(self) -> int:
        """The logarithm of the cell state's scale."""
        return int(log2(scale(self.call.tensor(self.operands.state))))

    @property
    def _hidden(self) -> Tensor:
        return _hidden(self.call, self.operands)

    @property
    def _peepholes(self) -> dict[int, int]:
        """A gate, counted from the last one -> the operand that is its peephole."""
        peepholes = {INPUT: INPUT_PEEPHOLE, FORGET: FORGET_PEEPHOLE, OUTPUT: OUTPUT_PEEPHOLE}
        operands = {gate: self.operands.first + operand for gate, operand in peepholes.items()}
        return {gate: operand for gate, operand in operands.items() if self.call.given(operand)}


def _layer_norm(gate: Lowering, shape: Shape, operands: tuple[int, int], step: np.float32) -> Lowering:
    """A gate, int16[batch, units], less its mean, over its standard deviation, times the first operand in steps of
    `step`, plus the second."""
    units, column = shape[1], (shape[0], 1)
    value, wide = Cast(X, "int32"), Cast(X, "int64")
    whole = mapped(wide, (gate, shape), shape=shape, dtype="int64")
    squares = mapped(Cast(value * value, "int64"), (gate, shape), shape=shape, dtype="int64")
    sums = Reduce(kind="sum", axes=(1,), accumulator="int64")
    totals = [(Lowering(sums, (each,), column, "int64"), column) for each in (whole, squares)]
    mean = mapped(binary("div", X * Const(1 << NORM_BITS), Const(units)), totals[0], shape=column, dtype="int64")
    spread = Y * Const((1 << 2 * NORM_BITS) // units) - X * X
    variance = Cast(binary("div", spread, Const(1 << 2 * NORM_BITS)), "int32")
    guard = max(1, int(np.float32(GUARD) * step))
    guarded = select(binary("lt", variance, 1), guard, variance)
    found = mapped(guarded, (mean, column), totals[1], shape=column, dtype="int32")
    root, shift = FixedPoint("root_factor", Arg(2)), FixedPoint("root_shift", Arg(2)) + Const(31)
    scaled = rescale(value * Const(1 << NORM_BITS) - Cast(Y, "int32"), root, shift, "int32", rounding=FIXED[AWAY])
    total = halved(scaled * Cast(Arg(3), "int32") + Arg(4), NORM_BITS)
    factor = np.asarray(float(step) * (1 << BITS - WHOLE), np.float64)
    rounded, _ = multiple(total, factor, AWAY, GATE, "NONE", 0)
    weights, bias = ((operand, shape[1:]) for operand in operands)
    return mapped(rounded, (gate, shape), (mean, column), (found, column), weights, bias, shape=shape, dtype="int16")


def _at_once(count: int) -> np.ndarray:
    """int32[count]: 1 for the numbers that LiteRT computes several at once, then 0."""
    return (np.arange(count) < count - count % AT_ONCE).astype(np.int32)


def _contract(
    source: Source,
    data: Tensor,
    weights: np.ndarray,
    bias: np.ndarray | None,
    factors: np.ndarray,
    result: Tensor,
    shape: Shape,
    at_once: np.ndarray | None = None,
) -> Lowering:
    """Weights times data plus a bias, times factors, in the type of `result`, halves up where `at_once` is 1, which has
    the result's shape."""
    rounded, constants = multiple(RESULT, factors, AWAY, result, "NONE", 1)
    accesses = tuple(IndexMap.along(len(shape) - 1) for _ in constants)
    if at_once is not None and at_once.any():
        up, _ = multiple(RESULT, factors, UP, result, "NONE", 1)
        rounded = select(binary("lt", Arg(1 + len(constants)), 1), rounded, up)
        constants, accesses = (*constants, np.ascontiguousarray(at_once)), (*accesses, IndexMap.along(0, 1))
    form = Contract(rounded, accesses, input_zero=zero(data), halo_value=float(zero(data)), accumulator="int32")
    inputs = (source, weights, ABSENT if bias is None else bias, *constants)
    return Lowering(form, inputs, shape, result.dtype)
