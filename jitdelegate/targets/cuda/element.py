"""How the elements of a tensor are stored, and how kernels read and write them as float32."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from llvmlite import ir

from jitdelegate.targets.cuda.device_code import F32, I16, I32, Code, Value

HALF = ir.HalfType()


class Element(Enum):
    """The stored type of a tensor's elements; kernels compute in float32."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def nbytes(self) -> int:
        return 4 if self is Element.FLOAT32 else 2

    @property
    def widest(self) -> int:
        """Elements in the widest access, 16 bytes."""
        return 16 // self.nbytes


def load(code: Code, element: Element, base: Value, index: Value, count: int = 1) -> list[Value]:
    """Elements `index` ... `index + count - 1` after `base` as float32, read in one access.

    `count` is 1, 2, 4 or, for 16-bit elements, 8; the address is a multiple of the access.
    """
    offset = index * element.nbytes
    if element is Element.FLOAT32:
        return code.load(base, offset, F32, count)
    if count == 1:
        return [_widen(code, element, code.load(base, offset, I16)[0])]
    return unpack(code, element, code.load(base, offset, I32, count // 2))


def load_where(
    code: Code, element: Element, condition: Value, base: Value, index: Value, count: int = 1
) -> list[Value]:
    """As `load`, but zeros where the condition does not hold, and then nothing is read."""
    offset = index * element.nbytes
    if element is Element.FLOAT32:
        return [code.from_bits(word) for word in code.load_where(condition, base, offset, count)]
    if count == 1:
        return [_widen(code, element, code.load_where(condition, base, offset, bits=16)[0])]
    return unpack(code, element, code.load_where(condition, base, offset, count // 2))


def store(code: Code, element: Element, values: Sequence[Value], base: Value, index: Value) -> None:
    """Float32 values to elements `index` and on after `base`, in one access; rounded to nearest even."""
    offset = index * element.nbytes
    if element is Element.FLOAT32:
        code.store(values, base, offset)
    elif len(values) == 1:
        narrow = code.builder.trunc(pack(code, element, [values[0], values[0]])[0].value, I16)
        code.store([Value(code, narrow)], base, offset)
    else:
        code.store(pack(code, element, values), base, offset)


def pack(code: Code, element: Element, values: Sequence[Value]) -> list[Value]:
    """Pairs of float32 rounded into int32s of two 16-bit elements, the first in the low half."""
    pairs = zip(values[::2], values[1::2], strict=True)
    if element is Element.BFLOAT16:
        return [code.ptx("cvt.rn.bf16x2.f32 $0, $1, $2;", "r", [high, low])[0] for low, high in pairs]
    return [_pack_half(code, low, high) for low, high in pairs]


def _pack_half(code: Code, low: Value, high: Value) -> Value:
    builder = code.builder
    pair: Any = ir.Constant(ir.VectorType(HALF, 2), ir.Undefined)
    for place, value in enumerate((low, high)):
        pair = builder.insert_element(pair, builder.fptrunc(value.value, HALF), I32(place))
    return Value(code, builder.bitcast(pair, I32))


def unpack(code: Code, element: Element, pairs: Sequence[Value]) -> list[Value]:
    """The float32 values of int32s that hold two 16-bit elements each."""
    if element is Element.BFLOAT16:
        return [code.from_bits(half) for pair in pairs for half in (pair << 16, pair & ~0xFFFF)]
    return [value for pair in pairs for value in _unpack_half(code, pair)]


def _unpack_half(code: Code, pair: Value) -> list[Value]:
    builder = code.builder
    halves = builder.bitcast(pair.value, ir.VectorType(HALF, 2))
    return [Value(code, builder.fpext(builder.extract_element(halves, I32(k)), F32)) for k in range(2)]


def _widen(code: Code, element: Element, bits: Value) -> Value:
    builder = code.builder
    if element is Element.FLOAT16:
        return Value(code, builder.fpext(builder.bitcast(bits.value, HALF), F32))
    return code.from_bits(Value(code, builder.zext(bits.value, I32)) << 16)


def common_width(sizes: Sequence[int], most: int) -> int:
    """The widest access, a power of two of at most `most` elements, that divides all sizes."""
    width = most
    while width > 1 and any(size % width for size in sizes):
        width //= 2
    return width
