"""Products: how a register tile multiplies one step of K by the weights of a vector of output channels.

All lanes share the data of a step: one float32, two int16, or four int8 or uint8. Sums of integers wrap, so zero
points are folded into the bias exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from sys import maxsize
from typing import ClassVar, TypeVar

import numpy as np

from jitdelegate.base.targets import Level
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, PAIRS, Function, Value, register, vector
from jitdelegate.targets.maths.cast import cast

QUAD = 4
"""Steps of K in one round of the main loop. Remaining steps of a tap are computed one by one."""
SEGMENT = 128
"""Approximate quads in one segment of a long sum of floats. Segments are added up separately, so that rounding errors
grow with the length of a segment. Measured on MobileNet v1: a hundredth of the time for a third of the error."""
WORDS_SEGMENT = 63
"""Most quads in one segment of a sum of int16: each of its steps adds up to 2**23 to an int32."""
SIGN_BITS = -0x7F7F7F80
"""The sign bits of four bytes; a byte with the other sign bit is larger by 128 as a uint8, smaller as an int8."""
WORD, BYTE = "i16", "i8"
Count = TypeVar("Count", int, "Value | int")
Reader = Callable[[int], list[Value]]


@dataclass(frozen=True)
class Products:
    """Products of floats, and the base of those of integers.

    Attributes:
        machine: the machine that computes them.
        is_signed: whether elements of the data have a sign.
        channels: channels of one step.
        step_bytes: bytes of data of one step.
        takes_lanes: whether a step may be one lane of a vector of data.
        turn: steps of a turn of the main loop, whose data are neighbours.
        multiple: a tap's channels are padded with zero weights to a multiple of it.
        is_exact: whether no step reads channels behind a tap, which may be infinite. Where a tap's last step would, it
            repeats a channel, and both steps have half of its weight.
        converted: type that data are converted to before they are multiplied; "" where they are read as they are.
        stored: type of the packed weights, as numpy has it; that of their bits where it has none.
        accumulator: type of bias and results.
        speed: channels that are multiplied in the time of one float, about.
        scales: scales per output channel, each for an equal part of K; 0 without any.
    """

    machine: Level
    is_signed: bool = True
    channels: ClassVar[int] = 1
    step_bytes: ClassVar[int] = 4
    turn: ClassVar[int] = QUAD
    takes_lanes: ClassVar[bool] = True
    multiple: ClassVar[int] = 1
    is_exact: ClassVar[bool] = False
    converted: ClassVar[str] = ""
    stored: ClassVar[str] = "float32"
    accumulator: ClassVar[str] = "float32"

    @property
    def key(self) -> str:
        return f"{type(self).__name__} {self.is_signed}"

    @property
    def speed(self) -> int:
        return 1

    @property
    def scales(self) -> int:
        return 0

    @property
    def offset(self) -> int:
        """What `data` adds to every element."""
        return 0

    @property
    def few(self) -> Products:
        """Those for few pixels, which wait for the weights."""
        return self

    @property
    def wide(self) -> Products:
        """Those of the single steps behind the main loop."""
        return self

    @property
    def unpacked(self) -> Products:
        """Those of panels after `unpack_function`, which is faster for many pixels; itself where there is none."""
        return self

    def unpack_function(self, generator: Generator, vectors: int, quads: int, singles: int) -> str:
        """The name of `void unpack(panel, target, parts of K with scales, quads of a part, singles)`, which writes a
        panel of so many vectors as `unpacked` has it. There are no singles where there are several parts."""
        raise NotImplementedError

    @property
    def starts_at_bias(self) -> bool:
        """Whether sums start with the bias, and are results. A large one would cost every partial sum of floats its low
        bits."""
        return False

    @property
    def lanes(self) -> int:
        return self.machine.lanes

    @property
    def sum_type(self) -> str:
        """The type of a vector of sums during the loop over K."""
        return vector(self.lanes)

    @property
    def result_type(self) -> str:
        """The type of a vector of results."""
        return vector(self.lanes, register(self.accumulator))

    @property
    def total_type(self) -> str:
        """The type of a vector of sums of several segments."""
        return self.result_type

    @property
    def total_bytes(self) -> int:
        """Its bytes."""
        return self.bias_bytes

    @property
    def bias_bytes(self) -> int:
        """Bytes of a vector of the bias."""
        return self.lanes * np.dtype(self.accumulator).itemsize

    @property
    def scale_bytes(self) -> int:
        """Bytes of a vector of scales."""
        return self.bias_bytes

    def scales_bytes(self, count: Count) -> Count:
        """Bytes of so many vectors of scales."""
        return count * self.scale_bytes

    def stored_scales(self, scales: np.ndarray) -> np.ndarray:
        """f32[lines, outputs] as panels have them."""
        return scales

    def scale(self, f: Function, at: Value) -> Value:
        """A vector of scales."""
        return f.load(self.result_type, at, 4)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of one step and one vector."""
        return self.lanes * self.channels * np.dtype(self.stored).itemsize

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the register tile that is 1, 2, ... vectors wide."""
        return self.machine.tiles

    def work(self, pixels: int, weights: int) -> int:
        """Operations of floats that take as long as the products of pixels and weights; few pixels wait for memory."""
        return 2 * pixels * weights // min(self.speed, 2 * pixels)

    @property
    def segment_steps(self) -> int:
        """Most steps of a sum that is not cut into segments, where these may differ by a step."""
        return SEGMENT * QUAD

    @property
    def part_steps(self) -> int:
        """Most steps for which a panel is packed at once where it is packed at run time."""
        return self.segment_steps

    def segments(self, quads: int) -> tuple[int, int]:
        """(number, quads of each) of the equal segments into which a sum is cut; they may have more quads together."""
        count = segments_of(quads)
        return count, quads // count

    def line_bytes(self, steps: int) -> int:
        """Bytes of the weights of one vector in `steps` steps, a quad or one."""
        return steps * self.weight_bytes

    def panel_bytes(self, vectors: int, quads: int, singles: int) -> int:
        """Bytes of a panel, whole vectors."""
        weights = quads * self.line_bytes(QUAD) + singles * self.line_bytes(1)
        found = vectors * (self.bias_bytes + weights) + self.scales * self.scales_bytes(vectors)
        return -(-found // (FLOAT_BYTES * self.lanes)) * FLOAT_BYTES * self.lanes

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        """Weights [steps, outputs, channels] of a panel in the order in which vectors read them; the steps of `quads`
        quads come first."""
        return panel

    def padded(self, filters: np.ndarray, count: int) -> np.ndarray:
        """Weights [O, taps, channels] with `count` further ones behind each tap."""
        return np.pad(filters, ((0, 0), (0, 0), (0, count)))

    def as_stored(self, f: Function, step: Value, dtype: str) -> Value:
        """One step of a vector of columns of type `dtype`, all channels of a column together, as `arranged` has it."""
        return cast(f, step, dtype, self.stored)

    def lines(self, f: Function, at: Value, vectors: int, steps: int) -> Iterator[list[Sequence[Value]]]:
        """The weights of the vectors of a panel at each of `steps` steps, a quad or one."""
        for k in range(steps):
            yield [self.weights(f, at + (k * vectors + v) * self.weight_bytes) for v in range(vectors)]

    def weights(self, f: Function, at: Value) -> list[Value]:
        """The weights of one step and one vector, in parts."""
        return [f.load(self.sum_type, at, 64)]

    def sums(self, rows: int, vectors: int) -> int:
        """Vectors of sums of so many rows and vectors."""
        return rows * vectors

    def starts(self, f: Function, rows: int, bias: Sequence[Value]) -> list[Value]:
        """The sums before the loop over K, where they start with the bias."""
        return list(bias) * rows

    def by_row(self, f: Function, sums: Sequence[Value], rows: int, vectors: int) -> list[Value]:
        """The sums after the loop, row by row."""
        return list(sums)

    def readers(self, f: Function, rows: Sequence[Value], apart: int, steps: int) -> list[Reader]:
        """For each row, or each few rows, at these addresses: step of a turn -> its data in all lanes. The turn has
        `steps` steps, `apart` bytes apart."""
        return [self._reader(f, at, apart, steps) for at in rows]

    def _reader(self, f: Function, at: Value, apart: int, steps: int) -> Reader:
        if self.takes_lanes and self.machine.multiplies_by_lane and (apart, steps) == (self.step_bytes, self.lanes):
            turn = self.turn_data(f, at)
            return lambda step: self.lane_data(f, turn, step)
        return lambda step: self.data(f, at + step * apart)

    def turn_data(self, f: Function, at: Value) -> Value:
        """The data of as many neighbouring steps as a vector has lanes."""
        return f.load(self.sum_type, at)

    def lane_data(self, f: Function, turn: Value, step: int) -> list[Value]:
        """As `data`, those of one of these steps."""
        return [f.shuffle(turn, turn, [step] * self.lanes)]

    def data(self, f: Function, at: Value) -> list[Value]:
        """The data of one step in all lanes, in as many parts."""
        return [f.broadcast(at, self.lanes)]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        """The sum after one step, of as many lanes."""
        a, b = data[0], weights[0]
        if a.type != total.type:
            a, b = (f.part(each, 0, total.lanes) for each in (a, b))
        return f.fma(a, b, total)

    def widened(self, f: Function, total: Value) -> Value:
        """A sum as a result."""
        return total if total.lanes == self.lanes else f.shuffle(total, f.literal(total.type, 0), range(self.lanes))

    @property
    def half_type(self) -> str:
        """The type of a sum of half a vector, where that takes less time; else ""."""
        return vector(self.lanes // 2) if self.machine.has_fast_halves else ""

    def result(self, f: Function, total: Value, bias: Value, scale: Value | None) -> Value:
        """A total with its bias, and with its scale where the channel has only one."""
        return total + bias


def folded(
    bias: np.ndarray | None, weights: np.ndarray, zero: int, dtype: str, sums: np.ndarray | None = None
) -> np.ndarray | None:
    """The bias [O], of type `dtype`, of data from which `zero` is not subtracted, by integer weights [O, K]. Integers
    wrap, as sums do.

    Args:
        sums: [O], of the rows of weights where each block has a factor; None without any.
    """
    if zero == 0:
        return bias
    sums = weights.sum(1, dtype=np.int64) if sums is None else sums
    return np.asarray((0 if bias is None else bias) - zero * sums).astype(dtype)


def segments_of(quads: int) -> int:
    """Number of equal segments, of about SEGMENT quads, into which a sum is cut; 1 if no length fits."""
    lengths = [n for n in range(SEGMENT // 2, 2 * SEGMENT) if quads % n == 0 and quads > n]
    return quads // min(lengths, key=lambda n: abs(n - SEGMENT)) if lengths else 1


@dataclass(frozen=True)
class IntegerProducts(Products):
    """The base of products of integers. The data's zero point is folded into the bias."""

    accumulator: ClassVar[str] = "int32"
    takes_lanes: ClassVar[bool] = False
    half_type: ClassVar[str] = ""

    @property
    def sum_type(self) -> str:
        return vector(self.lanes, "i32")

    @property
    def starts_at_bias(self) -> bool:
        return self.sum_type == self.result_type

    @property
    def segment_steps(self) -> int:
        return maxsize

    def segments(self, quads: int) -> tuple[int, int]:
        return 1, quads

    def word(self, f: Function, at: Value) -> Value:
        """The four bytes at an address, as an int32 in all lanes."""
        return f.splat(f.load("i32", at, 1), self.lanes)

    def pair(self, f: Function, at: Value) -> Value:
        """The same as two int16."""
        return f.cast("bitcast", self.word(f, at), vector(2 * self.lanes, WORD))


