"""and, or, xor, not, shifts, bit fields and byte permutation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, types_of
from tests.gpu.simulator.instructions.arithmetic import elementwise
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import TYPES, Array, Type

U32, B32 = TYPES["u32"], TYPES["b32"]


@instruction("and", "or", "xor", "not")
def _logic(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    operations: dict[str, Callable[..., Array]] = {
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.invert,
    }
    return elementwise(decoder, instruction, operations[instruction.name], kind)


@instruction("shl", "shr")
def _shift(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    value, amount = decoder.get(instruction.operands[1], kind), decoder.get(instruction.operands[2], U32)
    put = decoder.put(instruction.operands[0], kind)
    shift = _shift_left if instruction.name == "shl" else _shift_right
    return lambda group: put(group, shift(value(group), amount(group), kind))


def _shift_left(value: Array, amount: Array, kind: Type) -> Array:
    shifted: Array = value << np.minimum(amount, kind.bits - 1).astype(value.dtype)
    return _zero_where_too_far(shifted, amount, kind)


def _shift_right(value: Array, amount: Array, kind: Type) -> Array:
    shifted: Array = value >> np.minimum(amount, kind.bits - 1).astype(value.dtype)
    return shifted if kind.is_signed else _zero_where_too_far(shifted, amount, kind)


def _zero_where_too_far(shifted: Array, amount: Array, kind: Type) -> Array:
    too_far = amount >= kind.bits
    return np.where(too_far, shifted.dtype.type(0), shifted) if too_far.any() else shifted


@instruction("shf")
def _funnel_shift(decoder: Decoder, instruction: Instruction) -> Step:
    low, high, amount = (decoder.get(operand, U32) for operand in instruction.operands[1:4])
    put = decoder.put(instruction.operands[0], B32)
    left, wraps = "l" in instruction.parts, "wrap" in instruction.parts

    def shifted(low: Array, high: Array, amount: Array) -> Array:
        both = high.astype(np.uint64) << np.uint64(32) | low
        count = (amount & np.uint32(31) if wraps else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        return (both << count >> np.uint64(32) if left else both >> count).astype(np.uint32)

    return lambda group: put(group, shifted(low(group), high(group), amount(group)))


@instruction("bfe")
def _extract(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    value = decoder.get(instruction.operands[1], kind)
    start, length = (decoder.get(operand, U32) for operand in instruction.operands[2:4])
    put = decoder.put(instruction.operands[0], kind)
    return lambda group: put(group, _field(value(group), start(group) & 255, length(group) & 255, kind))


def _field(value: Array, start: Array, length: Array, kind: Type) -> Array:
    """The bits from `start` on, the sign bit being that of the field's top or of the whole value past its end."""
    start, length = start.astype(np.int64), length.astype(np.int64)
    dtype = value.dtype.type
    moved = value >> np.minimum(start, kind.bits - 1).astype(value.dtype)
    if not kind.is_signed:
        moved = np.where(start < kind.bits, moved, dtype(0))
    unused = np.clip(kind.bits - length, 0, kind.bits - 1).astype(value.dtype)
    result: Array = np.where(length == 0, dtype(0), (moved << unused) >> unused)
    return result


@instruction("bfi")
def _insert(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    field, base = (decoder.get(operand, kind) for operand in instruction.operands[1:3])
    start, length = (decoder.get(operand, U32) for operand in instruction.operands[3:5])
    put = decoder.put(instruction.operands[0], kind)

    def inserted(field: Array, base: Array, start: Array, length: Array) -> Array:
        ones = _shift_left(np.ones(1, kind.raw), length & 255, kind) - kind.raw.type(1)
        mask = _shift_left(ones, start & 255, kind)
        return (base & ~mask) | (_shift_left(field, start & 255, kind) & mask)

    return lambda group: put(group, inserted(field(group), base(group), start(group), length(group)))


@instruction("prmt")
def _permute_bytes(decoder: Decoder, instruction: Instruction) -> Step:
    if instruction.parts[1:] != ("b32",):
        raise decoder.unknown(instruction)
    low, high, selector = (decoder.get(operand, U32) for operand in instruction.operands[1:4])
    put = decoder.put(instruction.operands[0], B32)
    return lambda group: put(group, _permuted(low(group), high(group), selector(group)))


def _permuted(low: Array, high: Array, selector: Array) -> Array:
    both = high.astype(np.uint64) << np.uint64(32) | low
    result = np.zeros(1, np.uint32)
    for place in range(4):
        nibble = (selector >> np.uint32(4 * place)) & np.uint32(15)
        byte = (both >> ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)).astype(np.uint32) & np.uint32(0xFF)
        sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        result = result | np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * place)
    return result
