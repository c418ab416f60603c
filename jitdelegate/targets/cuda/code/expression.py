"""Expressions in kernels. Where integers come from floats, products are rounded before anything is added to them."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.ir.expr import Expr
from jitdelegate.ir.quantized import Quantize
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.maths import expression

STORED_INTEGERS = ("int8", "uint8", "int16")
"""Types of tensors that hold quantized numbers."""


def emit(code: Code, expr: Expr, values: Sequence[Value], types: Sequence[str], dtype: str) -> Value:
    """The value of `expr` with `values`, of these `types`, in place of its Args; a constant alone is of type `dtype`.

    NVIDIA's compilers make one FMA of a product of floats and a sum. In expressions that quantize, the product is
    rounded first, as LiteRT does: a number near a half would otherwise become another integer.
    """
    code.rounds_products = quantizes(expr) or not set(types).isdisjoint(STORED_INTEGERS)
    value = expression.emit(code, expr, values, types, dtype)
    code.rounds_products = False
    return value


def quantizes(expr: Expr) -> bool:
    """Whether integers come from floats in an expression."""
    return isinstance(expr, Quantize) or any(map(quantizes, expr.parts))
