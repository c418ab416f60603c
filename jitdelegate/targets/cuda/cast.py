"""Numbers in other types, as `ir.expr.Cast` says."""

from __future__ import annotations

import numpy as np

from jitdelegate.targets.cuda.device_code import F32, I16, Code, Value
from jitdelegate.targets.cuda.element import HALF, register
from jitdelegate.targets.cuda.integer_functions import maximum, minimum


def cast(code: Code, value: Value, source: str, target: str) -> Value:
    """A value of type `source` as one of type `target`."""
    if source == target:
        return value
    if source == "float16":
        return cast(code, _from_half(code, value), "float32", target)
    if target == "float16":
        return _to_half(code, cast(code, value, source, "float32"))
    if target == "bool":
        return _to_bool(code, value)
    if source == "float32":
        return _float_to_integer(code, value, target)
    return _integer_to_float(code, value, source) if target == "float32" else _resized(code, value, source, target)


def _is_unsigned(dtype: str) -> bool:
    return dtype == "bool" or dtype.startswith("u")


def _from_half(code: Code, value: Value) -> Value:
    builder = code.builder
    return Value(code, builder.fpext(builder.bitcast(value.value, HALF), F32))


def _to_half(code: Code, value: Value) -> Value:
    builder = code.builder
    return Value(code, builder.bitcast(builder.fptrunc(value.value, HALF), I16))


def _to_bool(code: Code, value: Value) -> Value:
    """Whether it is not 0; NaN is not."""
    if value.is_float:
        return Value(code, code.builder.fcmp_unordered("!=", value.value, code.real(0.0).value))
    return ~value.equals(0)


def _float_to_integer(code: Code, value: Value, target: str) -> Value:
    """Towards zero, within the target's range; NaN is 0, which PTX has for 32 bits only."""
    if target == "int64":
        (whole,) = code.ptx("cvt.rzi.s64.f32 $0, $1;", "l", [value])
        return code.select(value.equals(value), whole, 0)
    if target == "uint32":
        return code.ptx("cvt.rzi.u32.f32 $0, $1;", "r", [value])[0]
    (whole,) = code.ptx("cvt.rzi.s32.f32 $0, $1;", "r", [value])
    return whole if target == "int32" else _resized(code, _limited(code, whole, target), "int32", target)


def _limited(code: Code, whole: Value, target: str) -> Value:
    """An int32 within the range of a narrower type."""
    limits = np.iinfo(target)
    low, high = code.integer(int(limits.min)), code.integer(int(limits.max))
    return minimum(code, "int32", maximum(code, "int32", whole, low), high)


def _integer_to_float(code: Code, value: Value, source: str) -> Value:
    convert = code.builder.uitofp if _is_unsigned(source) else code.builder.sitofp
    return Value(code, convert(value.value, F32))


def _resized(code: Code, value: Value, source: str, target: str) -> Value:
    """An integer or bool with fewer bits, or more of them as its sign asks."""
    builder, type_ = code.builder, register(target)
    if type_ == value.value.type:
        return value
    if type_.width < value.value.type.width:
        return Value(code, builder.trunc(value.value, type_))
    return Value(code, (builder.zext if _is_unsigned(source) else builder.sext)(value.value, type_))