def plus_bytes(f: Function, total: Value, data: Value, weights: Value) -> Value:
    """The sums of int32, each plus the products of four bytes: data of the level's `byte_data`, and int8."""
    machine, factors = f.module.machine, [data, weights]
    if machine.multiplies_by_lane:  # both have a sign, and the last one may be a lane
        factors = [f.cast("bitcast", each, vector(QUAD * total.lanes, BYTE)) for each in (weights, data)]
    return f.machine_call(machine.plus_bytes.format(32 * total.lanes), total.type, total, *factors)


def byte_offset(machine: Level, dtype: str) -> int:
    """What has to be added to data of a type before `plus_bytes` multiplies it; another sign bit does."""
    return ELEMENT_TYPES[machine.byte_data].minimum - ELEMENT_TYPES[dtype].minimum


@dataclass(frozen=True)
class ByteProducts(IntegerProducts):
    """Products of four bytes by `plus_bytes`. Data of the other sign gets the `offset` first."""

    takes_lanes: ClassVar[bool] = True
    channels: ClassVar[int] = 4
    multiple: ClassVar[int] = 4
    stored: ClassVar[str] = "int8"

    @property
    def speed(self) -> int:
        return 4

    @property
    def offset(self) -> int:
        return byte_offset(self.machine, "int8" if self.is_signed else "uint8")

    def weights(self, f: Function, at: Value) -> list[Value]:
        return [f.load(self.sum_type, at, self.weight_bytes)]

    def data(self, f: Function, at: Value) -> list[Value]:
        word = self.word(f, at)
        return [word ^ SIGN_BITS if self.offset else word]

    def turn_data(self, f: Function, at: Value) -> Value:
        words = f.load(self.sum_type, at, 1)
        return words ^ SIGN_BITS if self.offset else words

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        return plus_bytes(f, total, data[0], weights[0])


