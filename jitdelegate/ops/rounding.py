"""How quantized operators round: one rule per operator and type of data, found by experiment with LiteRT 2.3.

By default LiteRT runs a quantized operator in XNNPACK where that takes the operator, else in its optimized kernels. The
option `quantized_rounding` = "reference" asks for the rounding of its reference kernels instead.

RULES are those of LiteRT on x86-64. On aarch64 it has other kernels for some operators, and its compiler makes one
instruction of a product and a sum of floats: ARM has the rows that differ. Source: experiments with LiteRT 2.3 on
either CPU, XNNPACK's src/microparams-init.c, ruy's kernel_arm64.cc, and what LiteRT's optimized_ops.h has for NEON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jitdelegate.base.targets import AARCH64
from jitdelegate.ops.call import Call
from jitdelegate.ops.xnnpack import takes

EVEN = "even"
"""One float32 product, halves to even."""
AWAY = "away"
"""gemmlowp's doubling high multiply, then a shift, halves away from zero: two roundings."""
UP = "up"
"""The same, but the second rounding takes halves up."""
EIGHTS = "eights"
"""UP in whole groups of eight channels, AWAY in the rest: LiteRT's kernels compute eight at once."""
SIXTEENS = "sixteens"
"""UP in whole groups of sixteen elements, of a MEAN channels, AWAY in the rest."""
VECTORS = "vectors"
"""Of a QUANTIZE of floats: EVEN in whole groups of eight elements, AWAY in the rest."""
APART = "apart"
"""Of a DEQUANTIZE: the zero point's share is a float32 of its own, in whole groups of eight elements."""
DOUBLE = "double"
"""One float64 product, halves away from zero."""
WIDE = "wide"
"""A 64-bit product with a multiplier of 15 bits, halves up."""
INTEGER = "integer"
"""XNNPACK's own integer factors, halves up."""
HALF_UP = "half_up"
"""One product with the float32 factor as a fixed-point number, halves up: XNNPACK's `rndnu`."""
ONCE = "once"
"""gemmlowp's multiplier as for AWAY and UP, but one rounding, halves up."""
FUSED = "fused"
"""As on x86-64, but a product of floats is rounded only after what is added to it."""
UINT16 = "uint16"
"""Of a SOFTMAX: exponentials of 16 bits from a table, where FLOAT32 has floats."""
WRAPPED = "wrapped"
"""Of a FLOOR_DIV: the lowest number by -1 is itself, where EIGHTS has the highest in whole groups of eight elements."""
FLOAT32, FIXED10, FIXED11 = "float32", "fixed10", "fixed11"
"""The weights of `ir.forms.Resize`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rounding in XNNPACK ("" if it never takes the operator), in LiteRT's optimized and reference kernels."""

    xnnpack: str
    optimized: str
    reference: str


TABLES = ("EXP", "LOG", "RSQRT", "GELU")
"""Operators of int16 that are tables, whose entries LiteRT computes in float32."""
RULES: Mapping[tuple[str, str], Rule] = {
    ("CONV_2D", "int8"): Rule(EVEN, UP, AWAY),
    ("CONV_2D", "uint8"): Rule(EVEN, UP, AWAY),
    ("CONV_2D", "int16"): Rule("", WIDE, WIDE),
    ("DEPTHWISE_CONV_2D", "int8"): Rule(EVEN, EIGHTS, AWAY),
    ("DEPTHWISE_CONV_2D", "uint8"): Rule(EVEN, AWAY, AWAY),
    ("DEPTHWISE_CONV_2D", "int16"): Rule("", WIDE, WIDE),
    ("TRANSPOSE_CONV", "int8"): Rule(EVEN, EIGHTS, AWAY),
    ("TRANSPOSE_CONV", "uint8"): Rule(EVEN, SIXTEENS, AWAY),
    ("TRANSPOSE_CONV", "int16"): Rule("", WIDE, WIDE),
    ("FULLY_CONNECTED", "int8"): Rule(EVEN, UP, DOUBLE),
    ("FULLY_CONNECTED", "uint8"): Rule(EVEN, UP, DOUBLE),
    ("FULLY_CONNECTED", "int16"): Rule("", DOUBLE, DOUBLE),
    ("BATCH_MATMUL", "int8"): Rule(EVEN, AWAY, AWAY),
    ("BATCH_MATMUL", "int16"): Rule("", WIDE, WIDE),
    ("ADD", "int8"): Rule(INTEGER, AWAY, AWAY),
    ("ADD", "uint8"): Rule(INTEGER, AWAY, AWAY),
    ("ADD", "int16"): Rule("", AWAY, AWAY),
    ("SUB", "int8"): Rule(INTEGER, AWAY, AWAY),
    ("SUB", "uint8"): Rule(INTEGER, AWAY, AWAY),
    ("SUB", "int16"): Rule("", AWAY, AWAY),
    ("MUL", "int8"): Rule(EVEN, AWAY, AWAY),
    ("MUL", "uint8"): Rule(EVEN, AWAY, AWAY),
    ("MUL", "int16"): Rule("", AWAY, AWAY),
    ("SQUARED_DIFFERENCE", "int8"): Rule("", AWAY, AWAY),
    ("MEAN", "int8"): Rule(EVEN, SIXTEENS, AWAY),
    ("MEAN", "uint8"): Rule(EVEN, SIXTEENS, AWAY),
    ("MEAN", "int16"): Rule("", AWAY, AWAY),
    ("SUM", "int8"): Rule(EVEN, AWAY, ""),
    ("SUM", "uint8"): Rule(EVEN, AWAY, ""),
    ("SUM", "int16"): Rule("", AWAY, ""),
    ("MAX_POOL_2D", "int8"): Rule(EVEN, AWAY, AWAY),
    ("MAX_POOL_2D", "uint8"): Rule(EVEN, AWAY, AWAY),
    ("MAX_POOL_2D", "int16"): Rule("", AWAY, AWAY),
    ("RESIZE_BILINEAR", "int8"): Rule(FIXED11, FIXED10, FIXED10),
    ("RESIZE_BILINEAR", "uint8"): Rule(FIXED11, FLOAT32, FLOAT32),
    ("RESIZE_BILINEAR", "int16"): Rule("", FIXED10, FIXED10),
    ("LEAKY_RELU", "int8"): Rule(INTEGER, AWAY, AWAY),
    ("LEAKY_RELU", "uint8"): Rule(INTEGER, AWAY, AWAY),
    ("LEAKY_RELU", "int16"): Rule("", AWAY, AWAY),
    ("DEQUANTIZE", "int8"): Rule(EVEN, APART, EVEN),
    ("DEQUANTIZE", "uint8"): Rule(EVEN, APART, EVEN),
    ("ELU", "int8"): Rule(EVEN, AWAY, AWAY),
    ("QUANTIZE", "float32"): Rule(EVEN, VECTORS, AWAY),
    ("QUANTIZE", "int8"): Rule(INTEGER, UP, AWAY),
    ("QUANTIZE", "uint8"): Rule(INTEGER, UP, AWAY),
    ("QUANTIZE", "int16"): Rule("", AWAY, AWAY),
    ("QUANTIZE", "int32"): Rule("", AWAY, AWAY),
    ("SOFTMAX", "int8"): Rule("", FLOAT32, AWAY),
    ("SOFTMAX", "uint8"): Rule("", FLOAT32, AWAY),
    ("LOG_SOFTMAX", "int8"): Rule("", FLOAT32, ""),
    ("LOG_SOFTMAX", "uint8"): Rule("", FLOAT32, ""),
    ("HARD_SWISH", "int8"): Rule("", AWAY, AWAY),
    ("HARD_SWISH", "uint8"): Rule("", AWAY, AWAY),
    ("FLOOR_DIV", "int8"): Rule("", EIGHTS, EIGHTS),
    ("FLOOR_DIV", "int16"): Rule("", EIGHTS, EIGHTS),
    **{(op, "int16"): Rule("", FLOAT32, FLOAT32) for op in TABLES},
}
"""(operator, type of its data) -> how its results are rounded, of a MAX_POOL_2D the limits of its activation. Operators
that only move or compare need no rule."""

