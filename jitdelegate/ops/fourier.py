"""Fourier transforms, and the parts of complex numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Expr, unary
from jitdelegate.ir.forms import Fourier, IndexMap, Map
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.registry import FLOATS, MAX_RANK, Lowering, Op, moved, op, view

COMPLEX = ("complex64",)
LENGTHS = (8, 8192)
"""The shortest and the longest transform that kernels are generated for."""


def pairs(call: Call) -> Lowering:
    """The complex operand as float32 with a last axis of two: real and imaginary part."""
    return view(call.index(0), (*call.shape(0), 2))


def part_access(shape: Shape, part: int) -> IndexMap:
    """Reads the real (0) or imaginary (1) parts of complex numbers of this shape from their `pairs`."""
    rank = len(shape)
    return IndexMap.along(*range(rank), -1, starts=(0,) * rank + (part,))


def part(call: Call, number: int) -> Lowering:
    """The real (0) or imaginary (1) parts of the complex operand."""
    return moved(pairs(call), part_access(call.shape(0), number))


def rank_problems(call: Call) -> Iterator[str]:
    """A reason to refuse, where the complex operand has too many axes for `pairs`."""
    if len(call.shape(0)) >= MAX_RANK:
        yield f"{call.node.op}: {len(call.shape(0))} axes of complex numbers, at most {MAX_RANK - 1} are supported."


@op("RFFT2D")
class Rfft2d(Op):
    """The frequencies from 0 to half the length of real rows; the second operand is [1, length].

    LiteRT also transforms columns, where the first number is not 1. Rows are cut off or continued with zeros to the
    length; of several rows in the last but one axis, only the first is transformed.
    """

    least = most = 2
    parameters = (1,)
    results: ClassVar[Mapping[int, tuple[str, ...]]] = {0: COMPLEX}
    cases = (
        Case(((3, 1, 8), ints(1, 8))),
        Case(((2, 1, 16), ints(1, 16))),
        Case(((1, 32), ints(1, 32))),
        Case(((5, 1, 64), ints(1, 64))),
        Case(((2, 2, 1, 128), ints(1, 128))),
        Case(((3, 1, 256), ints(1, 256))),
        Case(((3, 1, 512), ints(1, 512))),
        Case(((2, 1, 1024), ints(1, 1024))),
        Case(((1, 1, 2048), ints(1, 2048))),
        Case(((1, 1, 4096), ints(1, 4096))),
        Case(((1, 1, 8192), ints(1, 8192))),
        Case(((3, 1, 37), ints(1, 64))),
        Case(((3, 1, 100), ints(1, 64))),
        Case(((2, 3, 65), ints(1, 64))),
        Case(((1, 1, 1), ints(1, 16))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        lengths, (shortest, longest) = call.integers(1), LENGTHS
        if len(lengths) != 2 or len(call.shape(0)) < 2:
            yield f"RFFT2D of {list(call.shape(0))} with lengths of {list(lengths)}, expected two axes and lengths."
        if lengths[0] != 1:
            yield f"RFFT2D over two axes, with lengths of {list(lengths)}, is not supported."
        if not shortest <= lengths[1] <= longest or lengths[1] & (lengths[1] - 1):
            yield f"RFFT2D of length {lengths[1]}, expected a power of two from {shortest} to {longest}."
        if len(call.shape(0)) >= MAX_RANK:
            yield f"RFFT2D of {len(call.shape(0))} axes, at most {MAX_RANK - 1} are supported."

    def shape(self, call: Call) -> Shape:
        return (*call.shape(0)[:-2], 1, call.integers(1)[1] // 2 + 1)

    def work(self, call: Call) -> int:
        """Multiply-adds of a radix-2 transform."""
        length = call.integers(1)[1]
        return call.output.size * 2 * length.bit_length()

    def lowering(self, call: Call) -> Lowering:
        shape, source = call.shape(0), call.index(0)
        *outer, rows, size = shape
        if rows > 1:
            first = moved(source, IndexMap.along(*range(len(shape))), (*outer, 1, size), "float32")
            return self._transformed(call, first)
        return self._transformed(call, source)

    def _transformed(self, call: Call, rows: int | Lowering) -> Lowering:
        pairs = Lowering(Fourier(length=call.integers(1)[1]), (rows,), (*self.shape(call), 2), "float32")
        return view(pairs, self.shape(call), "complex64")

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, lengths = given(arrays)
        return [np.fft.rfft(data[..., :1, :].astype(np.float64), int(lengths[1])).astype(np.complex64)]


class Part(Op):
    """A real number of each complex one."""

    types = COMPLEX
    results: ClassVar[Mapping[int, tuple[str, ...]]] = {0: FLOATS}
    cases: ClassVar[tuple[Case, ...]] = (
        Case((Fed((2, 3, 33), "complex64"),)),
        Case((Fed((1, 2, 3, 5), "complex64"),)),
        Case((Fed((), "complex64"),)),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from rank_problems(call)


@op("REAL")
class Real(Part):
    """The real parts."""

    def lowering(self, call: Call) -> Lowering:
        return part(call, 0)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return [given(arrays)[0].real]


@op("IMAG")
class Imag(Part):
    """The imaginary parts."""

    def lowering(self, call: Call) -> Lowering:
        return part(call, 1)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return [given(arrays)[0].imag]


@op("COMPLEX_ABS")
class ComplexAbs(Part):
    """The magnitudes: square roots of sums of squares in float32, whose range limits them to 1e-18 ... 1e19."""

    formula: ClassVar[Expr] = unary("sqrt", Arg(0) * Arg(0) + Arg(1) * Arg(1))

    def lowering(self, call: Call) -> Lowering:
        both, shape = pairs(call), call.shape(0)
        return Lowering(Map(self.formula, (part_access(shape, 0), part_access(shape, 1))), (both, both))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return [np.abs(given(arrays)[0])]
