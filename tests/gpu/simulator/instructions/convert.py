"""cvt: between integers and floats of every width, and packing of two floats into one register."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, types_of
from tests.gpu.simulator.rounding import direction, flush, flush_inputs, round_towards, saturate
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import TYPES, Array, Type

F32, B32 = TYPES["f32"], TYPES["b32"]
PACKED = {"f16x2", "bf16x2"}
TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@instruction("cvt")
def _cvt(decoder: Decoder, instruction: Instruction) -> Step:
    if {"pack", "relu"} & set(instruction.parts):
        raise decoder.unknown(instruction)
    packed = PACKED & set(instruction.parts)
    if packed:
        return _pack_floats(decoder, instruction, TYPES[packed.pop().removesuffix("x2")])
    target, source = types_of(instruction)
    get = flush_inputs(decoder.get(instruction.operands[1], source), instruction, source)
    put = decoder.put(instruction.operands[0], target)
    convert = _conversion(decoder, instruction, target, source)
    return lambda group: put(group, convert(get(group)))


def _conversion(decoder: Decoder, instruction: Instruction, target: Type, source: Type) -> Callable[[Array], Array]:
    rounding = next((TO_INTEGER[part] for part in instruction.parts if part in TO_INTEGER), None)
    if target.name == "tf32":
        if "rna" not in instruction.parts:
            raise decoder.unknown(instruction)
        return to_tf32
    if not target.is_float:
        if source.is_float:
            assert rounding is not None
            is_wide = 64 in (target.bits, source.bits)  # then NaN becomes the highest bit alone, else 0
            of_nan = target.decode(np.array(is_wide << target.bits - 1, target.raw))
            return lambda values: np.where(
                np.isnan(values), of_nan, float_to_integer(rounding(values.astype(np.float64)), target)
            )
        return lambda values: _integer_to_integer(values, target, "sat" in instruction.parts)
    steps: list[Callable[[Array], Array]] = []
    if rounding is not None:
        steps.append(rounding)
    steps.append(_narrowing(decoder, instruction, target))
    if "ftz" in instruction.parts and target.name == "f32":
        steps.append(flush)
    if "sat" in instruction.parts:
        steps.append(saturate)
    return lambda values: _in_turn(steps, values)


def _in_turn(steps: list[Callable[[Array], Array]], values: Array) -> Array:
    for step in steps:
        values = step(values)
    return values


def _narrowing(decoder: Decoder, instruction: Instruction, target: Type) -> Callable[[Array], Array]:
    """Rounds to the target's precision; what comes out still is the dtype the target encodes from."""
    mode = direction(instruction)
    if target.name == "f64":
        return lambda values: values.astype(np.float64)
    if target.name == "f32":
        return lambda values: round_towards(values.astype(np.float64), mode) if mode else values.astype(np.float32)
    if mode:
        raise decoder.unknown(instruction)
    return lambda values: values if target.name == "f16" else values.astype(np.float32)


def float_to_integer(values: Array, target: Type) -> Array:
    """Whole float64 numbers clamped to the target's range; NaN becomes 0."""
    info = np.iinfo(target.decode(np.zeros(1, target.raw)).dtype)
    high = values >= float(info.max)
    inside = np.where(np.isnan(values) | high, 0, np.maximum(values, float(info.min)))
    return np.where(high, info.max, inside.astype(info.dtype)).astype(info.dtype)


def _integer_to_integer(values: Array, target: Type, saturates: bool) -> Array:
    dtype = target.decode(np.zeros(1, target.raw)).dtype
    if not saturates:
        return values.astype(dtype)
    info, own = np.iinfo(dtype), np.iinfo(values.dtype)
    return np.clip(values, max(info.min, own.min), min(info.max, own.max)).astype(dtype)


def to_tf32(values: Array) -> Array:
    """float32 with 10 bits of fraction, to the nearest; ties away from zero."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _pack_floats(decoder: Decoder, instruction: Instruction, half: Type) -> Step:
    """cvt.rn.f16x2.f32 d, a, b: a in the upper half, b in the lower."""
    high, low = (decoder.get(operand, F32) for operand in instruction.operands[1:3])
    put = decoder.put(instruction.operands[0], B32)
    narrow = _narrowing(decoder, instruction, half)

    def bits(values: Array) -> Array:
        return half.encode(narrow(values)).astype(np.uint32)

    return lambda group: put(group, bits(high(group)) << np.uint32(16) | bits(low(group)))
