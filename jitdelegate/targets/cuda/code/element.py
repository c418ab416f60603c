"""Storage types of tensor elements, and how kernels read and write them.

In registers, floats of every width are float32, bools are one bit, and all other types are as stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from llvmlite import ir

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cuda.code.device_code import F32, HALF, I1, I8, I16, I32, I64, Code, Value, register

WORD = 4


class Element(Enum):
    """The stored type of a tensor's elements."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT32 = "int32"
    INT64 = "int64"
    UINT64 = "uint64"
    UINT32 = "uint32"
    INT16 = "int16"
    UINT16 = "uint16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"
    COMPLEX64 = "complex64"
    FLOAT16_BITS = "bits of float16"
    INT4 = "int4"
    """Of weights alone, two to a byte."""

    @property
    def dtype(self) -> str:
        """The IR's name for the type of these elements in registers."""
        if self is Element.FLOAT16_BITS:
            return "float16"
        return "float32" if self.is_narrow_float else self.value

    @property
    def is_narrow_float(self) -> bool:
        """Whether a float32 tensor is stored as these 16-bit elements."""
        return self in (Element.FLOAT16, Element.BFLOAT16)

    @property
    def nbytes(self) -> int:
        return 2 if self.is_narrow_float else ELEMENT_TYPES[self.dtype].nbytes

    @property
    def widest(self) -> int:
        """Number of elements in the widest access, 16 bytes."""
        return 16 // self.nbytes


OWN: Mapping[str, Element] = {
    element.dtype: element for element in Element if not (element.is_narrow_float or element is Element.INT4)
}
"""Storage by tensor type, where the precision option does not change it."""
_REGISTERS: Mapping[int, Any] = {1: I8, 2: I16, 4: I32, 8: I64}


def load(code: Code, element: Element, base: Value, index: Value, count: int = 1) -> list[Value]:
    """The values of elements `index` ... `index + count - 1` after `base`, read in one access.

    `count` is a power of two of at most `element.widest`; the address is a multiple of the access.
    """
    offset = index * element.nbytes
    if element.nbytes >= WORD:
        return code.load(base, offset, register(element.dtype), count)
    nbytes = count * element.nbytes
    words = code.load(base, offset, _REGISTERS[min(nbytes, WORD)], max(1, nbytes // WORD))
    if not element.is_narrow_float:
        return [_from_byte(code, element, value) for word in words for value in split(code, word, element.nbytes)]
    return [_widen(code, element, words[0])] if count == 1 else unpack(code, element, words)


def load_where(
    code: Code, element: Element, condition: Value, base: Value, index: Value, count: int = 1
) -> list[Value]:
    """Like `load`; where the condition does not hold, the values are zeros. No float is read there; integers are read
    from the first index on, and not used."""
    if element.dtype != "float32":
        loaded = load(code, element, base, code.select(condition, index, 0), count)
        return [code.select(condition, value, 0) for value in loaded]
    offset = index * element.nbytes
    if element is Element.FLOAT32:
        return [code.from_bits(word) for word in code.load_where(condition, base, offset, count)]
    if count == 1:
        return [_widen(code, element, code.load_where(condition, base, offset, bits=16)[0])]
    return unpack(code, element, code.load_where(condition, base, offset, count // 2))


def load_or(
    code: Code, element: Element, condition: Value, base: Value, index: Value, count: int, other: Value
) -> list[Value]:
    """Like `load`, of integers of at most 16 bits; where the condition does not hold, they are those of the word
    `other`, and the first ones of all are read."""
    nbytes, at = count * element.nbytes, code.select(condition, index, 0) * element.nbytes
    type_ = _REGISTERS[min(nbytes, WORD)]
    words = code.load(base, at, type_, max(1, nbytes // WORD))
    kept = (code.select(condition, word, resized(code, other, type_)) for word in words)
    return [value for word in kept for value in split(code, word, element.nbytes)]


def store(code: Code, element: Element, values: Sequence[Value], base: Value, index: Value) -> None:
    """Stores values as elements `index` and following after `base`, in as few accesses as possible; float32 is rounded
    to nearest even."""
    step = min(len(values), element.widest)
    for at in range(0, len(values), step):
        code.store(stored(code, element, values[at : at + step]), base, (index + at) * element.nbytes)


def stored(code: Code, element: Element, values: Sequence[Value]) -> list[Value]:
    """The values in the form that one access writes."""
    if element.nbytes >= WORD:
        return list(values)
    if not element.is_narrow_float:
        nbytes = min(len(values) * element.nbytes, WORD)
        per_word = nbytes // element.nbytes
        return [joined(code, values[at : at + per_word], nbytes) for at in range(0, len(values), per_word)]
    if len(values) == 1:
        return [Value(code, code.builder.trunc(pack(code, element, [values[0], values[0]])[0].value, I16))]
    return pack(code, element, values)


def _from_byte(code: Code, element: Element, value: Value) -> Value:
    return Value(code, code.builder.icmp_signed("!=", value.value, I8(0))) if element is Element.BOOL else value


def split(code: Code, word: Value, nbytes: int) -> list[Value]:
    """An integer split into integers of `nbytes` each, the lowest first."""
    bits = 8 * nbytes
    return [
        resized(code, word >> at if at else word, _REGISTERS[nbytes]) for at in range(0, word.value.type.width, bits)
    ]


def joined(code: Code, values: Sequence[Value], nbytes: int) -> Value:
    """Equally wide integers joined into one of `nbytes`, the first one lowest."""
    type_, bits = _REGISTERS[nbytes], 8 * nbytes // len(values)
    first, *rest = (resized(code, value, type_) for value in values)
    for position, value in enumerate(rest, 1):
        first = first | (value << position * bits)
    return first


def resized(code: Code, value: Value, type_: Any) -> Value:
    """The bits of an integer as another integer type, zero-extended or truncated."""
    if value.value.type == type_:
        return value
    wider = value.value.type.width < type_.width
    return Value(code, (code.builder.zext if wider else code.builder.trunc)(value.value, type_))


def widened(code: Code, value: Value) -> Value:
    """A value widened to at least a 32-bit word, so that it can move between threads; narrow types become int32."""
    type_ = value.value.type
    return resized(code, value, I32) if type_ in (I1, I8, I16) else value


def narrowed(code: Code, value: Value, dtype: str) -> Value:
    """The value of type `dtype` that `widened` was given."""
    type_ = register(dtype)
    return resized(code, value, type_) if type_ in (I1, I8, I16) else value


def pack(code: Code, element: Element, values: Sequence[Value]) -> list[Value]:
    """Pairs of float32 rounded and packed into int32s of two 16-bit elements, the first in the low half."""
    pairs = zip(values[::2], values[1::2], strict=True)
    if element is Element.BFLOAT16:
        return [code.ptx("cvt.rn.bf16x2.f32 $0, $1, $2;", "r", [high, low])[0] for low, high in pairs]
    return [_pack_half(code, low, high) for low, high in pairs]


def _pack_half(code: Code, low: Value, high: Value) -> Value:
    builder = code.builder
    pair: Any = ir.Constant(ir.VectorType(HALF, 2), ir.Undefined)
    for position, value in enumerate((low, high)):
        pair = builder.insert_element(pair, builder.fptrunc(value.value, HALF), I32(position))
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
