"""add, sub, mul, mad, fma, div, rem, min, max, abs, neg and their kin, for integers and floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jitdelegate.ir.expr import odd_sum
from tests.gpu.simulator.decode import Decoder, Get, Step, instruction, types_of
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.rounding import exact, finish, flush_inputs
from tests.gpu.simulator.syntax import Instruction, Register
from tests.gpu.simulator.types import TYPES, Array, Type

Operation = Callable[..., Array]
WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


def elementwise(decoder: Decoder, instruction: Instruction, operation: Operation, kind: Type, *narrow: Type) -> Step:
    """The step `first operand = operation(other operands)`, all of one type but for the first ones of the others."""
    sources = instruction.operands[1:]
    if kind.is_float and "relu" in instruction.parts:
        raise decoder.unknown(instruction)
    kinds = (*narrow, *[kind] * (len(sources) - len(narrow)))
    pairs = list(zip(sources, kinds, strict=True))
    if any(isinstance(source, Register) and decoder.raw_dtype(source) != one.raw for source, one in pairs):
        raise decoder.unknown(instruction, "an operand's register is not as wide as its type")
    gets = [flush_inputs(decoder.get(source, one), instruction, kind) for source, one in pairs]
    put = decoder.put(instruction.operands[0], kind)
    if kind.is_float:
        operation = finish(operation, instruction, kind)
    return _apply(operation, gets, put)


def _apply(operation: Operation, gets: list[Get], put: Callable[[Group, Array], None]) -> Step:
    if len(gets) == 1:
        (one,) = gets
        return lambda group: put(group, operation(one(group)))
    if len(gets) == 2:
        first, second = gets
        return lambda group: put(group, operation(first(group), second(group)))
    return lambda group: put(group, operation(*(get(group) for get in gets)))


@instruction("add", "sub")
def _add(decoder: Decoder, instruction: Instruction) -> Step:
    if "cc" in instruction.parts:
        raise decoder.unknown(instruction)
    kind, *mixed = types_of(instruction)
    operation = np.add if instruction.name == "add" else np.subtract
    return elementwise(decoder, instruction, exact(operation, instruction, kind), kind, *mixed)


@instruction("mul")
def _mul(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    if "wide" in instruction.parts:
        return _wide(decoder, instruction, kind, np.multiply)
    if "hi" in instruction.parts:
        return elementwise(decoder, instruction, lambda a, b: high_half(a, b, kind), kind)
    return elementwise(decoder, instruction, exact(np.multiply, instruction, kind), kind)


@instruction("mad")
def _mad(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    if {"cc", "hi"} & set(instruction.parts):
        raise decoder.unknown(instruction)
    if kind.is_float:
        return _fma(decoder, instruction)
    if "wide" in instruction.parts:
        return _wide(decoder, instruction, kind, lambda a, b, c: a * b + c)
    return elementwise(decoder, instruction, lambda a, b, c: a * b + c, kind)


def _wide(decoder: Decoder, instruction: Instruction, kind: Type, operation: Operation) -> Step:
    wider = TYPES[WIDER[kind.name]]
    dtype = wider.decode(np.zeros(1, wider.raw)).dtype
    narrow = [decoder.get(source, kind) for source in instruction.operands[1:3]]
    put = decoder.put(instruction.operands[0], wider)
    first, second = narrow
    if len(instruction.operands) == 3:
        return lambda group: put(group, first(group).astype(dtype) * second(group))
    third = decoder.get(instruction.operands[3], wider)
    return lambda group: put(group, first(group).astype(dtype) * second(group) + third(group))


def high_half(a: Array, b: Array, kind: Type) -> Array:
    """The upper half of the product of two integers."""
    if kind.size < 8:
        wide = np.int64 if kind.is_signed else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(kind.bits)).astype(a.dtype)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    low_x, high_x, low_y, high_y = x & mask, x >> half, y & mask, y >> half
    middle = high_x * low_y + ((low_x * low_y) >> half)
    other = low_x * high_y + (middle & mask)
    high = high_x * high_y + (middle >> half) + (other >> half)
    if kind.is_signed:  # the unsigned product counts 2**64 too much for each negative factor
        high = high - np.where(a < 0, y, 0).astype(np.uint64) - np.where(b < 0, x, 0).astype(np.uint64)
    result: Array = high.view(a.dtype)
    return result


@instruction("fma")
def _fma(decoder: Decoder, instruction: Instruction) -> Step:
    kind, *mixed = types_of(instruction)
    return elementwise(decoder, instruction, _multiply_add, kind, *mixed * 2)


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """In float64; the caller rounds float32 once more, which sees what the sum lost."""
    found: Array = odd_sum(a, b, c) if a.dtype == np.float32 else np.add(np.multiply(a, b, dtype=np.float64), c)
    return found


@instruction("div")
def _div(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    if kind.is_float:
        return elementwise(decoder, instruction, exact(np.divide, instruction, kind), kind)
    return elementwise(decoder, instruction, _truncated_quotient if kind.is_signed else np.floor_divide, kind)


def _truncated_quotient(a: Array, b: Array) -> Array:
    quotient, remainder = np.floor_divide(a, b), np.remainder(a, b)
    result: Array = quotient + ((remainder != 0) & ((a < 0) != (b < 0)))
    return result


@instruction("rem")
def _rem(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    return elementwise(decoder, instruction, np.fmod, kind)


@instruction("min", "max")
def _minimum(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)[-1:]
    propagating = not kind.is_float or "NaN" in instruction.parts
    one: np.ufunc
    if instruction.name == "min":
        one = np.minimum if propagating else np.fmin
    else:
        one = np.maximum if propagating else np.fmax
    if kind.is_float:
        return elementwise(decoder, instruction, _with_signed_zero(one), kind)
    if "relu" in instruction.parts:
        return elementwise(decoder, instruction, lambda a, b: np.maximum(one(a, b), a.dtype.type(0)), kind)
    return elementwise(decoder, instruction, one, kind)


def _with_signed_zero(choose: np.ufunc) -> Operation:
    """-0 counts as less than +0, which numpy does not see."""
    smaller = choose in (np.minimum, np.fmin)

    def chosen(a: Array, b: Array) -> Array:
        result: Array = choose(a, b)
        zeros = (a == 0) & (b == 0)
        if zeros.any():
            negative = (np.signbit(a) | np.signbit(b)) if smaller else (np.signbit(a) & np.signbit(b))
            result = np.where(zeros, np.where(negative, -0.0, 0.0).astype(result.dtype), result)
        return result

    return chosen


@instruction("abs", "neg", "copysign")
def _sign(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)[-1:]
    operations: dict[str, Operation] = {
        "abs": np.abs,
        "neg": np.negative,
        "copysign": lambda sign, size: np.copysign(size, sign),
    }
    return elementwise(decoder, instruction, operations[instruction.name], kind)


@instruction("dp4a", "dp2a")
def _dot_product(decoder: Decoder, instruction: Instruction) -> Step:
    first, second = types_of(instruction)
    raw = TYPES["b32"]
    result = TYPES["s32" if first.is_signed or second.is_signed else "u32"]
    a, b = (decoder.get_raw(operand, raw) for operand in instruction.operands[1:3])
    c, put = decoder.get(instruction.operands[3], result), decoder.put(instruction.operands[0], result)
    if "hi" in instruction.parts:
        raise decoder.unknown(instruction)
    width = 2 if instruction.name == "dp2a" else 1  # bytes of the parts of the first operand

    def step(group: Group) -> None:
        left = _parts(a(group), first, width)
        products = left * _parts(b(group), second, 1)[:, : left.shape[1]]
        put(group, (products.sum(1) + c(group)).astype(np.int64))

    return step


def _parts(raw: Array, kind: Type, width: int) -> Array:
    dtype = f"{'i' if kind.is_signed else 'u'}{width}"
    return np.ascontiguousarray(raw).view(dtype).reshape(-1, 4 // width).astype(np.int64)
