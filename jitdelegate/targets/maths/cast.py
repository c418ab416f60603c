"""Conversions between element types, as `ir.expr.Cast` defines them."""

from __future__ import annotations

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.maths.builder import Builder, V
from jitdelegate.targets.maths.half import to_float, to_half

FLOATS = {"float32": "float", "float64": "double"}
"""Types of floats -> LLVM's names."""


def cast(b: Builder[V], value: V, source: str, target: str) -> V:
    """A value of type `source` converted to type `target`. A float of 16 bits is represented by its bits in an i16."""
    if source == target:
        return value
    if source == "float16":
        return cast(b, to_float(b, value), "float32", target)
    if target == "float16":
        return to_half(b, cast(b, value, source, "float32"))
    if source == "bfloat16":
        return cast(b, b.convert("fpext", b.convert("bitcast", value, "bfloat"), "float"), "float32", target)
    if target == "bfloat16":
        return b.convert("bitcast", b.convert("fptrunc", cast(b, value, source, "float32"), "bfloat"), "i16")
    if target == "bool":
        return b.compare("une" if value.is_float else "ne", value, 0)
    if ELEMENT_TYPES[target].is_float:
        return _to_float(b, value, source, FLOATS[target])
    if source == "float32":
        return b.to_integer(value, target)
    return _resized(b, value, source, target)


def _to_float(b: Builder[V], value: V, source: str, element: str) -> V:
    """A float32, float64, bool or integer as a float of LLVM's type `element`."""
    if ELEMENT_TYPES[source].is_float:
        return b.convert("fpext" if element == "double" else "fptrunc", value, element)
    return b.convert("sitofp" if ELEMENT_TYPES[source].is_signed else "uitofp", value, element)


def _resized(b: Builder[V], value: V, source: str, target: str) -> V:
    """An integer or bool truncated to fewer bits, or extended to more bits by its signedness."""
    bits = ELEMENT_TYPES[target].bits
    if bits == value.bits:
        return value
    extension = "sext" if ELEMENT_TYPES[source].is_signed else "zext"
    return b.convert("trunc" if bits < value.bits else extension, value, f"i{bits}")
