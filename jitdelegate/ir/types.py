"""Types of elements: how elements are stored, calculated with and summed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElementType:
    """One type of tensor elements.

    Attributes:
        name: numpy's name, or TFLite's where numpy has no such type.
        kind: "float", "int", "uint", "bool" or "complex".
        bits: storage of one element; int4 is stored two to a byte.
        compute: name of the type that holds differences from a zero point and products of two elements.
        accumulator: name of the type that holds sums of such products.
    """

    name: str
    kind: str
    bits: int
    compute: str
    accumulator: str

    @property
    def nbytes(self) -> int:
        """Bytes of one element; 1 for int4."""
        return -(-self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_signed(self) -> bool:
        """True for floats and for integers with a sign."""
        return self.kind in ("float", "int")

    @property
    def minimum(self) -> int:
        """The smallest integer."""
        return -(1 << self.bits - 1) if self.kind == "int" else 0

    @property
    def maximum(self) -> int:
        """The largest integer."""
        return 1 if self.kind == "bool" else (1 << self.bits - (self.kind == "int")) - 1


ELEMENT_TYPES = {
    element.name: element
    for element in (
        ElementType("float64", "float", 64, "float64", "float64"),
        ElementType("float32", "float", 32, "float32", "float32"),
        ElementType("float16", "float", 16, "float32", "float32"),
        ElementType("bfloat16", "float", 16, "float32", "float32"),
        ElementType("int64", "int", 64, "int64", "int64"),
        ElementType("int32", "int", 32, "int32", "int32"),
        ElementType("int16", "int", 16, "int32", "int64"),
        ElementType("int8", "int", 8, "int32", "int32"),
        ElementType("int4", "int", 4, "int32", "int32"),
        ElementType("uint64", "uint", 64, "uint64", "uint64"),
        ElementType("uint32", "uint", 32, "uint32", "uint32"),
        ElementType("uint16", "uint", 16, "int32", "int64"),
        ElementType("uint8", "uint", 8, "int32", "int32"),
        ElementType("bool", "bool", 8, "bool", "int32"),
        ElementType("complex64", "complex", 64, "complex64", "complex64"),
    )
}
"""The types that kernels read, write and calculate with, by name. float64 occurs within expressions only. Sums of
int16 products need 64 bits from two products on.

A complex64 is a pair of float32, the real and the imaginary part. Kernels move it as 64 bits, and calculate with a
`forms.View` of it as float32, with a further last axis of two."""