@dataclass(frozen=True)
class PairProducts(IntegerProducts):
    """Products of four bytes as int16: of the even channels, then of the odd ones."""

    channels: ClassVar[int] = 4
    multiple: ClassVar[int] = 4
    stored: ClassVar[str] = "int8"

    @property
    def rows(self) -> tuple[int, ...]:
        """One row less: every row has a temporary value."""
        return tuple(rows - 1 for rows in self.machine.tiles)

    def arranged(self, panel: np.ndarray, quads: int) -> np.ndarray:
        """The even channels of a vector come before its odd ones."""
        steps, vectors = len(panel), prod(panel.shape[1:]) // (4 * self.lanes)
        return panel.reshape(steps, vectors, self.lanes, 2, 2).transpose(0, 1, 4, 2, 3)

    def as_stored(self, f: Function, step: Value, dtype: str) -> Value:
        step = super().as_stored(f, step, dtype)
        return f.shuffle(step, step, [2 * pair + odd for odd in (0, 1) for pair in range(2 * self.lanes)])

    def weights(self, f: Function, at: Value) -> list[Value]:
        half = self.weight_bytes // 2
        return [words(f, at + place, half) for place in (0, half)]

    def data(self, f: Function, at: Value) -> list[Value]:
        both = self.pair(f, at)
        if self.is_signed:
            return [f.ashr(both << 8, 8), f.ashr(both, 8)]
        return [both & 255, both >> 8]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        for a, b in zip(data, weights, strict=True):
            total = total + sum_of_pairs(f, self.machine, a, b)
        return total


