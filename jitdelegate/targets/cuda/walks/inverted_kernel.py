"""An inverted residual as one kernel: a 1x1 convolution, a depthwise convolution of its results, and the 1x1
convolution of those.

A block has a tile of pixels. It copies all data under their windows to shared memory once. In each turn it computes
some channels of the first convolution for all these pixels, of these the depthwise results of its own pixels, and adds
their products to the sums of the last convolution, while the weights of the next turn arrive. Neighbouring blocks
compute the channels of the pixels between them twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import divisor
from jitdelegate.targets.cuda.code.element import Element, load, pack
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.sizes import Divisor, Kind
from jitdelegate.targets.cuda.multiply.tensor_core import (
    CHUNK,
    STEP,
    Swizzle,
    WarpTile,
    await_copies,
    commit_copies,
    copy_async,
)
from jitdelegate.targets.cuda.sources.tile_loader import WeightLoader
from jitdelegate.targets.cuda.walks.contract_kernel import FLOAT
from jitdelegate.targets.cuda.walks.depthwise_kernel import DepthwiseKernel
from jitdelegate.targets.cuda.walks.separable_kernel import (
    CONSTANTS,
    DepthwiseLoader,
    SeparableArguments,
    SeparableMma,
    SeparableMmaKernel,
    parameters,
)
from jitdelegate.targets.cuda.walks.window import WindowAxis

ROWS = 16
"""Rows of a fragment."""
OWN_COLUMNS = 16
"""Channels of the first convolution that a warp computes in a turn."""
NARROW_ROW, USUAL_ROW = 64, 128
"""Bytes of K in a row of the first convolution's tiles; longer rows are several tiles."""
EVERYWHERE = 1 << 20
"""Rows and columns of an image without borders: a tile's pixels in shared memory, which has zeros outside the image."""


class ExpandArguments(NamedTuple):
    """What an inverted kernel passes to its first convolution.

    Attributes:
        weights: [tiles of N, tiles of K], as `tiled` has them.
        bias: padded with zeros to whole tiles.
        depth: channels of the data.
    """

    weights: Value
    bias: Value
    depth: Value


