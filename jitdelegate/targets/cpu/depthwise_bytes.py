"""Depthwise over bytes by VNNI, whose instruction adds up the products of four bytes in each 32-bit lane.

Four rows of a column of pixels are interleaved, so that a lane holds what one channel has under four taps. Unpacking
instructions do so within every 16 bytes, the cheapest way, and leave four vectors that hold the channels in the order
of `_places`; the instructions that narrow results to bytes put them back in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.forms import Depthwise
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.depthwise_row import Filters, Row, RowShape, folded
from jitdelegate.targets.cpu.element import load, store, stored
from jitdelegate.targets.cpu.epilogue import Epilogue, Stream
from jitdelegate.targets.cpu.kernel import Generator
from jitdelegate.targets.cpu.machine import Machine
from jitdelegate.targets.cpu.narrow import NARROW, Limits, interleaved_bytes, wide
from jitdelegate.targets.cpu.shuffles import joined
from jitdelegate.targets.cpu.vector_ir import Function, Value, vector
from jitdelegate.targets.scalar.expression import emit

QUAD = 4
"""Taps that one instruction adds up, and vectors of 32-bit lanes that hold a block's channels."""
UNPACKED = 16
"""Bytes within which unpacking instructions interleave."""
LEAST = 12
"""Channels for which it is faster."""
MOST_TAPS = 49
"""Taps of the largest window that is unrolled."""
SUMS = 20
"""Vectors of sums that fit the registers besides other values."""
LARGEST = 64
"""Bytes of the longest vector."""
MOST_INT8 = 127
SIGN = -128
"""The sign bit: a byte with the other one is larger by 128, as a uint8."""


def byte_filters(
    machine: Machine,
    form: Depthwise,
    data: str,
    weights: np.ndarray,
    bias: np.ndarray | None,
    epilogue: Epilogue,
    target: Layout,
) -> tuple[Filters, Epilogue] | None:
    """As `Filters.of`, for results that are stored by layout `target`; None if the Depthwise is not computed so."""
    taps, (*_, columns, channels) = weights.reshape(-1, weights.shape[3]), target.shape
    terms, reads_beyond = _terms(taps), channels % QUAD != 0 and any(s.memory.exact for s in epilogue.streams)
    is_row_major = not any(
        layout.blocked for layout in (target, *(s.memory.layout for s in epilogue.streams if s.pixel))
    )
    if not machine.has_vnni or data not in ("int8", "uint8") or terms[-1].max() > MOST_INT8:
        return None
    if form.multiplier > 1 or len(taps) > MOST_TAPS or not is_row_major or reads_beyond:
        return None
    zero = form.input_zero + (-SIGN if data == "int8" else 0)
    filters = ByteFilters(
        taps, folded(bias, taps, zero, "int32"), data, "int32", "int32", terms=terms, kernel=form.kernel
    )
    joined = QUAD * machine.lanes // channels
    is_dense = all(stream.pixel in (0, channels * stream.memory.layout.element) for stream in epilogue.streams)
    if (
        form.stride[1] == 1 < joined <= columns
        and joined * channels == QUAD * machine.lanes
        and channels % QUAD == 0
        and is_dense
    ):
        filters = filters.of_pixels(joined)
        epilogue = replace(epilogue, streams=tuple(replace(s, pixel=joined * s.pixel) for s in epilogue.streams))
    elif channels < LEAST:
        return None
    live = (form.kernel[1] - 1) * form.dilation[1] // (form.stride[1] * filters.joined) + 1
    return replace(filters, live=live), epilogue


