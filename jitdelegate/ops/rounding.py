"""How quantized operators round: one rule per operator and type of data, found by experiment with LiteRT 2.3.

By default LiteRT runs a quantized operator in XNNPACK where that takes the operator, else in its optimized kernels. The
option `quantized_rounding` = "reference" asks for the rounding of its reference kernels instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
FLOAT32, FIXED10, FIXED11 = "float32", "fixed10", "fixed11"
"""The weights of `ir.forms.Resize`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rounding in XNNPACK ("" if it never takes the operator), in LiteRT's optimized and reference kernels."""

    xnnpack: str
    optimized: str
    reference: str


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
}
"""(operator, type of its data) -> how its results are rounded, of a MAX_POOL_2D the limits of its activation. Operators
that only move or compare need no rule."""


def rounding(call: Call, dtype: str) -> str:
    """How the results of a quantized node with data of type `dtype` are rounded."""
    rule = RULES[call.node.op, dtype]
    if call.graph.quantized.rounding == "reference":
        return rule.reference
    return rule.xnnpack if rule.xnnpack and takes(call) else rule.optimized
