"""Depthwise: a row of one block of channels, with a few output pixels in registers; and the weights of such blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from jitdelegate.base.targets import Level
from jitdelegate.ir.dequantize import LEAST_NARROW, is_half, on_grid
from jitdelegate.ir.forms import Depthwise
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.kernel import Generator, split
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Value, register, vector
from jitdelegate.targets.cpu.multiply.narrow_products import read_lines
from jitdelegate.targets.cpu.multiply.products import folded
from jitdelegate.targets.cpu.walks.register_tile import STACK_ALIGN
from jitdelegate.targets.maths.cast import cast

UNROLLED_TAPS = 9
"""Windows with more taps than this are computed in a loop over their rows."""
WIDE_COLUMNS = 16
"""Columns of a row from which on narrow taps are converted once for the row, instead of for each group of pixels."""
UNROLLED_COLUMNS = 16
"""Windows wider than this are computed in a loop over their columns too: of longer code, LLVM spills what it has
loaded."""
EXACT = {"float32": 1 << 24, "int32": 1 << 31}
"""Whole numbers of smaller magnitude are exact in this type."""
MOST_WIDENED = 128
"""Most taps that are converted so: they lie on the stack, and each is code of its own."""


@dataclass(frozen=True)
class Filters:
    """The constants of a Depthwise, and the types that they are used with.

    Attributes:
        taps: [kh * kw, C], as they are stored.
        bias: [C], minus what the data's zero point adds to the sums.
        data: the type of the data.
        products: the type that holds products and their sums exactly: float32, int32 or int64.
        result: the type of sums plus bias: that of the bias, or float32 where this is exact too and saves conversions.
        joined: neighbouring pixels of a row whose channels are those of one pixel here.
        scales: f32[C] of int8 taps that stand for floats, by which sums are multiplied; else None.
        aligned: alignment in bytes of packed constants, where that is not the size of a vector of them.
    """

    taps: np.ndarray
    bias: np.ndarray
    data: str
    products: str
    result: str
    joined: int = 1
    scales: np.ndarray | None = None
    aligned: int = 0

    @property
    def is_narrow(self) -> bool:
        """Whether taps are converted to float32."""
        return self.products == "float32" and self.data == "float32" and self.taps.dtype != np.float32

    @classmethod
    def of(
        cls, form: Depthwise, data: str, weights: np.ndarray, bias: np.ndarray | None, epilogue: Epilogue
    ) -> tuple[Filters, Epilogue]:
        """Weights [1, kh, kw, C] and the bias, with the epilogue of their results."""
        taps = weights.reshape(-1, weights.shape[3])
        bias = bias_of(bias, taps, form.input_zero, form.accumulator)
        if form.accumulator == "float32":
            return cls(taps, bias, data, "float32", "float32"), epilogue
        element = ELEMENT_TYPES[data]
        largest = max(element.maximum, -element.minimum) * np.abs(taps.astype(np.int64)).sum(0)
        products = next((name for name, end in EXACT.items() if largest.max() < end), "int64")
        of_floats = epilogue.of_floats()
        if of_floats and (largest + np.abs(bias.astype(np.float64))).max() < EXACT["float32"]:
            return cls(taps, bias, data, products, "float32"), of_floats
        return cls(taps, bias, data, products, form.accumulator), epilogue

    def of_pixels(self, count: int) -> Self:
        """The same for `count` neighbouring pixels, whose channels count as those of one pixel."""
        taps, bias = (np.tile(part, count) for part in (self.taps, self.bias))
        scales = None if self.scales is None else np.tile(self.scales, count)
        return replace(self, taps=taps, bias=bias, scales=scales, joined=count)

    @property
    def key(self) -> tuple[str, ...]:
        """The types, which the code depends on."""
        is_scaled = "scaled" if self.heads > 1 else ""
        return self.data, self.products, self.result, str(self.taps.dtype), str(self.bias.dtype), is_scaled

    @property
    def heads(self) -> int:
        """Numbers of a channel before its taps: a bias, and a scale if there is one."""
        return 1 if self.scales is None else 2

    @property
    def channels(self) -> int:
        return self.bias.size

    def block_channels(self, generator: Generator) -> int:
        """Channels of a block, which a row function computes."""
        return generator.lanes

    def tail(self, generator: Generator, epilogue: Epilogue, c: Layout) -> int:
        """Channels of the last block, if it is not computed like the others; else 0."""
        return self.channels % generator.lanes if self.joined > 1 else epilogue.lanes_to_mask(c)

    def block_bytes(self, generator: Generator) -> int:
        """Bytes of a block's packed constants."""
        return generator.lanes * (self.heads * self.bias.itemsize + len(self.taps) * self.taps.itemsize)

    def columns_at_once(self, generator: Generator) -> int:
        """Output pixels that are computed together."""
        return 8 if len(generator.machine.tiles) > 2 else 4

    def row(self, f: Function, shape: RowShape, generator: Generator, numbers: Value | None) -> Row:
        """Writes a row function."""
        return Row(f, shape, generator.lanes, numbers)

    def pack(self, generator: Generator) -> int:
        """[C / lanes][bias, scale, taps ...][lanes]; the offset in the weights."""
        lanes, blocks = generator.lanes, -(-self.channels // generator.lanes)

        def blocked(rows: np.ndarray) -> np.ndarray:
            padded = np.zeros((len(rows), blocks * lanes), rows.dtype)
            padded[:, : self.channels] = rows
            return np.ascontiguousarray(padded.reshape(-1, blocks, lanes).swapaxes(0, 1)).reshape(blocks, -1)

        heads = [line[None] for line in (self.bias, self.scales) if line is not None]
        parts = [blocked(rows).view(np.uint8) for rows in (*heads, self.taps)]
        return generator.weights.add(np.concatenate(parts, axis=1))


def bias_of(bias: np.ndarray | None, taps: np.ndarray, zero: int, dtype: str) -> np.ndarray:
    """The bias [C] of data from which `zero` is not subtracted, by taps [K, C]; zeros where there is none."""
    bias = folded(bias, taps.T, zero, dtype)
    return np.zeros(taps.shape[1], dtype) if bias is None else bias


def narrow_taps(machine: Level, weights: Tensor) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights [1, kh, kw, C] in the narrowest type that holds the very same numbers, floats with scales f32[C] for
    int8."""
    data, grid = weights.data, weights.grid
    assert data is not None
    if grid is not None and data.size >= LEAST_NARROW and (len(grid.scales) == 1 or grid.axis == 3):
        integers = on_grid(np.ascontiguousarray(data.reshape(-1, data.shape[3]).T), replace(grid, axis=0))
        if integers is not None and integers[1].shape[1] == 1:
            return np.ascontiguousarray(integers[0].T).reshape(data.shape), integers[1][:, 0]
    return (data.astype(np.float16) if machine.has_half and data.dtype == np.float32 and is_half(data) else data), None


@dataclass(frozen=True)
class RowShape:
    """The facts that are fixed in the code of a row function.

    Attributes:
        channels: for each lane, which of the data's channels it reads; () if they are neighbours.
    """

    kernel: tuple[int, int]
    stride: int
    dilation: int
    a_pixel: int
    c_pixel: int
    columns: int
    masked: bool
    filters: Filters
    epilogue: Epilogue
    channels: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        fixed = (*self.kernel, self.stride, self.dilation, self.a_pixel, self.c_pixel, self.columns, self.masked)
        pixels = tuple(s.pixel for s in self.epilogue.streams)
        return f"{fixed} {self.channels} {self.filters.key} {pixels} {self.epilogue.key}"


def row_function(generator: Generator, shape: RowShape) -> str:
    """`void row(a, tap row distance, weights, c, lanes, stream pointers ...)` for one row and channel block.

    `a` points to the first tap of the first pixel; `lanes` is the number of channels to store if masked.
    """
    return generator.once("depthwise_row", shape.key, lambda name: _write_row(generator, shape, name))


def _write_row(generator: Generator, shape: RowShape, name: str) -> None:
    streams = shape.epilogue.streams
    parameters = [("a", POINTER), ("tap", INDEX), ("w", POINTER), ("c", POINTER), ("lanes", INDEX)]
    parameters += [(f"s{k}", POINTER) for k in range(len(streams))]
    parameters += [("n", POINTER)] if shape.epilogue.numbers else []
    f = generator.module.function(name, parameters)
    a, tap, w, c, lanes, *at = f.parameters
    numbers = at.pop() if shape.epilogue.numbers else None
    mask = f.first_lanes(lanes, generator.lanes) if shape.masked else None
    moves = [shape.a_pixel * shape.stride, shape.c_pixel, *(s.pixel for s in streams)]
    pointers = [a, c, *at]
    if shape.columns >= WIDE_COLUMNS and shape.filters.is_narrow and len(shape.filters.taps) <= MOST_WIDENED:
        shape, w = _widened(generator, shape, w)
    row = shape.filters.row(f, shape, generator, numbers)
    for size, count in split(shape.columns, shape.filters.columns_at_once(generator)):

        def group(_: Value, *pointers: Value, size: int = size) -> list[Value]:
            row.write(pointers[0], tap, w, list(pointers[1:]), size, mask)
            return [p + size * move for p, move in zip(pointers, moves, strict=True)]

        pointers = f.loop(count, group, *pointers)
    f.finish()


def _widened(generator: Generator, shape: RowShape, w: Value) -> tuple[RowShape, Value]:
    """The shape with float32 taps, and their address: the packed constants at `w`, converted on the stack."""
    f, filters, line = w.function, shape.filters, generator.vector_bytes
    count = len(filters.taps)
    target = f.emit(POINTER, f"alloca [{(1 + count) * line} x i8], align {STACK_ALIGN}")
    bias = f.load(generator.vector, w)
    f.store(bias, target, STACK_ALIGN)
    scale = f.load(generator.vector, w + line) if filters.scales is not None else None
    source = w + filters.heads * line
    for number in range(count):
        ((tap,),) = read_lines(f, str(filters.taps.dtype), source, 1, generator.lanes, 1)
        f.store(tap if scale is None else tap * scale, target + (1 + number) * line, STACK_ALIGN)
        source = source + generator.lanes * filters.taps.itemsize
    wide = replace(filters, taps=filters.taps.astype(np.float32), scales=None, aligned=STACK_ALIGN)
    return replace(shape, filters=wide), target


@dataclass(frozen=True)
class Row:
    """Writes the sums of a row function; `numbers` points to those of its epilogue."""

    f: Function
    shape: RowShape
    lanes: int
    numbers: Value | None

    def write(self, a: Value, tap: Value, w: Value, at: list[Value], size: int, mask: Value | None) -> None:
        """Stores `size` neighbouring pixels; `at` points to their result and its streams."""
        epilogue = self.shape.epilogue
        moves = self.shape.c_pixel, *(s.pixel for s in epilogue.streams)
        for i, value in enumerate(self._sums(a, tap, w, size)):
            target, *extra = (p + i * move for p, move in zip(at, moves, strict=True))
            epilogue.store(self.f, value, extra, target, mask, self.numbers)

    def _sums(self, a: Value, tap: Value, w: Value, size: int) -> list[Value]:
        """The sums of the window's products, plus the bias, for `size` neighbouring pixels."""
        f, shape, filters = self.f, self.shape, self.shape.filters
        bias, tap_bytes = w, self.lanes * filters.taps.itemsize
        rows, columns = shape.kernel

        def column(_: Value, a: Value, w: Value, *sums: Value) -> list[Value]:
            after = self._taps(a, w, sums, 1)
            return [a + shape.dilation * shape.a_pixel, w + tap_bytes, *after]

        def row(_: Value, a: Value, w: Value, *sums: Value) -> list[Value]:
            if columns > UNROLLED_COLUMNS:
                _, w, *after = f.loop(columns, column, a, w, *sums)
                return [a + tap, w, *after]
            after = self._taps(a, w, sums, columns)
            return [a + tap, w + columns * tap_bytes, *after]

        zero = f.literal(vector(self.lanes, register(filters.products)), 0.0)
        state = [a, w + filters.heads * self.lanes * filters.bias.itemsize, *[zero] * size]
        if rows * columns > UNROLLED_TAPS:
            state = f.loop(rows, row, *state)
        else:
            for _ in range(rows):
                state = row(f.index(0), *state)
        last = cast(f, self._constant(filters.bias, bias), str(filters.bias.dtype), filters.result)
        if filters.scales is not None:
            scale = self._constant(filters.scales, bias + self.lanes * filters.bias.itemsize)
            return [f.fma(total, scale, last) for total in state[2:]]
        return [self._result(total) + last for total in state[2:]]

    def _result(self, total: Value) -> Value:
        """A sum of products in the type of the result; whole numbers are in its range."""
        products, result = self.shape.filters.products, self.shape.filters.result
        if total.is_float and result != products:
            return cast(self.f, self.f.convert("fptosi", total, "i32"), "int32", result)
        return cast(self.f, total, products, result)

    def _taps(self, a: Value, w: Value, sums: Sequence[Value], columns: int) -> list[Value]:
        """The sums of neighbouring pixels plus the products of `columns` neighbouring taps. Input pixels that several
        output pixels share are loaded once."""
        shape, filters = self.shape, self.shape.filters
        after = list(sums)
        loaded: dict[int, Value] = {}
        for x in range(columns):
            tap = self._constant(filters.taps, w + x * self.lanes * filters.taps.itemsize)
            factor = self._factor(tap, str(filters.taps.dtype))
            for i in range(len(after)):
                distance = (i * shape.stride + x * shape.dilation) * shape.a_pixel
                if distance not in loaded:
                    loaded[distance] = self._factor(self._channels(a + distance), filters.data)
                after[i] = self._plus_product(after[i], loaded[distance], factor)
        return after

    def _factor(self, value: Value, dtype: str) -> Value:
        """Elements in the type in which products are computed: products of two numbers of 16 bits fit an int32."""
        return cast(self.f, value, dtype, "float32" if self.shape.filters.products == "float32" else "int32")

    def _plus_product(self, total: Value, a: Value, b: Value) -> Value:
        if total.is_float:
            is_first = total.text == self.f.literal(total.type, 0.0).text and not self.f.module.machine.has_free_moves
            return a * b if is_first else self.f.fma(a, b, total)
        return total + cast(self.f, a * b, "int32", f"int{total.bits}")

    def _constant(self, rows: np.ndarray, at: Value) -> Value:
        """The block's elements of one packed row of constants."""
        filters = self.shape.filters
        aligned = filters.aligned or self.lanes * min(filters.taps.itemsize, filters.bias.itemsize)
        return self.f.load(vector(self.lanes, register(str(rows.dtype))), at, aligned)

    def _channels(self, at: Value) -> Value:
        """The input channels that belong to one block of output channels."""
        dtype, channels = self.shape.filters.data, self.shape.channels
        if not channels:
            return load(self.f, dtype, at, self.lanes, ELEMENT_TYPES[dtype].nbytes)
        loaded = load(self.f, dtype, at, channels[-1] + 1, ELEMENT_TYPES[dtype].nbytes)
        return self.f.splat(loaded, self.lanes) if loaded.lanes == 1 else self.f.shuffle(loaded, loaded, channels)