LAST = max(CONSTANTS) + 1
"""Number of the first constant that is a parameter of the first convolution."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class InvertedMma(SeparableMma):
    """The last convolution's template, with the first one; `window` counts pixels of the block's tile.

    Attributes:
        down: (kernel, stride) of the window along rows, over which threads loop: data in shared memory is near.
        sides: rows and columns of a block's tile of pixels.
        steps: K steps of the first convolution.
        inner: its epilogue.
    """

    family: ClassVar[str] = "inverted_mma"
    constants: ClassVar[frozenset[int]] = CONSTANTS | {LAST, LAST + 1}
    down: tuple[int, int]
    sides: tuple[int, int]
    steps: int
    inner: Epilogue

    @property
    def seen(self) -> tuple[int, int]:
        """Rows and columns of pixels under the windows of a tile."""
        (height, down), (width, across, _) = self.down, self.window.columns
        return (self.sides[0] - 1) * down + height, (self.sides[1] - 1) * across + width

    @property
    def seen_rows(self) -> int:
        """Pixels under the windows of a tile, as whole fragments."""
        down, across = self.seen
        return -(-down * across // ROWS) * ROWS

    @property
    def k_row(self) -> int:
        """Bytes of K in a row of the first convolution's tiles."""
        return NARROW_ROW if self.steps * STEP <= NARROW_ROW else USUAL_ROW

    @property
    def k_tiles(self) -> int:
        """Tiles of K of the first convolution."""
        return -(-self.steps * STEP // self.k_row)

    @property
    def taps_bytes(self) -> int:
        """Bytes of the depthwise weights of a turn."""
        return self.down[0] * self.window.columns[0] * self.tile.row_bytes

    @property
    def expand_bytes(self) -> int:
        """Bytes of the first convolution's weights of a turn."""
        return self.k_tiles * self.channels * self.k_row

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        tile = self.tile
        turns = tile.stages * (tile.stage_bytes + self.taps_bytes + self.expand_bytes)
        pixels = self.seen_rows * (self.k_tiles * self.k_row + tile.row_bytes)
        return max(turns + pixels, tile.rows * tile.columns * FLOAT * tile.warps[2])

    @property
    def parameters(self) -> tuple[Kind, ...]:
        own = parameters(self)
        return *own[:LAST], "pointer", "pointer", *own[LAST:], "int32"

    def write(self, code: Code, *arguments: Any) -> None:
        """The arguments are those of `SeparableArguments`, with those of `ExpandArguments` among them."""
        own, expand = (*arguments[:LAST], *arguments[LAST + 2 : -1]), (*arguments[LAST : LAST + 2], arguments[-1])
        InvertedMmaKernel(code, self, SeparableArguments(*own), ExpandArguments(*expand)).write()


class TileDepthwise(DepthwiseKernel):
    """Depthwise convolution of pixels in shared memory, with weights there too.

    Args:
        unit: this thread's group of channels.
    """

    def __init__(self, kernel: InvertedMmaKernel, unit: Value) -> None:
        code, template, arguments = kernel.code, kernel.template, kernel.separable
        super().__init__(template.window, code, *arguments.of_depthwise)
        one = Divisor(*map(code.integer, divisor(1)))
        self.axes = tuple(  # type: ignore[assignment]
            WindowAxis(code.integer(EVERYWHERE), axis.kernel, axis.stride, code.integer(0), one)
            for axis in (arguments.rows, arguments.columns)
        )
        self.sizes = self.sizes._replace(pitch=code.integer(1))
        self.pixels, self.unit, self.across = kernel.expanded, unit, template.seen[1]
        self.swizzle, self.row_bytes = Swizzle(template.tile.row_bytes), template.tile.row_bytes
        self.element = template.operand.element

    def begin_turn(self, taps: Value) -> None:
        """Takes the weights at a shared address, and loads the bias."""
        self.taps, self.loaded = taps, super().bias(0)

    def row(self, y: Value) -> Value:
        return y * self.across

    def pixel(self, inside: Value, index: Value) -> list[Value]:
        place = self.pixels + self.swizzle.place(index, self.unit)
        return load(self.code, self.element, place, self.code.integer(0), self.template.width)

    def tap(self, number: Value | int) -> list[Value]:
        place = self.taps + self.code.like(number, self.unit) * self.row_bytes + self.unit * CHUNK
        return load(self.code, self.element, place, self.code.integer(0), self.template.width)

    def bias(self, taps: Value | int) -> list[Value]:
        return self.loaded


class TileLoader(DepthwiseLoader):
    """Computes depthwise results from pixels in shared memory."""

    def __init__(self, kernel: InvertedMmaKernel) -> None:
        super().__init__(kernel)
        self.depthwise = self.tile = TileDepthwise(kernel, self.unit)

    def window_place(self) -> tuple[Value, Value]:
        down = self.row >> self.pixels.tiles.shift
        return down, self.row - (down << self.pixels.tiles.shift)


class InvertedMmaKernel(SeparableMmaKernel):
    """Writes the kernel of one template."""

    template: InvertedMma

    def __init__(
        self, code: Code, template: InvertedMma, arguments: SeparableArguments, expand: ExpandArguments
    ) -> None:
        self.expand = expand
        super().__init__(code, template, arguments)

    def find_data(self) -> None:
        code, template, tile = self.code, self.template, self.tile
        self.taps = self.shared + tile.stages * tile.stage_bytes
        self.first_weights = self.taps + tile.stages * template.taps_bytes
        self.source = self.first_weights + tile.stages * template.expand_bytes
        self.expanded = self.source + template.seen_rows * template.k_tiles * template.k_row
        self.depthwise = self.computed = TileLoader(self)
        self.expand_loader = WeightLoader(
            code, self.expand.weights, code.integer(0), self.thread, tile.threads, template.expand_bytes
        )
        self.warp, self.lane = self.thread >> 5, self.thread & 31

    def multiply(self) -> list[Value]:
        code, template = self.code, self.template
        zero = code.integer(0)
        self._copy_turn(zero, zero)
        code.await_launches()
        self._copy_source()
        commit_copies(code)
        rows = [self._inside(row) for row in self._fragment_rows()]
        with code.carried(self.tiles, [zero, *self.nothing()]) as (tile, now, following):
            number, following[0] = now[0], now[0] ^ 1
            slot = self.shared + number * self.tile.stage_bytes
            columns = self._bias(tile)
            self.computed.locate(tile)
            self.computed.tile.begin_turn(self.taps + number * template.taps_bytes)
            await_copies(code, 0)
            code.barrier()
            with code.when(tile + 1 < self.tiles):
                self._copy_turn(tile + 1, following[0])
            self._expand(self.first_weights + number * template.expand_bytes, columns, rows)
            code.barrier()
            self.computed.store(slot)
            code.barrier()
            following[1:] = self.accumulate(now[1:], slot)
        return following[1:]

    # copies

    def _copy_turn(self, tile: Value, number: Value) -> None:
        """Begins to copy the weights of a turn to slot `number`."""
        template, tile_bytes = self.template, self.tile.stage_bytes
        self.weights.copy(tile, self.weights_slot(self.shared + number * tile_bytes))
        self.expand_loader.copy(tile, self.first_weights + number * template.expand_bytes)
        self._copy_taps(tile, self.taps + number * template.taps_bytes)
        commit_copies(self.code)

    def _copy_taps(self, tile: Value, to: Value) -> None:
        """Begins to copy the depthwise weights of a turn; zeros past the last channel."""
        code, template = self.code, self.template
        each, channels = template.tile.row_bytes // CHUNK, self.computed.depthwise.channels
        for start in range(0, template.taps_bytes // CHUNK, self.tile.threads):
            index = self.thread + start
            tap, unit = index // each, index % each
            channel = tile * template.channels + unit * template.window.width
            inside = channel < channels
            source = code.advanced(
                self.separable.taps, code.select(inside, tap * channels + channel, 0), template.window.weights.nbytes
            )
            with code.when(index < template.taps_bytes // CHUNK):
                copy_async(code, to + index * CHUNK, source, CHUNK, 0, inside)

    def _copy_source(self) -> None:
        """Begins to copy the data under the tile's windows; zeros outside the image and past the last channel."""
        code, template = self.code, self.template
        units, width = template.k_tiles * template.k_row // CHUNK, CHUNK // template.source.nbytes
        total, swizzle = template.seen_rows * units, Swizzle(template.k_row)
        per_tile = template.k_row // CHUNK
        with code.loop(total, start=self.thread, step=self.tile.threads) as index:
            row, unit = index // units, index % units
            inside, pixel = self._source_pixel(row)
            channel = unit * width
            inside = inside & (channel < self.expand.depth)
            element = code.select(inside, pixel * self.expand.depth + channel, 0)
            place = unit // per_tile * (template.seen_rows * template.k_row) + swizzle.place(row, unit % per_tile)
            source = code.advanced(self.separable.data, element, template.source.nbytes)
            copy_async(code, self.source + place, source, CHUNK, 0, inside)

    def _source_pixel(self, row: Value) -> tuple[Value, Value]:
        """(whether the pixel under row `row` of the tile's data is inside the image, its number)."""
        code, (down, across) = self.code, self.template.seen
        y, x = row // across, row % across
        tiles, rows, columns = self.block.tiles, self.separable.rows, self.separable.columns
        y = self.block.y * rows.stride - rows.padding + y * tiles.apart_y.size
        x = self.block.x * columns.stride - columns.padding + x * tiles.apart_x.size
        inside = code.within(y, rows.size) & code.within(x, columns.size) & (row < down * across)
        return inside, (self.block.image * rows.size + y) * columns.size + x

    # the first convolution

    def _fragment_rows(self) -> list[Value]:
        """The rows of the tile's data of which this thread has sums."""
        return [(self.lane >> 2) + at for at in range(0, self.template.seen_rows, ROWS // 2)]

    def _inside(self, row: Value) -> Value:
        return self._source_pixel(row)[0]

    def _bias(self, tile: Value) -> list[Value]:
        """The bias of the channels of which this thread has sums: two of each eight."""
        first = tile * self.template.channels + self.warp * OWN_COLUMNS + ((self.lane & 3) << 1)
        places = [first + at for at in range(0, OWN_COLUMNS, 8)]
        return [one for place in places for one in load_run(self.code, Element.FLOAT32, self.expand.bias, place, 2)]

    def _expand(self, weights: Value, bias: Sequence[Value], inside: Sequence[Value]) -> None:
        """Stores the results of a turn's channels, for all pixels of the tile's data; zeros outside the image."""
        code, template = self.code, self.template
        rows, k_row = template.seen_rows, template.k_row
        sums = [code.real(0.0)] * (rows * OWN_COLUMNS // 32)
        for number in range(template.k_tiles):
            steps = min(template.steps - number * (k_row // STEP), k_row // STEP)
            part = WarpTile(template.operand, rows, OWN_COLUMNS, steps, k_row, template.has_async_copy)
            zero = code.integer(0)
            starts = part.left_start(self.lane, zero, zero), part.right_start(self.lane, self.warp * OWN_COLUMNS, zero)
            left, right = number * rows * k_row, number * template.channels * k_row
            sums = part.accumulate(code, sums, self.source + left, weights + right, starts)
        swizzle, none = Swizzle(template.tile.row_bytes), code.integer(0)
        for at in range(0, len(sums), 2):
            fragment, half = at // 4, at % 4 // 2
            place, right = 2 * (fragment // 2) + half, fragment % 2
            own = [a + b for a, b in zip(sums[at : at + 2], bias[2 * right : 2 * right + 2], strict=True)]
            results = template.inner.apply(code, own, none, none, ())
            (word,) = pack(code, template.operand.element, results)
            row = (self.lane >> 2) + place * (ROWS // 2)
            chunk = self.warp * (OWN_COLUMNS // 8) + right
            to = self.expanded + swizzle.place(row, chunk) + ((self.lane & 3) << 2)
            code.store([code.select(inside[place], word, 0)], to, 0)