@dataclass(frozen=True)
class ByteFilters(Filters):
    """As `Filters`, for blocks of as many channels as a vector has bytes; the last block's vectors may be shorter.

    Attributes:
        terms: one or two int8[kh * kw, C], whose sum is the taps.
        kernel: taps along y and x.
        live: columns of results that see the same column of the data.
    """

    terms: tuple[np.ndarray, ...] = ()
    kernel: tuple[int, int] = (1, 1)
    live: int = 1

    def of_pixels(self, count: int) -> ByteFilters:
        """The same for blocks of `count` neighbouring pixels, whose channels count as those of one pixel."""
        taps, bias, *terms = (np.tile(each, count) for each in (self.taps, self.bias, *self.terms))
        return replace(self, taps=taps, bias=bias, terms=tuple(terms), joined=count)

    @property
    def key(self) -> tuple[str, ...]:
        return *Filters.key.__get__(self), f"{len(self.terms)} of {self.channels % LARGEST} x {self.joined}"

    @property
    def groups(self) -> int:
        """Groups of four rows of taps."""
        return -(-self.kernel[0] // QUAD)

    def block_channels(self, generator: Generator) -> int:
        return generator.vector_bytes

    def tail(self, generator: Generator, epilogue: Epilogue, c: Layout) -> int:
        return self.channels % generator.vector_bytes

    def block_bytes(self, generator: Generator) -> int:
        return generator.vector_bytes * QUAD * (1 + len(self.terms) * self.groups * self.kernel[1])

    def columns_at_once(self, generator: Generator) -> int:
        return 8 if min(self.live, 8) * QUAD <= SUMS else SUMS // QUAD

    def row(self, f: Function, shape: RowShape, generator: Generator, numbers: Value | None) -> Row:
        count = self.channels % generator.vector_bytes if shape.masked else generator.vector_bytes
        return ByteRow(f, shape, _width(count) // QUAD, numbers, count, len(self.terms))

    def pack(self, generator: Generator) -> int:
        """[block][bias, taps by column, group of rows and term][vector][lane], each lane with four rows of taps; the
        offset in the weights."""
        step, (rows, columns) = generator.vector_bytes, self.kernel
        bias = np.zeros(self.channels + step, np.int32)
        taps = np.zeros((len(self.terms), self.groups * QUAD, columns, bias.size), np.int8)
        bias[: self.channels] = self.bias
        taps[:, :rows, :, : self.channels] = np.reshape(self.terms, (-1, rows, columns, self.channels))
        packed: list[np.ndarray] = []
        for start in range(0, self.channels, step):
            order = start + np.array(_places(_width(min(step, self.channels - start))))
            quads = taps[..., order].reshape(-1, self.groups, QUAD, columns, *order.shape)
            packed += [bias[order], quads.transpose(3, 1, 0, 4, 5, 2)]
        return generator.weights.add(np.concatenate([part.reshape(-1).view(np.uint8) for part in packed]))


def _terms(taps: np.ndarray) -> tuple[np.ndarray, ...]:
    """Taps as one int8, or as the sum of two; int16 if they are too large."""
    first = np.clip(taps, SIGN, MOST_INT8)
    rest = taps - first
    terms = (first, rest) if rest.any() else (first,)
    return tuple(term.astype(np.int8) if term.max() <= MOST_INT8 else term for term in terms)


def _width(channels: int) -> int:
    """Bytes of the shortest vector with so many channels."""
    return min(width for width in NARROW if width >= channels)


def _places(width: int) -> list[list[int]]:
    """The channels in the lanes of each of four vectors, for blocks of `width` channels."""
    pieces = range(0, width, UNPACKED)
    return [[piece + part + lane for piece in pieces for lane in range(QUAD)] for part in range(0, UNPACKED, QUAD)]


@dataclass(frozen=True)
class ByteRow(Row):
    """As `Row`, for four vectors of `lanes` channels, of which the first `count` are stored.

    Columns of input pixels are read once, in order; each adds to all output pixels that see it.
    """

    count: int
    terms: int

    def write(self, a: Value, tap: Value, w: Value, at: list[Value], size: int, mask: Value | None) -> None:
        shape, (height, width) = self.shape, self.shape.kernel
        rows = [a]
        while len(rows) < height:
            rows.append(rows[-1] + tap)
        groups = [rows[first : first + QUAD] for first in range(0, height, QUAD)]
        bias = self._four(vector(self.lanes, "i32"), w)
        finish = self._finisher(at[1:])
        sums: dict[int, list[Value]] = {}
        for column in range((size - 1) * shape.stride + (width - 1) * shape.dilation + 1):
            steps = [divmod(column - tap * shape.dilation, shape.stride) for tap in range(width)]
            uses = [(tap, i) for tap, (i, rest) in enumerate(steps) if rest == 0 and 0 <= i < size]
            for number, group in enumerate(groups if uses else ()):
                quads = self._interleaved([self._loaded(row + column * shape.a_pixel) for row in group])
                for tap_x, i in uses:
                    sums[i] = self._plus_products(sums.get(i, bias), quads, w, tap_x * len(groups) + number)
            for tap_x, i in uses:
                if tap_x == width - 1:
                    finish(sums.pop(i), *(p + i * move for p, move in zip(at, self._moves, strict=True)))

    @property
    def _bytes(self) -> int:
        """Bytes of the constants of all channels: a bias or four taps each."""
        return QUAD * QUAD * self.lanes

    @property
    def _moves(self) -> list[int]:
        """Bytes between neighbouring pixels of the result and of its streams."""
        return [self.shape.c_pixel, *(s.pixel for s in self.shape.epilogue.streams)]

    def _four(self, type_: str, at: Value) -> list[Value]:
        """Four vectors of constants."""
        return [self.f.load(type_, at + part * QUAD * self.lanes, QUAD * self.lanes) for part in range(QUAD)]

    def _loaded(self, at: Value) -> Value:
        """A block's channels of a pixel as uint8; an int8 is then larger by 128."""
        found = self.f.load(vector(QUAD * self.lanes, "i8"), at, 1)
        return found ^ SIGN if self.shape.filters.data == "int8" else found

    def _interleaved(self, rows: Sequence[Value]) -> list[Value]:
        """Rows of bytes as vectors of quads of bytes. Missing rows are represented by others: their taps are zeros."""
        first, second = ((part[0], part[-1]) for part in (rows[:2], rows[2:] or rows[:2]))
        pairs = [self._unpacked(*part, 1) for part in dict.fromkeys((first, second))]
        return [quad for low, high in zip(pairs[0], pairs[-1], strict=True) for quad in self._unpacked(low, high, 2)]

    def _unpacked(self, a: Value, b: Value, size: int) -> list[Value]:
        """Elements of `size` bytes of a and b in turn: the first ones of every 16 bytes, then the others."""
        f, count = self.f, QUAD * self.lanes // size
        a, b = (f.cast("bitcast", value, vector(count, f"i{8 * size}")) for value in (a, b))
        half = UNPACKED // size // 2
        orders = [
            [
                place
                for start in range(first, count, 2 * half)
                for k in range(half)
                for place in (start + k, count + start + k)
            ]
            for first in (0, half)
        ]
        return [f.cast("bitcast", f.shuffle(a, b, order), vector(self.lanes, "i32")) for order in orders]

    def _plus_products(self, sums: Sequence[Value], quads: Sequence[Value], w: Value, number: int) -> list[Value]:
        """The sums plus the products of interleaved pixels and quads of taps with this number."""
        name, (type_, *_), terms = f"x86.avx512.vpdpbusd.{32 * self.lanes}", (q.type for q in quads), self.terms
        for term in range(terms):
            taps = self._four(type_, w + self._bytes * (1 + number * terms + term))
            sums = [self.f.machine_call(name, type_, *each) for each in zip(sums, quads, taps, strict=True)]
        return list(sums)

    def _read(self, stream: Stream, at: Value) -> list[Value]:
        """A stream's elements in the order of the sums."""
        f, nbytes = self.f, stream.memory.layout.element
        if stream.splat:
            return [load(f, stream.dtype, at, self.lanes, 0)] * QUAD
        nothing = f.literal(vector(QUAD, stored(stream.dtype)), 0)
        channels = self.count // self.shape.filters.joined if stream.pixel == 0 else self.count

        def piece(place: int) -> Value:
            if place >= self.count:
                return nothing
            return load(f, stream.dtype, at + place % channels * nbytes, QUAD, nbytes)

        return [joined(f, [piece(place) for place in places[::QUAD]]) for places in _places(QUAD * self.lanes)]

    def _finisher(self, streams: Sequence[Value]) -> Callable[..., None]:
        """(sums, pointer to the result, pointers to the streams) -> applies the epilogue and stores a pixel.

        What is the same for all pixels is read at once.
        """
        f, epilogue, width = self.f, self.shape.epilogue, QUAD * self.lanes
        pairs = list(zip(epilogue.streams, streams, strict=True))
        constants = [self._read(stream, pointer) if stream.pixel == 0 else [] for stream, pointer in pairs]
        numbers, scalars = (epilogue.numbers_at(f, self.numbers, lanes) for lanes in (self.lanes, 1))
        limits = Limits.of(f, epilogue.expr, epilogue.types, scalars, width)
        dtype = computed = epilogue.dtype
        expr, narrow = epilogue.expr, dtype in ("int8", "uint8")
        if narrow:
            expr, computed = (expr.parts[0], "float32") if limits else (wide(expr), "int32")

        def finish(sums: list[Value], target: Value, *streams: Value) -> None:
            triples = zip(epilogue.streams, streams, constants, strict=True)
            extra = [known or self._read(stream, pointer) for stream, pointer, known in triples]
            operands = ((*each, *numbers) for each in zip(sums, *extra, strict=True))
            found = [emit(f, expr, each, epilogue.types, computed, self.lanes) for each in operands]
            if narrow:
                whole = limits.quantized(f, found, dtype) if limits else interleaved_bytes(f, found, dtype)
                self._store(whole, 0, target)
                return
            for value, places in zip(found, _places(width), strict=True):
                for lane in range(0, self.lanes, QUAD):
                    self._store(f.part(value, lane, QUAD), places[lane], target)

        return finish

    def _store(self, value: Value, first: int, target: Value) -> None:
        """Stores neighbouring channels from `first` on, without those beyond the last one."""
        f, dtype, done = self.f, self.shape.epilogue.dtype, 0
        left = min(value.lanes, self.count - first)
        while done < left:
            size = 1 << (left - done).bit_length() - 1
            piece = value if size == value.lanes else f.part(value, done, size)
            store(f, dtype, piece, target + (first + done) * ELEMENT_TYPES[dtype].nbytes)
            done += size
