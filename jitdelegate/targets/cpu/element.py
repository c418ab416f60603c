"""How the elements of a tensor are stored, and how kernels load and store vectors of them."""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.targets.cpu.vector_ir import BOOL, FLOAT, INDEX, Function, Value, lanes_of, vector


@dataclass(frozen=True)
class Element:
    """One type of TFLite.

    Attributes:
        stored: LLVM's type in memory.
        nbytes: of one element.
        register: LLVM's type in registers.
        signed: whether integers of the type have a sign.
    """

    stored: str
    nbytes: int
    register: str
    signed: bool = True


ELEMENTS = {
    "float32": Element(FLOAT, 4, FLOAT),
    "float16": Element("i16", 2, "i16", signed=False),
    "int64": Element(INDEX, 8, INDEX),
    "int32": Element("i32", 4, "i32"),
    "uint32": Element("i32", 4, "i32", signed=False),
    "int16": Element("i16", 2, "i16"),
    "uint16": Element("i16", 2, "i16", signed=False),
    "int8": Element("i8", 1, "i8"),
    "uint8": Element("i8", 1, "i8", signed=False),
    "bool": Element("i8", 1, BOOL, signed=False),
}
"""TFLite's types that kernels know; float16 is only moved. A bool in memory is a byte, 0 or 1."""


def load(f: Function, dtype: str, at: Value, lanes: int, step: int, mask: Value | None = None) -> Value:
    """`lanes` elements, each `step` bytes after the one before, as they are in registers.

    Args:
        mask: what is read of neighbouring elements; the other lanes are zero.
    """
    element = ELEMENTS[dtype]
    type_ = vector(lanes, element.stored)
    if lanes == 1 or step == 0:
        value = f.splat(f.load(element.stored, at, element.nbytes), lanes)
    elif step != element.nbytes:
        value = f.literal(type_, 0)
        for lane in range(lanes):
            one = f.load(element.stored, at + lane * step, element.nbytes)
            value = f.emit(type_, f"insertelement {value}, {one}, i64 {lane}")
    elif mask is None:
        value = f.load(type_, at, element.nbytes)
    else:
        value = f.load_masked(type_, at, mask, element.nbytes)
    return f.compare("ne", value, 0) if dtype == "bool" else value


def store(f: Function, dtype: str, value: Value, at: Value, mask: Value | None = None) -> None:
    """Neighbouring elements from `at` on; those outside `mask` are not written."""
    element = ELEMENTS[dtype]
    if dtype == "bool":
        value = f.cast("zext", value, vector(lanes_of(value.type), element.stored))
    if mask is None:
        f.store(value, at, element.nbytes)
    else:
        f.store_masked(value, at, mask, element.nbytes)


def literal(f: Function, dtype: str, lanes: int, number: float) -> Value:
    """A constant as it is in registers."""
    element = ELEMENTS[dtype]
    if element.register in (FLOAT, BOOL):
        return f.literal(vector(lanes, element.register), number)
    half = 1 << (8 * element.nbytes - 1)
    return f.literal(vector(lanes, element.register), (int(number) + half) % (2 * half) - half)


def cast(f: Function, value: Value, source: str, target: str) -> Value:
    """The value of type `source` as one of type `target`, by the rules of `ir.expr.Cast`."""
    before, after = ELEMENTS[source], ELEMENTS[target]
    type_ = vector(lanes_of(value.type), after.register)
    if source == target:
        return value
    if target == "bool":
        return f.compare("une" if before.register == FLOAT else "ne", value, 0)
    if before.register == FLOAT:
        return f.saturated("fptosi" if after.signed else "fptoui", value, type_)
    if after.register == FLOAT:
        return f.cast("sitofp" if before.signed else "uitofp", value, type_)
    if before.nbytes == after.nbytes and source != "bool":
        return value
    if before.nbytes > after.nbytes:
        return f.cast("trunc", value, type_)
    return f.cast("sext" if before.signed else "zext", value, type_)
