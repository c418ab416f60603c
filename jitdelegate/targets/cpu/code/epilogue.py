"""Epilogues: the scalar expression that a kernel applies to its own results before it stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Cast, Expr
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.kernel import ALIGN, Kernel, Memory
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Function, Value, lanes_of
from jitdelegate.targets.maths.expression import emit
from jitdelegate.targets.planning.epilogue import EpilogueOperand, Number, without_constants


@dataclass(frozen=True)
class Stream:
    """An epilogue operand that is read along the output image: distances in bytes, 0 where it is repeated.

    splat: one element serves all lanes (the operand has one channel, the output several).
    """

    memory: Memory
    start: int
    image: int
    row: int
    pixel: int
    block: int
    splat: bool

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.memory.layout.dtype

    def stepped(self, start: int, row: int, pixel: int) -> Stream:
        """The stream along every `row`-th row and `pixel`-th pixel, starting `start` bytes later."""
        return replace(self, start=self.start + start, row=self.row * row, pixel=self.pixel * pixel)


def stream_pointers(kernel: Kernel, streams: Sequence[Stream], image: Value) -> list[Value]:
    """Pointers to the streams at the first pixel of an image."""
    return [kernel.pointer(s.memory) + (image * s.image + s.start) for s in streams]


def follow(memory: Memory, operand: EpilogueOperand) -> Stream:
    """The operand in `memory` as a stream along its output. An output that is not an image counts as one row."""
    axes = (None,) * 4 + operand.axes
    image, row, pixel, channel = (_distance(memory.layout, axis, len(operand.shape)) for axis in axes[-4:])
    if len(operand.output) != 4:
        image = row = 0
    splat = channel == 0 and bool(operand.output) and operand.output[-1] > 1
    return Stream(memory, 0, image, row, pixel, memory.layout.block if channel else 0, splat)


def _distance(layout: Layout, axis: int | None, rank: int) -> int:
    """Bytes between neighbours along an axis of an operand of this rank; for channels, within a block."""
    if axis is None:
        return 0
    if rank == 4:
        return layout.distances[axis]
    return layout.element if axis == rank - 1 else layout.pixel


NUMBER_BYTES = 4


@dataclass(frozen=True)
class Epilogue:
    """The expression, over a result and streams, that a kernel applies before it stores the result.

    Attributes:
        source: the type of the kernel's own result.
        dtype: the type of the elements that are stored.
        numbers: (type, value) of constants that the expression reads as Args after those of the streams.
    """

    expr: Expr = RESULT
    streams: tuple[Stream, ...] = ()
    source: str = "float32"
    dtype: str = "float32"
    numbers: tuple[Number, ...] = ()

    def shared(self) -> Epilogue:
        """The same for code that is shared by layers with other scales: its constants are `numbers`, which each layer
        passes to the code. Layers of floats rarely differ in them only."""
        if self.dtype == "float32":
            return self
        expr, numbers = without_constants(self.expr, self.types)
        return replace(self, expr=expr, numbers=numbers)

    @property
    def key(self) -> str:
        """A text that is equal for epilogues with the same code."""
        streams = (f"{'s' if s.splat else 'x' if s.memory.exact else 'v'}{s.dtype}" for s in self.streams)
        numbers = " ".join(dtype for dtype, _ in self.numbers)
        return f"{self.source} -> {self.dtype} {self.expr}|{' '.join(streams)}|{numbers}"

    def lanes_to_mask(self, output: Layout) -> int:
        """Number of channels in the last block if whole vectors must not be stored or loaded there; else 0."""
        exact = any(stream.memory.exact for stream in self.streams)
        return output.tail if exact or not output.blocked else 0

    def of_floats(self) -> Epilogue | None:
        """The same epilogue of integer results that are known to be exact as float32, and come as such; None if its
        expression needs them as integers."""
        expr = _of_floats(self.expr)
        return None if expr is None else replace(self, expr=expr, source="float32")

    def store(
        self,
        f: Function,
        result: Value,
        pointers: Sequence[Value],
        at: Value,
        mask: Value | None,
        numbers: Value | None = None,
    ) -> None:
        """Stores neighbouring elements at `at`.

        Args:
            result: the kernel's own result.
            pointers: to the streams at this pixel and block.
            numbers: pointer to the `numbers`, if there are any.
        """
        store(f, self.dtype, self.value(f, result, pointers, mask, numbers), at, mask)

    def value(
        self, f: Function, result: Value, pointers: Sequence[Value], mask: Value | None, numbers: Value | None
    ) -> Value:
        """The elements that `store` stores."""
        if self.expr == RESULT:
            return result
        lanes, pairs = lanes_of(result.type), zip(self.streams, pointers, strict=True)
        values = [result, *(self._read(f, stream, pointer, lanes, mask) for stream, pointer in pairs)]
        return emit(f, self.expr, [*values, *self.numbers_at(f, numbers, lanes)], self.types, self.dtype, lanes)

    @property
    def types(self) -> list[str]:
        """The types of the Args of the expression."""
        return [self.source, *(stream.dtype for stream in self.streams), *(dtype for dtype, _ in self.numbers)]

    def numbers_at(self, f: Function, pointer: Value | None, lanes: int) -> list[Value]:
        """The numbers, each in all lanes."""
        if pointer is None:
            return []
        return [load(f, dtype, pointer + at * NUMBER_BYTES, lanes, 0) for at, (dtype, _) in enumerate(self.numbers)]

    @staticmethod
    def _read(f: Function, stream: Stream, at: Value, lanes: int, mask: Value | None) -> Value:
        element = stream.memory.layout.element
        is_exact = stream.memory.exact or lanes * element > ALIGN  # so much may be read beyond the end
        return load(f, stream.dtype, at, lanes, 0 if stream.splat else element, mask if is_exact else None)


def _of_floats(expr: Expr) -> Expr | None:
    """The expression with the result in place of the result as float32; None if it needs the result itself."""
    if expr == Cast(RESULT, "float32"):
        return RESULT
    parts = [_of_floats(part) for part in expr.parts]
    return None if expr == RESULT or None in parts else expr.rebuilt(tuple(part for part in parts if part))


def numbers_pointer(kernel: Kernel, numbers: Sequence[Number]) -> list[Value]:
    """Pointer to the numbers of an epilogue, as a list; an empty one if there are none."""
    if not numbers:
        return []
    bits = [int(np.array(value, dtype).view(np.int32)) for dtype, value in numbers]
    return [Value(kernel.f, POINTER, kernel.generator.integers("numbers", bits, "i32"))]
