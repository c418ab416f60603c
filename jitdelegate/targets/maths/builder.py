"""The protocol between scalar mathematics and a target: values with operators, and a builder of instructions.

A value is one number, or a vector of numbers to which the same instructions apply. Element types have LLVM's names:
"i1", "i8", "i16", "i32", "i64", "half", "float" and "double".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol, Self, TypeVar


class Value(Protocol):
    """Operators emit the instruction for the value's type; the other operand may be a Python number.

    `>>` is logical; integers wrap.
    """

    @property
    def is_float(self) -> bool: ...

    @property
    def bits(self) -> int:
        """Bits of one element."""

    def __add__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __truediv__(self, other: Any, /) -> Self: ...
    def __rsub__(self, other: Any, /) -> Self: ...
    def __rtruediv__(self, other: Any, /) -> Self: ...
    def __neg__(self) -> Self: ...
    def __and__(self, other: Any, /) -> Self: ...
    def __or__(self, other: Any, /) -> Self: ...
    def __xor__(self, other: Any, /) -> Self: ...
    def __lshift__(self, other: Any, /) -> Self: ...
    def __rshift__(self, other: Any, /) -> Self: ...


V = TypeVar("V", bound=Value)
NATIVE = ("abs", "floor", "ceil", "round", "trunc", "sqrt", "copysign")
"""Functions of floats that every target implements by an instruction or a library."""


class Builder(Protocol[V]):
    """Writes instructions of one kernel. Of two operands, one may be a Python number."""

    @property
    def has_half(self) -> bool:
        """Whether instructions convert float16; else "nearest" is `native`."""

    def constant(self, dtype: str, number: float, lanes: int = 1) -> V:
        """A number as an element of the IR's type `dtype`, converted as `ir.expr.Cast` does, in every lane."""

    def like(self, number: Any, example: V) -> V:
        """A Python number as a constant of the example's type; a value unchanged."""

    def convert(self, operation: str, value: V, element: str) -> V:
        """LLVM's conversion (`bitcast trunc zext sext sitofp uitofp fptosi fpext fptrunc`) to elements of a type."""

    def to_integer(self, value: V, dtype: str) -> V:
        """A float32 rounded towards zero and clamped to the range of the integer type `dtype`; NaN gives 0."""

    def compare(self, condition: str, left: V, right: Any) -> V:
        """A mask, by LLVM's conditions: `eq ne slt ult ...` of integers, `oeq une olt uno ...` of floats."""

    def select(self, condition: V, if_true: Any, if_false: Any) -> V:
        """`if_true` where the mask is set, else `if_false`."""

    def maximum(self, a: V, b: Any) -> V:
        """The larger of two floats or signed integers; NaN in `a` stays NaN."""

    def minimum(self, a: V, b: Any) -> V:
        """The smaller of two floats or signed integers; NaN in `a` stays NaN."""

    def fma(self, a: V, b: Any, c: Any) -> V:
        """a * b + c, rounded once where the machine has FMA."""

    def sdiv(self, a: V, b: V) -> V:
        """Quotient of signed integers, rounded towards zero; `b` must not be 0, and the quotient must not overflow."""

    def ashr(self, value: V, distance: Any) -> V:
        """Arithmetic shift to the right."""

    def fshl(self, high: V, low: V, distance: V) -> V:
        """The upper 32 bits of the 64 bits (high, low) shifted left by 0 to 31."""

    def native(self, name: str, *values: V) -> V | None:
        """A function of floats by the target's own instruction or library; None if the target has none.

        Every target has the functions in NATIVE. It may also have other functions of `ir.expr`, such as "fma"; C's
        "fmod", "fmax" and "fmin"; "scale": a * 2**n for whole numbers n; and "nearest": an int32, halves to even.
        """

    def word_product(self, value: V, factor: V | int) -> V | None:
        """value * factor, an int32, where both fit an int16; None if products of 32 bits are as fast."""

    def look_up(self, entries: Sequence[int], index: V) -> V:
        """entries[index] as int32, from constant memory; `index` is an int32 within the table."""

    def look_up_bytes(self, entries: Sequence[int], index: V) -> V | None:
        """entries[index] for an unsigned index of 8 bits and entries of 8 bits; None if `look_up` is as fast."""

    def repeat(self, count: int, body: Callable[..., Sequence[V]], *carried: V) -> Sequence[V]:
        """Repeats `values = body(i, *values)` `count` times, from the values `carried`; returns the last values."""


def native(b: Builder[V], name: str, *values: V) -> V:
    """A function of NATIVE."""
    found = b.native(name, *values)
    assert found is not None, name
    return found


def polynomial(b: Builder[V], x: V, coefficients: Sequence[float]) -> V:
    """Horner's scheme, highest coefficient first."""
    return reduce(lambda total, c: b.fma(total, x, c), coefficients[1:], b.like(coefficients[0], x))
