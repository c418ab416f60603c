"""Epilogues: the scalar expression that a kernel applies to its own results before it stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, Expr, argument_types, converted
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.quantized import Rescale
from jitdelegate.targets.cpu.element import load, store
from jitdelegate.targets.cpu.kernel import Kernel, Memory
from jitdelegate.targets.cpu.vector_ir import POINTER, Function, Value, lanes_of
from jitdelegate.targets.epilogue import EpilogueOperand
from jitdelegate.targets.scalar.expression import emit


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


Number = tuple[str, float]
"""(type, value) of a constant: "float32" or "int32"."""
NUMBER_BYTES = 4
SHARED = ("float32", "int32")
"""Types of constants that layers pass to shared code."""


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
        value, lanes = result, lanes_of(result.type)
        if self.expr != RESULT:
            pairs = zip(self.streams, pointers, strict=True)
            values = [result, *(self._read(f, stream, pointer, lanes, mask) for stream, pointer in pairs)]
            values += self.numbers_at(f, numbers, lanes)
            value = emit(f, self.expr, values, self.types, self.dtype, lanes)
        store(f, self.dtype, value, at, mask)

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
        step = 0 if stream.splat else stream.memory.layout.element
        return load(f, stream.dtype, at, lanes, step, mask if stream.memory.exact else None)


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
    generator = kernel.generator
    bits = tuple(int(np.array(value, dtype).view(np.int32)) for dtype, value in numbers)
    name = generator.once("numbers", bits, lambda name: generator.module.constant(name, bits, "i32"))
    return [Value(kernel.f, POINTER, f"@{name}")]


def without_constants(expr: Expr, types: Sequence[str]) -> tuple[Expr, tuple[Number, ...]]:
    """The expression with Args in place of its constants of float32 and int32, and these constants.

    Args:
        types: of the Args that the expression has; the new ones follow them. Multipliers and shifts of a Rescale stay.
    """
    numbers: dict[Number, Arg] = {}

    def replaced(part: Expr, dtype: str) -> Expr:
        if isinstance(part, Const):
            known = converted(np.asarray(part.value), dtype).item()
            return numbers.setdefault((dtype, known), Arg(len(types) + len(numbers))) if dtype in SHARED else part
        if isinstance(part, Rescale):
            return part.rebuilt((replaced(part.value, part_types(part)[0]), part.multiplier, part.shift))
        return part.rebuilt(tuple(map(replaced, part.parts, part_types(part))))

    def part_types(part: Expr) -> tuple[str, ...]:
        return argument_types(part, types)

    found = replaced(expr, "float32")
    return found, tuple(numbers)
