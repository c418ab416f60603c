"""Depthwise over bytes by instructions that add up products in each 32-bit lane: of four bytes, or of two int16; or by
those whose results are twice as wide as the factors.

Four or two rows of a column of pixels are interleaved, so that a lane holds what one channel has under as many taps.
Unpacking instructions do so within every 16 bytes, the cheapest way, and leave vectors that hold the channels in the
order of `_orders`; the instructions that narrow results to bytes put them back in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Self

import numpy as np

from jitdelegate.base.targets import Level
from jitdelegate.ir.expr import Apply, Arg, Cast, Const
from jitdelegate.ir.forms import Depthwise
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load, store_first, stored
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.narrow import EVERY_STEP, NARROW, Narrowing, Steps
from jitdelegate.targets.cpu.code.shuffles import joined
from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.multiply.byte_pairs import plus_quads
from jitdelegate.targets.cpu.multiply.depthwise_terms import QUAD, bytes_of, quads_of, terms_of, words_of
from jitdelegate.targets.cpu.multiply.products import WORD, byte_offset, plus_bytes, sum_of_pairs
from jitdelegate.targets.cpu.walks.depthwise_row import Filters, Row, RowShape, bias_of
from jitdelegate.targets.maths.expression import emit

UNPACKED = 16
"""Bytes within which unpacking instructions interleave."""
LEAST = 12
"""Channels for which it is faster."""
MOST_TAPS = 49
"""Taps of the largest window that is unrolled."""
SUMS, SUMS_BESIDE_TAPS = 20, 10
"""Vectors of sums that fit the registers besides other values; where taps take registers too."""
MOST_LIVE = 3
"""Columns of results whose sums fit the registers beside taps."""
LARGEST_BYTE = 255
LARGEST = 64
"""Bytes of the longest vector."""
SIGN = -128
"""The sign bit: a byte with the other one is larger by 128 as a uint8, smaller as an int8."""


def byte_filters(
    generator: Generator,
    form: Depthwise,
    data: str,
    weights: np.ndarray,
    bias: np.ndarray | None,
    epilogue: Epilogue,
    target: Layout,
) -> tuple[Filters, Epilogue] | None:
    """As `Filters.of`, for results that are stored by layout `target`; None if the Depthwise is not computed so."""
    machine = generator.machine
    if (
        data not in ("int8", "uint8")
        or not (machine.plus_bytes or machine.has_pairs or machine.multiplies_long)
        or form.multiplier > 1
        or prod(form.kernel) > MOST_TAPS
    ):
        return None
    packed, kind = terms_of(weights[0]), ByteFilters
    if not machine.plus_bytes and machine.multiplies_long:
        packed, kind = bytes_of(weights[0]), LongFilters
    elif not machine.plus_bytes:
        packed = quads_of(weights[0]) or words_of(weights[0])
    *_, columns, channels = target.shape
    layouts = target, *(s.memory.layout for s in epilogue.streams if s.pixel)
    reads_beyond = channels % QUAD != 0 and any(s.memory.exact for s in epilogue.streams)
    if packed is None or reads_beyond or any(layout.blocked for layout in layouts):
        return None
    (rows, terms), taps = packed, weights.reshape(-1, channels)
    folds = bias_of(bias, taps, form.input_zero + byte_offset(machine, data), "int32")
    steps = Steps.of(epilogue.expr, _largest(generator, epilogue, taps, folds))
    filters = kind(taps, folds, data, "int32", "int32", rows=rows, terms=terms, steps=steps)
    joined, rest = divmod(generator.vector_bytes, channels)
    is_dense = all(stream.pixel in (0, channels * stream.memory.layout.element) for stream in epilogue.streams)
    if form.stride[1] == 1 < joined <= columns and rest == channels % QUAD == 0 and is_dense:
        filters = filters.of_pixels(joined)
        epilogue = replace(epilogue, streams=tuple(replace(s, pixel=joined * s.pixel) for s in epilogue.streams))
    elif channels < LEAST:
        return None
    live = (form.kernel[1] - 1) * form.dilation[1] // (form.stride[1] * filters.joined) + 1
    return replace(filters, live=live), epilogue


def _largest(generator: Generator, epilogue: Epilogue, taps: np.ndarray, bias: np.ndarray) -> float:
    """The largest magnitude of a product of a sum and its factor, which the epilogue rounds; infinite if unknown."""
    sums = LARGEST_BYTE * np.abs(taps.astype(np.float64)).sum(0) + np.abs(bias.astype(np.float64))
    match epilogue.expr.parts[0] if epilogue.expr.parts else None:
        case Apply("mul", (Cast(Arg(0), "float32"), Cast(Const(factor), "float32"))):
            return float(abs(factor) * sums.max())
        case Apply("mul", (Cast(Arg(0), "float32"), Arg(index))):
            memory = epilogue.streams[index - 1].memory
            is_by_channel = memory.layout.dtype == "float32" and memory.layout.shape == (1, 1, 1, sums.size)
            is_stored = is_by_channel and memory.space == "weights"
            stored = generator.weights.read(generator.offset(memory)) if is_stored else None
            if stored is not None:
                return float((np.abs(np.frombuffer(stored, np.float32, sums.size)) * sums).max())
    return inf


@dataclass(frozen=True)
class ByteFilters(Filters):
    """As `Filters`, for blocks of as many channels as a vector has bytes; the last block's vectors may be shorter.

    Attributes:
        rows, terms: of `terms_of`, or without instructions for quads of bytes, of `quads_of`, `words_of` or `bytes_of`.
        steps: of rounding the results.
        live: columns of results that see the same column of the data.
    """

    rows: tuple[int, ...] = ()
    terms: tuple[np.ndarray, ...] = ()
    steps: Steps = EVERY_STEP
    live: int = 1

    def of_pixels(self, count: int) -> Self:
        return replace(super().of_pixels(count), terms=tuple(np.tile(term, count) for term in self.terms))

    @property
    def key(self) -> tuple[str, ...]:
        own = self.rows, len(self.terms), self.together, self.channels % LARGEST, self.joined, self.steps
        return *super().key, str(own)

    @property
    def together(self) -> int:
        """Rows that are interleaved: a lane has as many taps."""
        return QUAD // self.terms[0].itemsize

    def block_channels(self, generator: Generator) -> int:
        return generator.vector_bytes

    def tail(self, generator: Generator, epilogue: Epilogue, c: Layout) -> int:
        return self.channels % generator.vector_bytes

    def block_bytes(self, generator: Generator) -> int:
        return generator.vector_bytes * (QUAD + sum(term[..., 0].nbytes for term in self.terms))

    def columns_at_once(self, generator: Generator) -> int:
        parts = self.parts(generator.machine)
        most = SUMS if parts == QUAD else SUMS_BESIDE_TAPS
        return 8 if min(self.live, 8) * parts <= most else most // parts

    def parts(self, machine: Level) -> int:
        """Vectors of a block's four that are computed together: columns are read once for each such part."""
        return QUAD if machine.has_memory_operands or self.live <= MOST_LIVE else QUAD // 2

    def row(self, f: Function, shape: RowShape, generator: Generator, numbers: Value | None) -> Row:
        count = self.channels % generator.vector_bytes if shape.masked else generator.vector_bytes
        return ByteRow(f, shape, _width(count) // QUAD, numbers, count, self)

    def pack(self, generator: Generator) -> int:
        """[block][bias, taps by column, group of rows and term][vector][lane], each lane with four bytes of taps of
        rows; the offset in the weights."""
        step, (height, width, channels) = generator.vector_bytes, self.terms[0].shape
        bias = np.zeros(channels + step, np.int32)
        taps = np.zeros((len(self.terms), height, width, bias.size), self.terms[0].dtype)
        bias[:channels], taps[..., :channels] = self.bias, self.terms
        packed: list[np.ndarray] = []
        for start in range(0, channels, step):
            order = start + np.array(_orders(_width(min(step, channels - start))))
            quads = taps[..., order].reshape(len(taps), -1, self.together, width, *order.shape)
            packed += [bias[order], quads.transpose(3, 1, 0, 4, 5, 2)]
        return generator.weights.add(np.concatenate([part.reshape(-1).view(np.uint8) for part in packed]))


@dataclass(frozen=True)
class LongFilters(ByteFilters):
    """As `ByteFilters`, with one int8 for each tap and channel."""

    @property
    def together(self) -> int:
        return 2

    def columns_at_once(self, generator: Generator) -> int:
        return 8 if self.live <= MOST_LIVE else SUMS_BESIDE_TAPS // QUAD

    def parts(self, machine: Level) -> int:
        return QUAD

    def row(self, f: Function, shape: RowShape, generator: Generator, numbers: Value | None) -> Row:
        count = self.channels % generator.vector_bytes if shape.masked else generator.vector_bytes
        return LongRow(f, shape, _width(count) // QUAD, numbers, count, self)

    def pack(self, generator: Generator) -> int:
        """[block][bias, taps by column and row][channel]; the offset in the weights."""
        step, (height, width, channels) = generator.vector_bytes, self.terms[0].shape
        blocks = -(-channels // step)
        bias, taps = np.zeros(blocks * step, np.int32), np.zeros((height, width, blocks * step), np.int8)
        bias[:channels], taps[..., :channels] = self.bias, self.terms[0]
        parts = bias.reshape(blocks, -1), taps.reshape(height, width, blocks, step).transpose(2, 1, 0, 3)
        packed = [part.reshape(blocks, -1).view(np.uint8) for part in map(np.ascontiguousarray, parts)]
        return generator.weights.add(np.concatenate(packed, axis=1))


def _width(channels: int) -> int:
    """Bytes of the shortest vector with so many channels."""
    return min(width for width in NARROW if width >= channels)


def _orders(width: int) -> list[list[int]]:
    """The channels in the lanes of each of four vectors, for blocks of `width` channels."""
    pieces = range(0, width, UNPACKED)
    return [[piece + part + lane for piece in pieces for lane in range(QUAD)] for part in range(0, UNPACKED, QUAD)]


@dataclass(frozen=True)
class ByteRow(Row):
    """As `Row`, for four vectors of `lanes` channels, of which the first `count` are stored.

    Columns of input pixels are read once, in order; each adds to all output pixels that see it.
    """

    count: int
    bytes: ByteFilters

    def write(self, a: Value, tap: Value, w: Value, at: list[Value], size: int, mask: Value | None) -> None:
        rows = [a]
        while len(rows) < self.shape.kernel[0]:
            rows.append(rows[-1] + tap)
        step = self.bytes.parts(self.f.module.machine)
        for first in range(0, QUAD, step):
            if first * QUAD < self.count:
                self._write(slice(first, first + step), rows, w + first * QUAD * self.lanes, at, size)

    def _write(self, parts: slice, rows: Sequence[Value], w: Value, at: list[Value], size: int) -> None:
        """These of the four vectors; `w` points to the constants of the first one."""
        shape, (_, width), count = self.shape, self.shape.kernel, parts.stop - parts.start
        interleaved, together = self.bytes.rows, self.bytes.together
        groups = [interleaved[first : first + together] for first in range(0, len(interleaved), together)]
        words, has_free_moves = vector(self.lanes, "i32"), self.f.module.machine.has_free_moves
        bias, finish = self._constants(words, w, count), self._finisher(parts, at[1:])
        sums: dict[int, list[Value]] = {}
        for column in range((size - 1) * shape.stride + (width - 1) * shape.dilation + 1):
            steps = [divmod(column - tap * shape.dilation, shape.stride) for tap in range(width)]
            uses = [(tap, i) for tap, (i, rest) in enumerate(steps) if rest == 0 and 0 <= i < size]
            for number, group in enumerate(groups if uses else ()):
                quads = self._interleaved(parts, group, {row: rows[row] + column * shape.a_pixel for row in group})
                for tap_x, i in uses:
                    if i not in sums:
                        sums[i] = bias if has_free_moves else self._constants(words, w, count)
                    sums[i] = self._plus_products(sums[i], quads, w, tap_x * len(groups) + number)
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

    def _constants(self, type_: str, at: Value, count: int) -> list[Value]:
        """So many vectors of constants."""
        return [self.f.load(type_, at + part * QUAD * self.lanes, QUAD * self.lanes) for part in range(count)]

    def _loaded(self, at: Value) -> Value:
        """A block's channels of a pixel, in the type that is multiplied."""
        loaded = self.f.load(vector(QUAD * self.lanes, "i8"), at, 1)
        return loaded ^ SIGN if byte_offset(self.f.module.machine, self.shape.filters.data) else loaded

    def _interleaved(self, parts: slice, group: tuple[int, ...], at: Mapping[int, Value]) -> list[Value]:
        """The bytes of four rows, which may be equal, as vectors of quads of bytes, or those of two rows as pairs of
        words: these of the four vectors. `at` has the address of each row."""
        loaded = {row: self._loaded(address) for row, address in at.items()}
        if self.bytes.together == QUAD:
            first, second = (group[0], group[1]), (group[2], group[3])
            pairs = {(a, b): self._unpacked(loaded[a], loaded[b], 1) for a, b in dict.fromkeys((first, second))}
            halves = list(zip(pairs[first], pairs[second], strict=True))
            return [quad for low, high in halves for quad in self._unpacked(low, high, 2)][parts]
        words = self._unpacked(loaded[group[0]], loaded[group[1]], 1)
        return [pair for word in words for pair in self._unpacked(word, self.f.literal(word.type, 0), 1)][parts]

    def _unpacked(self, a: Value, b: Value, size: int) -> list[Value]:
        """Elements of `size` bytes of a and b in turn: the first ones of every 16 bytes, then the others."""
        f, count = self.f, QUAD * self.lanes // size
        a, b = (f.cast("bitcast", value, vector(count, f"i{8 * size}")) for value in (a, b))
        half = UNPACKED // size // 2
        orders = [
            [
                lane
                for start in range(first, count, 2 * half)
                for k in range(half)
                for lane in (start + k, count + start + k)
            ]
            for first in (0, half)
        ]
        return [f.cast("bitcast", f.shuffle(a, b, order), vector(self.lanes, "i32")) for order in orders]

    def _plus_products(self, sums: Sequence[Value], quads: Sequence[Value], w: Value, number: int) -> list[Value]:
        """The sums plus the products of interleaved pixels and quads of taps with this number."""
        terms = len(self.bytes.terms)
        for term in range(terms):
            taps = self._constants(quads[0].type, w + self._bytes * (1 + number * terms + term), len(quads))
            sums = [self._plus(*three) for three in zip(sums, quads, taps, strict=True)]
        return list(sums)

    def _plus(self, total: Value, data: Value, taps: Value) -> Value:
        if self.bytes.together == QUAD:
            if self.f.module.machine.plus_bytes:
                return plus_bytes(self.f, total, data, taps)
            data, taps = (self.f.cast("bitcast", value, vector(QUAD * total.lanes, "i8")) for value in (data, taps))
            return plus_quads(self.f, total, data, taps)
        pairs = vector(2 * total.lanes, WORD)
        data, taps = (self.f.cast("bitcast", value, pairs) for value in (data, taps))
        return total + sum_of_pairs(self.f, self.f.module.machine, data, taps)

    def _read(self, stream: Stream, at: Value) -> list[Value]:
        """A stream's elements in the order of the sums."""
        f, nbytes = self.f, stream.memory.layout.element
        if stream.splat:
            return [load(f, stream.dtype, at, self.lanes, 0)] * QUAD
        nothing = f.literal(vector(QUAD, stored(stream.dtype)), 0)
        channels = self.count // self.shape.filters.joined if stream.pixel == 0 else self.count

        def piece(channel: int) -> Value:
            if channel >= self.count:
                return nothing
            return load(f, stream.dtype, at + channel % channels * nbytes, QUAD, nbytes)

        return [joined(f, [piece(channel) for channel in order[::QUAD]]) for order in _orders(QUAD * self.lanes)]

    def _finisher(self, parts: slice, streams: Sequence[Value]) -> Callable[..., None]:
        """(sums, pointer to the result, pointers to the streams) -> applies the epilogue and stores these of the four
        vectors of a pixel.

        What is the same for all pixels is read at once.
        """
        f, epilogue, width = self.f, self.shape.epilogue, QUAD * self.lanes
        pairs = list(zip(epilogue.streams, streams, strict=True))
        constants = [self._read(stream, pointer)[parts] if stream.pixel == 0 else [] for stream, pointer in pairs]
        orders = _orders(width)[parts]
        numbers, is_narrow = epilogue.numbers_at(f, self.numbers, self.lanes), epilogue.dtype in ("int8", "uint8")
        narrowing = Narrowing.of(f, epilogue, self.numbers, self.lanes, self.bytes.steps) if is_narrow else None
        first = narrowing.epilogue if narrowing else epilogue

        def finish(sums: list[Value], target: Value, *streams: Value) -> None:
            triples = zip(epilogue.streams, streams, constants, strict=True)
            extra = [known or self._read(stream, pointer)[parts] for stream, pointer, known in triples]
            operands = ((*values, *numbers) for values in zip(sums, *extra, strict=True))
            results = [emit(f, first.expr, values, first.types, first.dtype, self.lanes) for values in operands]
            if narrowing:
                is_whole = len(results) == QUAD
                value = narrowing.interleaved(f, results) if is_whole else narrowing.in_order(f, results)
                self._store(value, orders[0][0], target)
                return
            for value, order in zip(results, orders, strict=True):
                for lane in range(0, self.lanes, QUAD):
                    self._store(f.part(value, lane, QUAD), order[lane], target)

        return finish

    def _store(self, value: Value, first: int, target: Value) -> None:
        """Stores neighbouring channels from `first` on, without those beyond the last one."""
        dtype, left = self.shape.epilogue.dtype, max(self.count - first, 0)
        store_first(self.f, dtype, value, min(value.lanes, left), target + first * ELEMENT_TYPES[dtype].nbytes)


@dataclass(frozen=True)
class LongRow(ByteRow):
    """As `ByteRow`, by products of int16: those of two rows are added up before they are added to the sums."""

    def _interleaved(self, parts: slice, group: tuple[int, ...], at: Mapping[int, Value]) -> list[Value]:
        """The bytes of each row."""
        return [self._loaded(at[row]) for row in group]

    def _plus_products(self, sums: Sequence[Value], quads: Sequence[Value], w: Value, number: int) -> list[Value]:
        f, size, (height, _) = self.f, QUAD * self.lanes, self.shape.kernel
        column, group = divmod(number, -(-height // 2))
        at = w + (self._bytes + (column * height + 2 * group) * size)
        taps = [f.load(vector(size, "i8"), at + row * size, size) for row in range(len(quads))]
        after = list[Value]()
        for first in (0, size // 2):
            halves = (
                [f.convert("sext", f.part(each, first, size // 2), WORD) for each in side] for side in (quads, taps)
            )
            total, *others = (a * b for a, b in zip(*halves, strict=True))
            total = total + others[0] if others else total
            for start in (0, self.lanes):
                after.append(sums[len(after)] + f.convert("sext", f.part(total, start, self.lanes), "i32"))
        return after
