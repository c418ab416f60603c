"""The protocol between scalar mathematics and a target: values with operators, and a builder of instructions.

A value is one number, or a vector of numbers that the same instructions work on. Types of elements are named as in
LLVM: "i1", "i8", "i16", "i32", "i64", "half", "float" and "double".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
"""Functions of floats that every target has an instruction or a library for."""


class Builder(Protocol[V]):
    """Writes instructions of one kernel. Of two operands, one may be a Python number."""

    def constant(self, dtype: str, number: float, lanes: int = 1) -> V:
        """A number as an element of the IR's type `dtype`, converted as `ir.expr.Cast` does, in every lane."""

    def like(self, number: Any, example: V) -> V:
        """A Python number as a constant of the example's type; a value as it is."""

    def convert(self, operation: str, value: V, element: str) -> V:
        """LLVM's conversion (`bitcast trunc zext sext sitofp uitofp fptosi fpext fptrunc`) to elements of a type."""

    def to_integer(self, value: V, dtype: str) -> V:
        """A float32 towards zero, within the range of the integer type `dtype`; NaN is 0."""

    def compare(self, condition: str, left: V, right: Any) -> V:
        """A mask, by LLVM's conditions: `eq ne slt ult ...` of integers, `oeq une olt uno ...` of floats."""

    def select(self, condition: V, if_true: Any, if_false: Any) -> V:
        """One of two values by a mask."""

    def maximum(self, a: V, b: Any) -> V:
        """The larger of two floats or signed integers; NaN in `a` stays NaN."""

    def minimum(self, a: V, b: Any) -> V:
        """The smaller of two floats or signed integers; NaN in `a` stays NaN."""

    def fma(self, a: V, b: Any, c: Any) -> V:
        """a * b + c, rounded once where the machine has FMA."""

    def sdiv(self, a: V, b: V) -> V:
        """The quotient of signed integers towards zero; `b` is not 0, and nothing overflows."""

    def ashr(self, value: V, distance: Any) -> V:
        """Shifted right, filled with the sign."""

    def fshl(self, high: V, low: V, distance: V) -> V:
        """The upper 32 bits of the 64 bits (high, low) shifted left by 0 to 31."""

    def native(self, name: str, *values: V) -> V | None:
        """A function of floats that the target has an instruction or a library for; None where it has none.

        Every target has those of NATIVE. Others are functions of `ir.expr`, "fmod" (C's), and "scale": a * 2**n for
        whole numbers n.
        """

    def look_up(self, entries: Sequence[int], place: V) -> V:
        """entries[place] as int32, from constant memory; `place` is an int32 within the table."""

    def repeat(self, count: int, body: Callable[..., Sequence[V]], *carried: V) -> Sequence[V]:
        """`body(i, *values)` gives the next values, `count` times; the answer is the last ones."""


def native(b: Builder[V], name: str, *values: V) -> V:
    """A function of NATIVE."""
    found = b.native(name, *values)
    assert found is not None, name
    return found
