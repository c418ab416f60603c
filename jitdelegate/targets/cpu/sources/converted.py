"""Data that a chunk converts before it multiplies them, once for all panels and for all taps that read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.kernel import Generator, Kernel
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Value
from jitdelegate.targets.cpu.sources.indirect_gemm import Sweep
from jitdelegate.targets.maths.cast import cast

QUADS = "quads"
"""Bytes as uint8, which are 128 larger than int8, of which each four are followed by the same four as int16."""
AT_ONCE = 4
"""Vectors of the wider type in one round of the loop."""


@dataclass(frozen=True)
class Conversion:
    """The conversion of neighbouring elements of type `stored` to type `dtype`."""

    stored: str
    dtype: str

    def scaled(self, nbytes: int) -> int:
        """A distance between elements as one between converted elements."""
        return nbytes * self._sizes[1] // self._sizes[0]

    def convert(self, kernel: Kernel, data: Value, to: Value, count: Value) -> None:
        """Converts so many elements."""
        name = kernel.generator.once("convert", (self.stored, self.dtype), lambda name: self._write(kernel, name))
        kernel.f.call(name, data, to, count)

    def _write(self, kernel: Kernel, name: str) -> None:
        """`void convert(data, target, elements)`; nothing beyond the last element is read."""
        generator = kernel.generator
        f = generator.module.function(name, [("data", POINTER), ("to", POINTER), ("count", INDEX)])
        data, to, count = f.parameters
        lanes = generator.vector_bytes // max(self._sizes)
        lanes, least = (16, 4) if self.dtype == QUADS else (lanes, 1)
        for vectors, width in ((AT_ONCE, lanes), (1, lanes), (1, least)):
            turns = count // (vectors * width)
            body = partial(self._some, vectors, width)
            f.when(f.compare("ne", turns, 0), partial(self._loop, turns, body, data, to))
            done = turns * (vectors * width)
            data, to, count = data + done * self._sizes[0], to + done * self._sizes[1], count - done
        f.finish()

    @property
    def _sizes(self) -> tuple[int, int]:
        return ELEMENT_TYPES[self.stored].nbytes, 3 if self.dtype == QUADS else ELEMENT_TYPES[self.dtype].nbytes

    @staticmethod
    def _loop(turns: Value, body: Callable[..., list[Value]], *pointers: Value) -> None:
        turns.function.loop(turns, body, *pointers)

    def _some(self, vectors: int, lanes: int, _: Value, data: Value, to: Value) -> list[Value]:
        """Converts some vectors of elements."""
        f, (size, wide) = data.function, self._sizes
        for number in range(0, vectors * lanes, lanes):
            value = load(f, self.stored, data + number * size, lanes, size)
            if self.dtype == QUADS:
                self._store_quads(value, to + number * wide)
            else:
                store(f, self.dtype, cast(f, value, self.stored, self.dtype), to + number * wide)
        return [data + vectors * lanes * size, to + vectors * lanes * wide]

    def _store_quads(self, value: Value, to: Value) -> None:
        f = value.function
        value = value ^ -128 if self.stored == "int8" else value
        zero, order = value.lanes, list[int]()
        for first in range(0, value.lanes, 4):
            quad = range(first, first + 4)
            order += [*quad, *(lane for at in quad for lane in (at, zero))]
        for first in range(0, len(order), value.lanes):
            part = f.shuffle(value, f.literal(value.type, 0), order[first : first + value.lanes])
            f.store(part, to + first, 1)


@dataclass(frozen=True)
class Converted(Conversion):
    """The data of a sweep, converted in scratch memory.

    All that lies between a chunk's first and last element is converted, so that distances in scratch memory are those
    of the data, in elements.

    Attributes:
        first, end: bytes from the first tap of a pixel to the lowest address of its steps, and to their end.
        scratch: bytes of scratch memory before the converted data.
    """

    sweep: Sweep
    first: int
    end: int
    scratch: int = 0

    @property
    def read(self) -> Sweep:
        """The sweep over the converted data."""
        sweep, (taps_y, taps_x, tap_y, tap_x) = self.sweep, self.sweep.taps
        return replace(
            sweep,
            a_row=self.scaled(sweep.a_row),
            a_pixel=self.scaled(sweep.a_pixel),
            a_block=self.scaled(sweep.a_block),
            a_element=self.scaled(sweep.a_element),
            taps=(taps_y, taps_x, self.scaled(tap_y), self.scaled(tap_x)),
        )

    def reserve(self, generator: Generator, pixels: int) -> None:
        """Ensures that the converted data of so many pixels fit in the scratch memory."""
        sweep = self.sweep
        rows = min(sweep.rows, -(-(pixels - 1) // sweep.columns) + 1)
        columns = min(sweep.columns, pixels)
        longest = (rows - 1) * sweep.a_row + (columns - 1) * sweep.a_pixel + self.end - self.first
        generator.reserve_scratch(self.scratch + self.scaled(longest) + AT_ONCE * generator.vector_bytes)

    def prepared(self, kernel: Kernel, a: Value, pixel: Value, pixels: int) -> Value:
        """Converts the data of neighbouring pixels of an image at `a`; the image's address as tiles see it."""
        start, last = self._address(pixel) + self.first, self._address(pixel + (pixels - 1)) + self.end
        element, to = self._sizes[0], kernel.scratch + self.scratch
        count = (last - start) // element
        self.convert(kernel, a + start, to, count)
        before = start if element == 1 else kernel.f.sdiv(start, kernel.f.index(element))  # it may be negative
        return to + (0 - before * self._sizes[1])

    def _address(self, pixel: Value) -> Value:
        columns = self.sweep.columns
        return pixel // columns * self.sweep.a_row + pixel % columns * self.sweep.a_pixel