ARM: Mapping[tuple[str, str], Rule] = {
    ("CONV_2D", "int8"): Rule(EVEN, ONCE, AWAY),
    ("CONV_2D", "uint8"): Rule(HALF_UP, ONCE, AWAY),
    ("DEPTHWISE_CONV_2D", "uint8"): Rule(HALF_UP, AWAY, AWAY),
    ("TRANSPOSE_CONV", "uint8"): Rule(HALF_UP, SIXTEENS, AWAY),
    ("FULLY_CONNECTED", "int8"): Rule(EVEN, ONCE, DOUBLE),
    ("FULLY_CONNECTED", "uint8"): Rule(HALF_UP, ONCE, DOUBLE),
    ("MUL", "int8"): Rule(HALF_UP, AWAY, AWAY),
    ("MUL", "uint8"): Rule(HALF_UP, AWAY, AWAY),
    ("MEAN", "int8"): Rule(FUSED, SIXTEENS, AWAY),
    ("MEAN", "uint8"): Rule(FUSED, SIXTEENS, AWAY),
    ("SUM", "int8"): Rule(FUSED, AWAY, ""),
    ("SUM", "uint8"): Rule(FUSED, AWAY, ""),
    ("RESIZE_BILINEAR", "uint8"): Rule(FIXED11, FUSED, FUSED),
    ("DEQUANTIZE", "int8"): Rule(EVEN, FUSED, EVEN),
    ("DEQUANTIZE", "uint8"): Rule(EVEN, FUSED, EVEN),
    ("SOFTMAX", "int8"): Rule("", UINT16, AWAY),
    ("SOFTMAX", "uint8"): Rule("", UINT16, AWAY),
    ("LOG_SOFTMAX", "int8"): Rule("", FUSED, ""),
    ("LOG_SOFTMAX", "uint8"): Rule("", FUSED, ""),
    ("HARD_SWISH", "int8"): Rule("", EIGHTS, AWAY),
    ("HARD_SWISH", "uint8"): Rule("", EIGHTS, AWAY),
    ("FLOOR_DIV", "int8"): Rule("", WRAPPED, WRAPPED),
    ("FLOOR_DIV", "int16"): Rule("", WRAPPED, WRAPPED),
    **{(op, "int16"): Rule("", FUSED, FUSED) for op in TABLES},
}
"""The rules that differ on aarch64."""


def rules(call: Call, op: str, dtype: str) -> Rule:
    """The rule of an operator and a type of data, on the CPU whose LiteRT the node's results agree with."""
    arm = ARM.get((op, dtype)) if call.graph.quantized.cpu == AARCH64 else None
    return arm or RULES[op, dtype]


def product_rule(call: Call) -> str:
    """How LiteRT's optimized product of matrices rounds sums of 32 bits, whatever the types of its operands."""
    return rules(call, "CONV_2D", "int8").optimized


def rounding(call: Call, dtype: str) -> str:
    """How the results of a quantized node with data of type `dtype` are rounded."""
    rule = rules(call, call.node.op, dtype)
    if call.graph.quantized.rounding == "reference":
        return rule.reference
    return rule.xnnpack if rule.xnnpack and takes(call) else rule.optimized
