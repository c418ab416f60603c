"""cvt: between integers and floats of every width, and packing of two values into one register."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, types_of
from tests.gpu.simulator.rounding import direction, flush, flush_inputs, round_towards, saturate
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import TYPES, Array, Type

F32, B32 = TYPES["f32"], TYPES["b32"]
TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@instruction("cvt")
def _cvt(decoder: Decoder, instruction: Instruction) -> Step:
    if "pack" in instruction.parts:
        return _pack_integers(decoder, instruction)
    kinds = types_of(instruction)
    if len(kinds) != 2:
        raise decoder.unknown(instruction)
    target, source = kinds
    if target.name in ("f16x2", "bf16x2"):
        return _pack_floats(decoder, instruction, target)
    get = flush_inputs(decoder.get(instruction.operands[1], source), instruction, source)
    put = decoder.put(instruction.operands[0], target)
    convert = _conversion(decoder, instruction, target, source)
    return lambda group: put(group, convert(get(group)))


def _conversion(decoder: Decoder, instruction: Instruction, target: Type, source: Type) -> Callable[[Array], Array]:
    rounding = next((TO_INTEGER[part] for part in instruction.parts if part in TO_INTEGER), None)
    if target.name == "tf32":
        return lambda values: to_tf32(values, away="rna" in instruction.parts)
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
    steps.append(_narrowing(instruction, target, source))
    if "ftz" in instruction.parts and target.name == "f32":
        steps.append(flush)
    if "sat" in instruction.parts:
        steps.append(saturate)
    if "relu" in instruction.parts:
        steps.append(_relu)
    return lambda values: _in_turn(steps, values)


def _in_turn(steps: list[Callable[[Array], Array]], values: Array) -> Array:
    for step in steps:
        values = step(values)
    return values


def _relu(values: Array) -> Array:
    return np.where(values < 0, 0, values).astype(values.dtype)


def _narrowing(instruction: Instruction, target: Type, source: Type) -> Callable[[Array], Array]:
    """Rounds to the target's precision; what comes out still is the dtype the target encodes from."""
    mode = direction(instruction)
    if target.name == "f64":
        return lambda values: values.astype(np.float64)
    if target.name == "f32":
        return lambda values: round_towards(values.astype(np.float64), mode) if mode else values.astype(np.float32)
    if mode:
        return lambda values: _small_towards(values.astype(np.float64), target, mode)
    return lambda values: values if target.name == "f16" else values.astype(np.float32)


def _small_towards(values: Array, target: Type, mode: str) -> Array:
    """To float16 or bfloat16 towards one side: the nearest, or its neighbour if that lies beyond."""
    bits = target.encode(values if target.name == "f16" else values.astype(np.float32))
    near = target.decode(bits).astype(np.float64)
    towards_zero = {"rz": np.ones_like(values, np.bool_), "rm": values > 0, "rp": values < 0}[mode]
    beyond = np.where(towards_zero, np.abs(near) > np.abs(values), np.abs(near) < np.abs(values))
    step = np.where(towards_zero, -1, 1).astype(np.int16)
    return target.decode(np.where(beyond, bits + step.view(np.uint16), bits))


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


def to_tf32(values: Array, *, away: bool) -> Array:
    """float32 with 10 bits of fraction, to the nearest; ties away from zero or to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = np.uint32(0x1000) if away else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    rounded = ((bits + half) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _pack_floats(decoder: Decoder, instruction: Instruction, target: Type) -> Step:
    """cvt.rn.f16x2.f32 d, a, b: a in the upper half, b in the lower."""
    high, low = (decoder.get(operand, F32) for operand in instruction.operands[1:3])
    put = decoder.put(instruction.operands[0], B32)
    half = TYPES[target.name[:-2]]
    narrow = _narrowing(instruction, half, F32)
    relu = _relu if "relu" in instruction.parts else lambda values: values

    def bits(values: Array) -> Array:
        return half.encode(relu(narrow(values))).astype(np.uint32)

    return lambda group: put(group, bits(high(group)) << np.uint32(16) | bits(low(group)))


def _pack_integers(decoder: Decoder, instruction: Instruction) -> Step:
    """cvt.pack.sat: two s32 clamped and packed, for 8-bit results above the lower half of the third operand."""
    target, source = types_of(instruction)[:2]
    first, second = (decoder.get(operand, source) for operand in instruction.operands[1:3])
    put, bits = decoder.put(instruction.operands[0], B32), np.uint32(target.bits)
    below = decoder.get_raw(instruction.operands[3], B32) if len(instruction.operands) > 3 else None

    def narrow(values: Array) -> Array:
        return _integer_to_integer(values, target, saturates=True).view(target.raw).astype(np.uint32)

    def pack(a: Array, b: Array) -> Array:
        return narrow(a) << bits | narrow(b)

    if below is None:
        return lambda group: put(group, pack(first(group), second(group)))
    return lambda group: put(group, below(group) << (bits * np.uint32(2)) | pack(first(group), second(group)))
