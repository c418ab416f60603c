"""LSTM of the kernel BASIC of quantized data: bytes outside, int16 inside, whatever the scales of the bytes are.

Values are steps of 1/128 around 128, gates have three integer bits, the state has four. Source: LiteRT's kernel
(tflite/kernels/internal/reference/lstm_cell.h), by experiment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr, binary, clamp
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.forms import Contract
from jitdelegate.ops.call import Call, Shape, scale, zero
from jitdelegate.ops.lstm_integers import BITS, GATE, WHOLE, halved, saturated
from jitdelegate.ops.quantization import factor_problems, multiple, parameter_problems
from jitdelegate.ops.quantized_weights import MIDDLE, centred_filter
from jitdelegate.ops.registry import Lowering
from jitdelegate.ops.rounding import product_rule

TYPES = ("uint8", "uint8", "uint8", "int32", "int16")
RESULTS = ("uint8", "int16", "uint8", "int16", "uint8", "int16")
"""The types of operands and outputs, the states' new values included."""
WEIGHTS, BIAS, STATE = 2, 3, 4
STATE_WHOLE = 4


def type_problems(call: Call) -> Iterator[str]:
    """Reasons to refuse the types of a node of quantized data."""
    found = [tensor.dtype for tensor in call.operands], [tensor.dtype for tensor in call.outputs]
    expected = list(TYPES), list(RESULTS[: len(call.outputs)])
    if found != expected:
        yield f"{call.node.op} of kernel BASIC: types {found}, expected {expected}."


def basic_problems(call: Call) -> Iterator[str]:
    """Reasons to refuse the quantization of a node of quantized data."""
    weights, bias, state = map(call.tensor, (WEIGHTS, BIAS, STATE))
    for tensor in (weights, bias, state):
        yield from (f"{call.node.op} of kernel BASIC: {problem}" for problem in parameter_problems(tensor))
    if scale(state) != 2.0 ** (STATE_WHOLE - BITS):
        yield f"{call.node.op} of kernel BASIC: the state's scale is {scale(state)}, LiteRT runs 2**-11 only."
    yield from factor_problems(call, scale(bias) / scale(GATE))


def gate_sums(call: Call, row: Lowering, shape: Shape) -> Lowering:
    """The gates of a row of data and hidden value, int16[batch, 4 * units]."""
    sums = Contract(input_zero=MIDDLE, halo_value=float(MIDDLE), accumulator="int32")
    weights, form = centred_filter(call.array(WEIGHTS), zero(call.tensor(WEIGHTS)), sums)
    factor = np.asarray(float(scale(call.tensor(BIAS))) / float(scale(GATE)), np.float64)
    rounded, _ = multiple(RESULT, factor, product_rule(call), GATE, "NONE", 0)
    return Lowering(replace(form, epilogue=rounded), (row, weights, call.array(BIAS)), shape, "int16")


def new_state() -> Expr:
    """forget * state + input * cell; Arg(4) is the state, the others are the gates input, forget and cell."""
    entry, forget = (FixedPoint("logistic", Arg(gate), WHOLE) for gate in (0, 1))
    added = halved(_product(entry, FixedPoint("tanh", Arg(2), WHOLE)), STATE_WHOLE)
    return Cast(saturated(added + _product(forget, Cast(Arg(4), "int32"))), "int16")


def new_hidden() -> Expr:
    """output * tanh(state); Arg(3) is the gate, Arg(4) the state, of which the tanh has three integer bits."""
    state = Cast(saturated(Cast(Arg(4), "int32") * (1 << STATE_WHOLE - WHOLE)), "int16")
    value = _product(FixedPoint("logistic", Arg(3), WHOLE), FixedPoint("tanh", state, WHOLE))
    return Cast(clamp(halved(value, BITS - 7), -MIDDLE, MIDDLE - 1) + MIDDLE, "uint8")


def _product(a: Expr, b: Expr) -> Expr:
    """Of numbers of 16 bits, one of which has no integer bits; halves up."""
    return binary("shift_right", a * b + (1 << BITS - 1), BITS)
