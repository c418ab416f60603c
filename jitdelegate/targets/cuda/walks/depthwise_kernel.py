"""Device code of depthwise convolutions: each thread computes a small tile of pixels for a few neighbouring channels.

The sizes of usual windows are compiled in: a thread loads the data under its tile's windows once, row by row, and uses
it from registers for all pixels and taps. With dilation, a tile's pixels are as far apart as the taps, so that they
share data. Kernels for other windows loop over the taps at run time; where windows are large and pixels few, several
threads share each window.

Of integers, the bias makes up for the zero point of the data. Where taps outside the image are left out, the value of
pixels outside is subtracted from the data, so that these pixels count as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import prod
from typing import Any, ClassVar, NamedTuple

from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import divided
from jitdelegate.targets.cuda.code.element import OWN, Element, load_or, load_where, split
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.image_parts import Part
from jitdelegate.targets.cuda.code.output import Output
from jitdelegate.targets.cuda.code.sizes import Divisor, Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.walks.window import (
    LEAST_THREADS,
    Span,
    WindowAxis,
    WindowKernel,
    WindowTile,
    WindowWalk,
)
from jitdelegate.targets.maths.cast import cast

Steps = tuple[int, int, int]
"""(kernel, stride, dilation) along an axis."""
Sums = Sequence[Value]
"""One value per channel of a thread."""
NARROW = 4
"""Channels per thread where there is too little work for tiles, and with wide windows: narrower vectors give more
threads that use fewer registers."""
RESIDENT, RESIDENT_HEAVY = 4, 2
"""Blocks on a multiprocessor, with usual and with heavy tiles: more blocks would leave too few registers for each."""
HEAVY, HEAVY_UNROLLED = 84, 124
"""Values that a thread loads and sums at once, above which a tile is heavy; if all taps of a tile are unrolled, ptxas
copes with more values before it spills."""


@dataclass(frozen=True, eq=False)
class DepthwiseTemplate(Template):
    """The fields that the code of all depthwise kernels depends on.

    Attributes:
        width: neighbouring output channels of a thread.
        is_repeated: whether these channels all read the same input channel; otherwise each reads its own.
        source, weights, target: element types of data, weights and output.
    """

    family: ClassVar[str] = "depthwise"
    constants: ClassVar[frozenset[int]] = frozenset({2, 3})
    width: int
    is_repeated: bool
    source: Element
    weights: Element
    target: Element
    epilogue: Epilogue

    @property
    def sums(self) -> str:
        """The type of the sums."""
        return self.epilogue.dtype

    @property
    def factors(self) -> str:
        """The type in which data and weights are multiplied."""
        return "float32" if self.sums == "float32" else "int32"

    @property
    def leaves_out(self) -> bool:
        """Whether taps outside the image may be left out."""
        return True

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        bias, halo = ("pointer",) * (self.weights is not Element.FLOAT32), ("int32",) * (self.factors == "int32")
        return "pointer", "pointer", "pointer", bias, halo, extra, FourAxes, WindowAxis, WindowAxis, DepthwiseSizes


class DepthwiseSizes(NamedTuple):
    """Data channels, output channels per data channel, rows and columns of the output, elements between neighbouring
    pixels of the data and of the output."""

    depth: Number
    multiplier: Divisor
    rows: Number
    columns: Number
    pitch: Number
    out_pitch: Number


class DepthwiseKernel(WindowKernel):
    """The arguments of a depthwise kernel, and the code shared by the compiled-in and the run-time windows."""

    def __init__(
        self,
        template: DepthwiseTemplate,
        code: Code,
        out: Value,
        data: Value,
        weights: Value,
        bias: Sequence[Value],
        halo: Sequence[Value],
        extra: Sequence[Value],
        parts: FourAxes | None,
        rows: WindowAxis,
        columns: WindowAxis,
        sizes: DepthwiseSizes,
    ) -> None:
        """Args:
        weights: [taps, channels]; the bias follows if both are float32.
        bias: [channels], of the type of the sums.
        halo: a word of the value of pixels outside the image.
        parts: None where the caller knows what a thread computes, and calls `locate`.
        """
        super().__init__(code, parts, (rows, columns))
        self.own_bias, self.halo = bias, halo
        self.template, self.data, self.weights, self.sizes = template, data, weights, sizes
        self.channels = sizes.depth * sizes.multiplier.size
        self.output = Output(code, template.epilogue, template.target, out, extra, sizes.out_pitch)

    def begin(self, me: Part) -> None:
        self.locate(me.image, me.vector * self.template.width)

    def locate(self, image: Value, channel: Value) -> None:
        """Sets the image and the first output channel that the thread computes."""
        self.image, self.channel = image, channel
        self.source, _ = divided(self.code, channel, self.sizes.multiplier)

    def row(self, y: Value) -> Value:
        """The index of the data's first pixel in row y, at the part's channels."""
        index: Value = (self.image * self.axes[0].size + y) * self.axes[1].size * self.sizes.pitch + self.source
        return index

    def pixel(self, inside: Value, index: Value) -> list[Value]:
        """The data from an index on, one value per output channel; where it is not inside the image, the halo's value,
        or zeros."""
        count = 1 if self.template.is_repeated else self.template.width
        code, source = self.code, self.template.source
        if self.halo:
            stored = load_or(code, source, inside, self.data, index, count, self.halo[0])
            values = [cast(code, value, source.dtype, "int32") for value in stored]
        else:
            values = load_where(code, source, inside, self.data, index, count)
        if self.halo and self.template.leaves_out:
            outside = cast(code, split(code, self.halo[0], source.nbytes)[0], source.dtype, "int32")
            values = [value - outside for value in values]
        return values * (self.template.width // count)

    def tap(self, number: Value | int) -> list[Value]:
        """The weights of tap `number`."""
        index = self.channel + self.channels * number
        return self._factors(load_run(self.code, self.template.weights, self.weights, index, self.template.width))

    def _factors(self, weights: Sequence[Value]) -> list[Value]:
        """Weights in the type in which they are multiplied."""
        stored, wanted = self.template.weights.dtype, self.template.factors
        return [cast(self.code, value, stored, wanted) for value in weights]

    def bias(self, taps: Value | int) -> list[Value]:
        """The bias, for a window of so many taps."""
        if not self.own_bias:
            return self.tap(taps)
        (base,) = self.own_bias
        return load_run(self.code, OWN[self.template.sums], base, self.channel, self.template.width)

    def product(self, a: Value, b: Value, sum_: Value) -> Value:
        """sum_ + a * b."""
        if self.template.factors == "float32":
            return self.code.fma(a, b, sum_)
        return sum_ + cast(self.code, a * b, "int32", self.template.sums)

    def tap_where(self, condition: Value, number: Value) -> list[Value]:
        """The weights of tap `number`, or zeros."""
        start, step = self.channel + self.channels * number, min(self.template.width, NARROW)
        offsets = range(0, self.template.width, step)
        read = partial(load_where, self.code, self.template.weights, condition, self.weights)
        return self._factors([value for at in offsets for value in read(start + at, step)])

    def nothing(self) -> list[Value]:
        return [self.code.constant(self.template.sums, 0)] * self.template.width

    def add(
        self, me: Part, spans: tuple[Span, Span], exists: Value, row: Value, column: Value, values: Sequence[Value]
    ) -> list[Value]:
        (rows, columns), inside = spans, me.exists & exists
        start = self.row(rows.start + row * rows.step)
        pixel = self.pixel(inside, start + (columns.start + column * columns.step) * self.sizes.pitch)
        number = (rows.first + row) * self.axes[1].kernel + columns.first + column
        products = zip(pixel, self.tap_where(inside, number), values, strict=True)
        return [self.product(*three) for three in products]

    def combined(self, a: Value, b: Value) -> Value:
        return a + b

    def finish(self, me: Part, spans: tuple[Span, Span], values: list[Value]) -> None:
        bias = self.bias(self.axes[0].kernel * self.axes[1].kernel)
        self.store(me.y, me.x, [a + b for a, b in zip(values, bias, strict=True)])

    def store(self, y: Value, x: Value, results: Sequence[Value]) -> None:
        """Stores the results for output pixel (y, x)."""
        self.output.store(results, (self.image * self.sizes.rows + y) * self.sizes.columns + x, self.channel)


@dataclass(frozen=True, eq=False)
class DepthwiseTile(WindowTile, DepthwiseTemplate):
    """A window whose columns are compiled in: the data under a row of the tile is loaded once and used from registers.

    Attributes:
        rows: (kernel, stride, dilation) down; None for tiles of one row, where they are launch arguments.
        columns: (kernel, stride, dilation) across.
        tile: output pixels of a thread, (rows, columns).
    """

    rows: Steps | None
    columns: Steps
    tile: tuple[int, int]

    @property
    def min_blocks(self) -> int:
        rows, most = (1, 1, 1), HEAVY
        if self.rows is not None:
            rows, most = self.rows, HEAVY if self.tile == (1, 1) else HEAVY_UNROLLED
        pixels = len(seen(self.tile[0], rows)) * len(seen(self.tile[1], self.columns, self.spacing))
        numbers = self.width * (pixels + rows[0] * self.columns[0] + prod(self.tile))
        return RESIDENT if numbers <= most else RESIDENT_HEAVY

    @property
    def leaves_out(self) -> bool:
        return self.rows is None

    @property
    def spacing(self) -> int:
        """Columns from one output of a tile to the next."""
        return spacing(self.columns) if self.tile[1] > 1 else 1

    def write(self, code: Code, *arguments: Any) -> None:
        kernel = DepthwiseKernel(self, code, *arguments)
        me = kernel.part(self.thread(code))
        code.await_launches()
        with code.when(me.exists):
            kernel.begin(me)
            y, x = me.y * self.tile[0], first_of(code, me.x, self.tile[1], self.spacing)
            sums = self.results(kernel, y, x)
            for (i, j), results in zip(product(*map(range, self.tile)), sums, strict=True):
                row, column = y + i, x + j * self.spacing
                with code.when((row < kernel.sizes.rows) & (column < kernel.sizes.columns)):
                    kernel.store(row, column, results)

    def results(self, kernel: DepthwiseKernel, y: Value, x: Value) -> list[Sums]:
        """The sums of the tile whose first output pixel is (y, x), row by row."""
        row = self._row(kernel, x)
        return self._walked(kernel, row, y) if self.rows is None else self._unrolled(kernel, row, y, self.rows)

    def _unrolled(self, kernel: DepthwiseKernel, row: Row, y: Value, steps: Steps) -> list[Sums]:
        """The sums of all pixels of the tile; all taps are unrolled."""
        code, taps = kernel.code, steps[0] * self.columns[0]
        top = y * steps[1] - kernel.axes[0].padding
        sums: list[list[Sums]] = [[kernel.bias(taps)] * self.tile[1] for _ in range(self.tile[0])]
        weights = cache(lambda number: row.weights(number * self.columns[0]))
        for position, users in seen(self.tile[0], steps):
            pixels = row.pixels(code.within(top + position, kernel.axes[0].size), kernel.row(top + position))
            for i, number in users:
                sums[i] = row.add(pixels, weights(number), sums[i])
        return [values for line in sums for values in line]

    def _walked(self, kernel: DepthwiseKernel, row: Row, y: Value) -> list[Sums]:
        """The sums of the tile's only row: a loop over the window's rows that are inside the image."""
        code, rows = kernel.code, kernel.axes[0].span(kernel.code, y)
        bias = kernel.bias(kernel.axes[0].kernel * self.columns[0])
        with code.carried(rows.count, bias * self.tile[1]) as (number, values, following):
            pixels = row.pixels(code.boolean(True), kernel.row(rows.start + number * rows.step))
            weights = row.weights((rows.first + number) * self.columns[0])
            sums = [values[at : at + self.width] for at in range(0, len(values), self.width)]
            following[:] = [value for results in row.add(pixels, weights, sums) for value in results]
        return [following[at : at + self.width] for at in range(0, len(following), self.width)]

    def _row(self, kernel: DepthwiseKernel, x: Value) -> Row:
        left = x * self.columns[1] - kernel.axes[1].padding
        columns = seen(self.tile[1], self.columns, self.spacing)
        inside = [kernel.code.within(left + column, kernel.axes[1].size) for column, _ in columns]
        offsets = [(left + column) * kernel.sizes.pitch for column, _ in columns]
        return Row(kernel, self.columns[0], inside, offsets, [users for _, users in columns])


@dataclass(frozen=True, slots=True)
class Row:
    """The part of one row of data that is under a tile's windows.

    Attributes:
        taps: number of taps in a row of the window.
        inside, offsets: for each column, whether it is in the image, and its offset in the row, in elements.
        users: for each column, the pairs (output, tap) that use it.
    """

    kernel: DepthwiseKernel
    taps: int
    inside: list[Value]
    offsets: list[Value]
    users: list[list[tuple[int, int]]]

    def pixels(self, inside: Value, start: Value) -> list[list[Value]]:
        """The data of every column of a row."""
        columns = zip(self.inside, self.offsets, strict=True)
        return [self.kernel.pixel(inside & within, start + offset) for within, offset in columns]

    def weights(self, first: Value | int) -> list[list[Value]]:
        """The weights of a row of taps, from tap number `first` on."""
        return [self.kernel.tap(first + at) for at in range(self.taps)]

    def add(self, pixels: Sequence[Sums], weights: Sequence[Sums], sums: Sequence[Sums]) -> list[Sums]:
        """The sums of a row of outputs after one more row of taps."""
        added = list(sums)
        for pixel, users in zip(pixels, self.users, strict=True):
            for output, tap in users:
                products = zip(pixel, weights[tap], added[output], strict=True)
                added[output] = [self.kernel.product(*three) for three in products]
        return added


def seen(outputs: int, steps: Steps, apart: int = 1) -> list[tuple[int, list[tuple[int, int]]]]:
    """The positions along an axis under the windows of some outputs, `apart` from one to the next, each with the pairs
    (output, tap) that use it."""
    kernel, stride, dilation = steps
    users: dict[int, list[tuple[int, int]]] = {}
    for output, tap in product(range(outputs), range(kernel)):
        users.setdefault(output * apart * stride + tap * dilation, []).append((output, tap))
    return sorted(users.items())


@cache
def positions(outputs: int, steps: Steps, apart: int) -> int:
    """Number of positions that `seen` has."""
    return len(seen(outputs, steps, apart))


def spacing(steps: Steps) -> int:
    """The distance between outputs along an axis whose windows share data: the dilation, if the stride is 1."""
    _, stride, dilation = steps
    return dilation if stride == 1 else 1


def first_of(code: Code, tile: Value, outputs: int, apart: int) -> Value:
    """The first output of a tile along an axis, where `apart` tiles cover each stretch of `apart * outputs`."""
    if apart == 1:
        return tile * outputs
    stretch = tile // apart
    return stretch * (apart * (outputs - 1)) + tile


@dataclass(frozen=True, eq=False)
class DepthwiseWalk(WindowWalk, DepthwiseTemplate):
    """A window whose size is a launch argument.

    Attributes:
        slices: number of threads that share each window.
    """

    slices: int
    tile: ClassVar[tuple[int, int]] = (1, 1)
    spacing: ClassVar[int] = 1

    @property
    def min_blocks(self) -> int:
        return RESIDENT * LEAST_THREADS // self.threads

    def write(self, code: Code, *arguments: Any) -> None:
        self.write_walk(DepthwiseKernel(self, code, *arguments))