@dataclass(frozen=True)
class WordProducts(IntegerProducts):
    """Products of two int16, summed in int32 as long as they cannot overflow, then in int64."""

    channels: ClassVar[int] = 2
    multiple: ClassVar[int] = 2 * QUAD
    stored: ClassVar[str] = "int8"
    accumulator: ClassVar[str] = "int64"

    @property
    def speed(self) -> int:
        return 2 if self.machine.plus_pairs else 1

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(rows - 1 for rows in self.machine.tiles)

    @property
    def segment_steps(self) -> int:
        return WORDS_SEGMENT * QUAD

    def segments(self, quads: int) -> tuple[int, int]:
        count = max(1, -(-quads // WORDS_SEGMENT))
        return count, -(-quads // count)

    def weights(self, f: Function, at: Value) -> list[Value]:
        return [words(f, at, self.weight_bytes)]

    def data(self, f: Function, at: Value) -> list[Value]:
        return [self.pair(f, at)]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        if not self.machine.plus_pairs:
            return total + sum_of_pairs(f, self.machine, data[0], weights[0])
        factors = (f.cast("bitcast", each, total.type) for each in (data[0], weights[0]))
        return f.machine_call(self.machine.plus_pairs.format(32 * self.lanes), total.type, total, *factors)

    def widened(self, f: Function, total: Value) -> Value:
        return f.convert("sext", total, "i64")


def words(f: Function, at: Value, count: int) -> Value:
    """`count` int8 as int16."""
    return f.convert("sext", f.load(vector(count, BYTE), at, count), WORD)


def sum_of_pairs(f: Function, machine: Level, a: Value, b: Value) -> Value:
    """a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1] of int16, as int32."""
    type_ = vector(a.lanes // 2, "i32")
    if machine.has_pairs:
        return f.machine_call(PAIRS[a.lanes // 2], type_, a, b)
    a, b = (f.cast("bitcast", each, type_) for each in (a, b))
    return f.ashr(a << 16, 16) * f.ashr(b << 16, 16) + f.ashr(a, 16) * f.ashr(b, 16)
