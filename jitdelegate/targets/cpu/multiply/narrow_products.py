"""Products of floats and weights that are narrower: converted in registers, or panel by panel into scratch memory.

Of int4, two neighbouring steps of a quad share a byte; other steps are stored as int8. So do those of bfloat16 share a
word, of which each half is a float after one instruction; other steps are stored as float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jitdelegate.ir.bfloat16 import bfloat16_bits, bfloat16_numbers
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, FLOAT_BYTES, INDEX, POINTER, Function, Value, vector
from jitdelegate.targets.cpu.multiply.products import QUAD, ByteProducts, Count, Products

UPPER_HALVES = -0x0F0F0F10
"""The upper halves of four bytes."""
UPPER_HALF = -0x10000
"""That of a word."""


@dataclass(frozen=True)
class NarrowProducts(Products):
    """Products with weights of type `dtype`.

    Attributes:
        blocks: scales per output channel; 0 for floats.
    """

    dtype: ClassVar[str]
    blocks: int = 0

    @property
    def key(self) -> str:
        return f"{type(self).__name__} {min(self.blocks, 2)}"

    @property
    def scales(self) -> int:
        return self.blocks

    @property
    def unpacked(self) -> Products:
        return Products(self.machine)

    def unpack_function(self, generator: Generator, vectors: int, quads: int, singles: int) -> str:
        has = quads > 0, singles > 0
        key = self.key, vectors, has
        return generator.once("unpack", key, lambda name: _Unpacking(generator, self, vectors, name).write(*has))

    def line_bytes(self, steps: int) -> int:
        return self.lanes * channel_bytes(self.dtype, steps)

    def segments(self, quads: int) -> tuple[int, int]:
        return (self.blocks, quads // self.blocks) if self.blocks > 1 else super().segments(quads)

    def lines(self, f: Function, at: Value, vectors: int, steps: int) -> Iterator[list[Sequence[Value]]]:
        for line in read_lines(f, self.dtype, at, vectors, self.lanes, steps):
            yield [[each] for each in line]

    def result(self, f: Function, total: Value, bias: Value, scale: Value | None) -> Value:
        return total + bias if scale is None else f.fma(total, scale, bias)


@dataclass(frozen=True)
class HalfProducts(NarrowProducts):
    """Products with weights of float16."""

    dtype: ClassVar[str] = "float16"
    stored: ClassVar[str] = "float16"


@dataclass(frozen=True)
class BfloatWeights(NarrowProducts):
    """Products with weights of bfloat16."""

    dtype: ClassVar[str] = "bfloat16"
    stored: ClassVar[str] = "uint16"

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        pairs = panel[: quads * QUAD].reshape(-1, 2, panel[0].size).swapaxes(1, 2)
        parts = pairs, bfloat16_numbers(panel[quads * QUAD :])
        return np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])


@dataclass(frozen=True)
class ByteWeights(NarrowProducts):
    """Products with weights of int8."""

    dtype: ClassVar[str] = "int8"
    stored: ClassVar[str] = "int8"


@dataclass(frozen=True)
class NibbleWeights(NarrowProducts):
    """Products with weights of int4."""

    dtype: ClassVar[str] = "int4"
    stored: ClassVar[str] = "int8"

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        return paired(panel, quads)


@dataclass(frozen=True)
class NibbleBytes(ByteProducts):
    """Products of bytes by VNNI with weights of int4. They are multiplied as 16 times as large, in the upper half of
    their bytes, and sums are divided in the end."""

    @property
    def starts_at_bias(self) -> bool:
        """The bias is not divided."""
        return False

    def line_bytes(self, steps: int) -> int:
        return self.weight_bytes * steps // (2 if steps == QUAD else 1)

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        return paired(np.concatenate([panel[: quads * QUAD], panel[quads * QUAD :] * np.int8(16)]), quads)

    def lines(self, f: Function, at: Value, vectors: int, steps: int) -> Iterator[list[Sequence[Value]]]:
        if steps != QUAD:
            yield from super().lines(f, at, vectors, steps)
            return
        for pair in range(steps // 2):
            both = [self.weights(f, at + (pair * vectors + v) * self.weight_bytes)[0] for v in range(vectors)]
            yield [[each << 4 & UPPER_HALVES] for each in both]
            yield [[each & UPPER_HALVES] for each in both]

    def result(self, f: Function, total: Value, bias: Value, scale: Value | None) -> Value:
        return f.ashr(total, 4) + bias


@dataclass(frozen=True)
class BlockBytes(NibbleBytes):
    """The same where parts of K have a scale: the sums of each part times its scales are added up as floats. Scales are
    bfloat16, in whole vectors of floats.

    Attributes:
        blocks: scales per output channel.
    """

    accumulator: ClassVar[str] = "float32"
    blocks: int = 1

    @property
    def scales(self) -> int:
        return self.blocks

    @property
    def scale_bytes(self) -> int:
        return self.bias_bytes // 2

    def scales_bytes(self, count: Count) -> Count:
        return (count + 1) // 2 * self.bias_bytes

    def stored_scales(self, scales: np.ndarray) -> np.ndarray:
        bits = bfloat16_bits(scales)
        assert np.array_equal(bfloat16_numbers(bits), scales)
        return bits

    def scale(self, f: Function, at: Value) -> Value:
        bits = f.convert("zext", f.load(vector(self.lanes, "i16"), at, 2), "i32")
        return f.convert("bitcast", bits << 16, FLOAT)

    def segments(self, quads: int) -> tuple[int, int]:
        return self.blocks, quads // self.blocks

    def widened(self, f: Function, total: Value) -> Value:
        return f.convert("sitofp", f.ashr(total, 4), FLOAT)

    def result(self, f: Function, total: Value, bias: Value, scale: Value | None) -> Value:
        return total + bias if scale is None else f.fma(total, scale, bias)


NARROW = {each.dtype: each for each in (HalfProducts, BfloatWeights, ByteWeights, NibbleWeights)}


def paired(panel: np.ndarray, quads: int) -> np.ndarray:
    """Small int8 [steps, ...] with two neighbouring steps of a quad in one byte, the first in its lower half."""
    pairs = panel[: quads * QUAD].reshape(-1, 2, *panel.shape[1:]).view(np.uint8)
    return np.concatenate([pairs[:, 0] & 15 | pairs[:, 1] << 4, panel[quads * QUAD :].view(np.uint8)])


def channel_bytes(dtype: str, steps: int) -> int:
    """Bytes of the weights of one channel in `steps` steps, a quad or one."""
    if dtype == "bfloat16" and steps != QUAD:
        return steps * FLOAT_BYTES
    return steps // 2 if dtype == "int4" and steps == QUAD else steps * ELEMENT_TYPES[dtype].nbytes


def read_lines(
    f: Function, dtype: str, at: Value, vectors: int, lanes: int, steps: int, channels: Value | int = 0
) -> Iterator[list[Value]]:
    """Weights of neighbouring vectors of a panel as floats: a list for each of `steps` steps, a quad or one.

    Args:
        channels: those of the panel, where they are more than the vectors have.
    """
    width = channels or vectors * lanes
    if dtype == "int4" and steps == QUAD:
        for pair in range(steps // 2):
            both = [_load_bytes(f, at + (width * pair) + v * lanes, lanes) for v in range(vectors)]
            yield [f.convert("sitofp", f.ashr(each << 28, 28), FLOAT) for each in both]
            yield [f.convert("sitofp", f.ashr(each, 4), FLOAT) for each in both]
        return
    if dtype == "bfloat16" and steps == QUAD:
        for pair in range(steps // 2):
            line = at + width * (pair * FLOAT_BYTES)
            both = [f.load(vector(lanes, "i32"), line + v * (lanes * FLOAT_BYTES)) for v in range(vectors)]
            yield [f.convert("bitcast", each << 16, FLOAT) for each in both]
            yield [f.convert("bitcast", each & UPPER_HALF, FLOAT) for each in both]
        return
    nbytes = channel_bytes(dtype, 1)
    for k in range(steps):
        line = at + width * (k * nbytes)
        yield [_read_weights(f, dtype, line + v * (lanes * nbytes), lanes) for v in range(vectors)]


def _read_weights(f: Function, dtype: str, at: Value, lanes: int) -> Value:
    if dtype in ("float32", "bfloat16"):
        return f.load(vector(lanes), at)
    if dtype == "float16":
        return f.convert("fpext", f.load(vector(lanes, "half"), at, 2), FLOAT)
    return f.convert("sitofp", _load_bytes(f, at, lanes), FLOAT)


def _load_bytes(f: Function, at: Value, lanes: int) -> Value:
    """Signed bytes as 32-bit integers."""
    return f.convert("sext", f.load(vector(lanes, "i8"), at, 1), "i32")


class _Unpacking:
    """An unpack function that is being written."""

    def __init__(self, generator: Generator, products: NarrowProducts, vectors: int, name: str) -> None:
        parameters = [("panel", POINTER), ("to", POINTER), ("blocks", INDEX), ("quads", INDEX), ("singles", INDEX)]
        self.f = generator.module.function(name, parameters)
        self.products, self.vectors, self.lanes = products, vectors, generator.lanes
        self.line = vectors * generator.vector_bytes

    def write(self, has_quads: bool, has_singles: bool) -> None:
        f, scaled = self.f, self.products.scales
        panel, to, blocks, quads, singles = f.parameters
        self._store(to, self._floats(panel))
        at, to = panel + self.line, to + self.line
        only = self._floats(at) if scaled == 1 else []
        at = at + self.line if only else at

        def block(_: Value, at: Value, to: Value) -> list[Value]:
            end = at + quads * (self.vectors * self.products.line_bytes(QUAD))
            scales = self._floats(end) if scaled > 1 else only
            if has_quads:
                at, to = self._lines(quads, QUAD, scales, at, to)
            if scaled > 1:
                return [end + self.line, to]
            return self._lines(singles, 1, scales, at, to) if has_singles else [at, to]

        f.loop(blocks if scaled > 1 else 1, block, at, to)
        f.finish()

    def _lines(self, count: Value, steps: int, scales: list[Value], at: Value, to: Value) -> list[Value]:
        """Converts `count` groups of `steps` lines; returns what follows them on both sides."""

        def group(_: Value, at: Value, to: Value) -> list[Value]:
            for k, line in enumerate(read_lines(self.f, self.products.dtype, at, self.vectors, self.lanes, steps)):
                values = [each * scale for each, scale in zip(line, scales, strict=True)] if scales else line
                self._store(to + k * self.line, values)
            return [at + self.vectors * self.products.line_bytes(steps), to + steps * self.line]

        return self.f.loop(count, group, at, to)

    def _floats(self, at: Value) -> list[Value]:
        return [self.f.load(vector(self.lanes), at + v * self.lanes * FLOAT_BYTES, 4) for v in range(self.vectors)]

    def _store(self, to: Value, values: list[Value]) -> None:
        for v, value in enumerate(values):
            self.f.store(value, to + v * self.lanes * FLOAT_BYTES, 64)
