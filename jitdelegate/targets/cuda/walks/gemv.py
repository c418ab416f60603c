"""Contract for few pixels: weights are read once, directly from memory; the lanes of a warp share a row of weights.

A fully connected layer at batch 1 is such a case: it is as fast as its weights can be read. All precisions use this
kernel, with weights as wide as stored tensors; sums are float32. Of integers, four are multiplied at a time (dp4a), and
sums are int32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jitdelegate.targets.cuda.code.choices import candidate
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, common_width, joined, load, load_where, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.lanes import combine_lanes
from jitdelegate.targets.cuda.code.narrow_integers import floats_of_bytes, floats_of_nibbles
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template, TensorPointer
from jitdelegate.targets.cuda.code.writer import Writer, check_memory
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem, blank, whole
from jitdelegate.targets.cuda.sources.stored_weights import SCALES, Rows, rows_of, sixteenfold
from jitdelegate.targets.maths.cast import cast

PACKED_TOGETHER = 256
"""Rows of weights that are packed in one piece: few, so that packing takes little memory."""
MOST_PIXELS = 4
"""Most pixels; with more, a kernel with weights in shared memory is faster."""
WARPS = 4
"""Warps of a block."""
LANES = 32
CHUNK, WORD = 16, 4
"""Bytes of an access to weights, and of the integers that dp4a multiplies."""
MOST_FLOATS, MOST_PACKED = 8, 16
"""Most weights of an access that become floats, and of one with two weights in each byte."""
IN_FLIGHT = 8
"""Accesses that a lane begins before it waits for the first one."""
ROWS = (4, 2, 1)
"""Possible rows of weights per warp."""
BUSY_WARPS = 8
"""Warps per multiprocessor that suffice to keep memory busy."""


class GemvSizes(NamedTuple):
    """Length of K, of a row of weights, number of accesses per row of weights, number of output channels, elements
    between pixels of the data and of the output, parts of a row that have a scale, the logarithm of their length."""

    steps: Number
    pitch: Number
    accesses: Number
    channels: Number
    data: Number
    output: Number
    parts: Number
    part_bits: Number


@dataclass(frozen=True, eq=False, slots=True)
class Gemv(Template):
    """A product of rows of weights and a few pixels, `rows` rows of weights (output channels) at a time.

    Attributes:
        source, weights, output: element types of data, weights and results.
        pixels: pixels of the output, all images together.
        slices: warps that split K: 1, or all warps of a block.
        width: neighbouring elements of data in one access.
        run: neighbouring channels that are stored together.
        is_packed: whether a byte holds two weights.
        scale: element type of the scales that parts of a row of weights have; None where they have none.
        has_filter_zero: whether a zero point is subtracted from the weights, four of which are an argument.
    """

    family: ClassVar[str] = "contract_gemv"
    threads: ClassVar[int] = LANES * WARPS
    awaits_launches: ClassVar[bool] = True
    constants: ClassVar[frozenset[int]] = frozenset({2, 3})
    source: Element
    weights: Element
    output: Element
    pixels: int
    rows: int
    slices: int
    width: int
    run: int
    epilogue: Epilogue
    is_packed: bool = False
    scale: Element | None = None
    has_filter_zero: bool = False

    @property
    def sums(self) -> Element:
        """The type of the sums."""
        return Element.FLOAT32 if self.source.dtype == "float32" else Element.INT32

    @property
    def rows_of_block(self) -> int:
        """Output channels of a block."""
        return self.rows * WARPS // self.slices

    @property
    def width_of_weights(self) -> int:
        """Elements of a row of weights that a lane reads in one access; few where they become floats."""
        if self.is_packed:
            return MOST_PACKED
        return min(self.weights.widest, MOST_FLOATS) if self.sums is Element.FLOAT32 else self.weights.widest

    @property
    def step(self) -> int:
        """Elements of K that a warp reads in one access to a row of weights."""
        return LANES * self.width_of_weights

    @property
    def unrolled(self) -> int:
        """Accesses to a row of weights that are in flight together."""
        parts = self.least // min(self.width, self.least)
        return max(IN_FLIGHT // (2 if self.is_packed else 1) // max(self.rows, self.pixels * parts), 1)

    @property
    def least(self) -> int:
        """Elements of data that are used together."""
        return WORD if self.sums is Element.INT32 else 1

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return "pointer", *self.operands, self.epilogue.parameters, GemvSizes

    @property
    def operands(self) -> tuple[Kind, ...]:
        """What a `RowProduct` takes before its sizes."""
        return *("pointer",) * 3, ("pointer",) * (self.scale is not None), ("int32",) * self.has_filter_zero

    def write(
        self,
        code: Code,
        output: Value,
        data: Value,
        weights: Value,
        bias: Value,
        scales: Sequence[Value],
        zero: Sequence[Value],
        extra: Sequence[Value],
        sizes: GemvSizes,
    ) -> None:
        product = RowProduct(code, self, data, weights, bias, scales, zero, sizes)
        code.await_launches()
        product.multiply("sums")
        pixel = product.lane
        for start in range(0, self.rows, self.run):
            channel = product.channel + start
            with code.when(product.is_first & (pixel < self.pixels) & (channel < sizes.channels)):
                results = self.epilogue.apply(code, product.totals(start, self.run, pixel), pixel, channel, extra)
                store(code, self.output, results, output, pixel * sizes.output + channel)


class RowProduct:
    """Writes the product of a warp's rows of weights and all pixels, or of a block's rows where warps split K.

    Args:
        weights: [output channels, K]; both axes are padded with zeros to what blocks and lanes read at once.
        bias: [padded output channels], of the type of the sums.
        scales: [padded output channels, parts of a row of weights].
        zero: four times the weights' zero point, as bytes of a word.
    """

    def __init__(
        self,
        code: Code,
        template: Gemv,
        data: Value,
        weights: Value,
        bias: Value,
        scales: Sequence[Value],
        zero: Sequence[Value],
        sizes: GemvSizes,
    ) -> None:
        self.code, self.template = code, template
        self.data, self.weights, self.bias = data, weights, bias
        self.sizes, self.scales, self.zero = sizes, scales[0] if scales else None, zero
        thread = code.special("tid.x")
        self.lane, warp = thread % LANES, thread // LANES
        self.slice = warp if template.slices > 1 else code.integer(0)
        self.is_first = self.slice.equals(0)
        first = code.integer(0) if template.slices > 1 else warp
        self.turn = code.special("ctaid.x") * (WARPS // template.slices) + first
        self.channel = self.turn * template.rows
        self.sums = list[Value]()

    def multiply(self, name: str) -> None:
        """Multiplies; then each lane has all sums.

        Args:
            name: begins the names of shared memory that no other product uses.
        """
        template, code = self.template, self.code
        nothing = [code.constant(template.sums.dtype, 0)] * ((template.rows + len(self.zero)) * template.pixels)
        stride = template.unrolled * template.slices
        with code.carried(self.sizes.accesses, nothing, start=self.slice * template.unrolled, step=stride) as loop:
            at, now, following = loop
            following[:] = self._accumulated(now, at)
        lanes, add = LANES * template.slices, lambda code, a, b: a + b
        self.sums = [combine_lanes(code, sum_, lanes, add, f"{name}_{at}") for at, sum_ in enumerate(following)]

    def totals(self, start: int, count: int, pixel: Value) -> list[Value]:
        """The sums of so many rows, from `start` on, and a pixel, with their bias."""
        bias = load(self.code, self.template.sums, self.bias, self.channel + start, count)
        totals = [self._total(start + at, pixel) + bias[at] for at in range(count)]
        if not self.zero:
            return totals
        less = self._of_pixel(self.template.rows, pixel)
        return [total - less for total in totals]

    def _accumulated(self, sums: Sequence[Value], at: Value) -> list[Value]:
        """The sums after `unrolled` accesses from `at` on; all accesses begin before the first is used. One more row
        consists of the weights' zero point."""
        template, sums = self.template, list(sums)
        turns = range(template.unrolled)
        weights = [[self._weights(row, at + turn) for row in range(template.rows)] for turn in turns]
        data = [[self._data(pixel, at + turn) for pixel in range(template.pixels)] for turn in turns]
        for turn in turns:
            rows = [*weights[turn], *([zero] * len(weights[turn][0]) for zero in self.zero)]
            pairs = [(row, pixel) for row in rows for pixel in data[turn]]
            for number, (row, pixel) in enumerate(pairs):
                if self.scales is None:
                    sums[number] = self._products(row, pixel, sums[number])
                else:
                    part = self._products(row, pixel, self.code.real(0.0))
                    scale = self._scale(number // template.pixels, at + turn)
                    sums[number] = self.code.fma(part, scale, sums[number])
        return sums

    def _products(self, row: Sequence[Value], pixel: Sequence[Value], sum_: Value) -> Value:
        for a, b in zip(row, pixel, strict=True):
            sum_ = self._product(a, b, sum_)
        return sum_

    def _scale(self, row: int, access: Value) -> Value:
        assert self.template.scale is not None and self.scales is not None
        step = self._step(access)
        index = (self.channel + row) * self.sizes.parts + (step >> self.sizes.part_bits)
        return load_where(self.code, self.template.scale, step < self.sizes.steps, self.scales, index)[0]

    def _product(self, weights: Value, data: Value, sum_: Value) -> Value:
        """The sum after one more product, or after four of integers."""
        if self.template.sums is Element.FLOAT32:
            return self.code.fma(weights, data, sum_)
        kind = "s32" if self.template.source is Element.INT8 else "u32"
        return self.code.ptx(f"dp4a.{kind}.s32 $0, $1, $2, $3;", "r", [data, weights, sum_])[0]

    def _weights(self, row: int, access: Value) -> list[Value]:
        template, step = self.template, self._step(access)
        exists, index = step < self.sizes.pitch, (self.channel + row) * self.sizes.pitch + step
        if template.weights is not Element.INT8:
            numbers = load_where(self.code, template.weights, exists, self.weights, index, template.width_of_weights)
            return [cast(self.code, one, template.weights.dtype, "float32") for one in numbers]
        half = 2 if template.is_packed else 1
        words = self.code.load_where(exists, self.weights, index // half, template.width_of_weights // WORD // half)
        if template.sums is Element.INT32:
            return [bytes_ for word in words for bytes_ in sixteenfold(word)] if template.is_packed else words
        widen = floats_of_nibbles if template.is_packed else floats_of_bytes
        return [number for word in words for number in widen(self.code, word)]

    def _data(self, pixel: int, access: Value) -> list[Value]:
        template = self.template
        return [
            number
            for at in range(0, template.width_of_weights, max(template.width, template.least))
            for number in self._numbers(pixel, self._step(access) + at)
        ]

    def _numbers(self, pixel: int, step: Value) -> list[Value]:
        template, code = self.template, self.code
        index, steps = self.sizes.data * pixel + step, self.sizes.steps
        if template.width < template.least:
            offsets = range(0, WORD, template.width)
            parts = [load_where(code, template.source, step + at < steps, self.data, index + at, template.width)
                     for at in offsets]  # fmt: skip
            return [joined(code, [number for part in parts for number in part], WORD)]
        if template.sums is Element.INT32:
            return code.load_where(step < steps, self.data, index, template.width // WORD)
        return load_where(code, template.source, step < steps, self.data, index, template.width)

    def _step(self, access: Value) -> Value:
        return access * self.template.step + self.lane * self.template.width_of_weights

    def _of_pixel(self, row: int, pixel: Value) -> Value:
        """The sum of a row and a pixel."""
        total, *others = self.sums[row * self.template.pixels : (row + 1) * self.template.pixels]
        for number, value in enumerate(others, start=1):
            total = self.code.select(pixel.equals(number), value, total)
        return total

    def _total(self, row: int, pixel: Value) -> Value:
        """The sum of a row of weights and a pixel."""
        total = self._of_pixel(row, pixel)
        is_multiple = self.template.is_packed and self.template.sums is Element.INT32
        return self.code.ashr(total, 4) if is_multiple else total  # `sixteenfold` made each product 16 times as large


def fits(problem: ConvProblem) -> bool:
    """Whether each pixel of a problem is a row of numbers, and there are few pixels."""
    return problem.is_direct and problem.groups == 1 and problem.pixels(problem.phases[0]) <= MOST_PIXELS


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launch of a problem that `fits`.

    Raises:
        CompileError: there are too many weights, padded to whole blocks.
    """
    epilogue, extra = writer.epilogue(problem.node)
    own = rows_of(writer, problem)
    template = choose(writer, problem, own, epilogue)
    *pointers, sizes = operands(writer, problem, own, template)
    grid = -(-sizes.channels // template.rows_of_block), 1, 1
    writer.launch(template, grid, (TensorPointer(problem.output), *pointers, *extra, sizes))


def operands(writer: Writer, problem: ConvProblem, own: Rows, template: Gemv) -> tuple[Any, ...]:
    """What a launch takes besides the output and the epilogue's operands; raises as `write`."""
    (phase,) = problem.phases
    outputs, steps = len(own.numbers), phase.steps
    rows, columns = whole(outputs, template.rows_of_block), whole(steps, template.width_of_weights)
    check_memory(f"A constant of {[rows, columns]}", template.weights.nbytes * rows * columns)

    def stored() -> Iterator[np.ndarray]:
        for first in range(0, rows, PACKED_TOGETHER):
            padded = blank(min(PACKED_TOGETHER, rows - first), columns, dtype=own.numbers.dtype)
            some = own.numbers[first : first + PACKED_TOGETHER]
            padded[: len(some), :steps] = some
            yield own.stored(padded)

    parts = 0 if own.scales is None else own.scales.shape[1]
    scales = np.zeros((rows, parts), np.float32)
    if own.scales is not None:
        scales[:outputs] = own.scales
    form, accesses = ("rows", rows, columns, template.weights, template.is_packed), -(-columns // template.step)
    return (
        writer.pointer(problem.data),
        writer.packed(form, [phase.weights], stored),
        writer.constant(problem.biases(phase, template.rows_of_block)),
        *((writer.constant(scales.astype(SCALES[template.scale])),) if template.scale else ()),
        *problem.filter_zeros,
        GemvSizes(steps, columns, accesses, outputs, problem.pitch, problem.out_pitch, parts, own.part_bits),
    )


def choose(writer: Writer, problem: ConvProblem, own: Rows, epilogue: Epilogue) -> Gemv:
    """The template that suits the problem with weights `own` on the writer's GPU."""
    weights, source, output = own.element, writer.element(problem.data), writer.element(problem.output)
    width, grain = problem.width(min(weights.widest, source.widest)), writer.output_grain(problem.node)
    pixels = problem.pixels(problem.phases[0])

    def template(rows: int, slices: int) -> Gemv:
        run = common_width((problem.outputs, *grain), rows)
        is_packed, scale = own.is_packed, own.scale
        zero = problem.filter_zero != 0
        return Gemv(source, weights, output, pixels, rows, slices, width, run, epilogue, is_packed, scale, zero)

    rows = _rows(writer.gpu, problem.outputs)
    is_few = -(-problem.outputs // rows) * 2 < BUSY_WARPS * writer.gpu.multiprocessors
    first = rows, WARPS if is_few else 1
    candidates = {candidate(pair): template(*pair) for pair in (first, *product(ROWS, (1, WARPS)))}
    elements = source, weights, output, *((own.scale,) if own.scale else ())
    return writer.choose(problem.text(problem.phases[0], elements, Gemv.family, width, epilogue), candidates)


def _rows(gpu: Gpu, outputs: int) -> int:
    """Rows of weights per warp: with more rows, reads of the data are shared; with fewer, there are more warps."""
    return next(rows for rows in ROWS if rows == 1 or outputs >= rows * BUSY_WARPS * gpu.multiprocessors)
