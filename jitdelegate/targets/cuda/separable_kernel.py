"""A depthwise convolution and the 1x1 convolution after it as one kernel: tiles of data are computed, not copied.

A block has a tile of pixels. For each tile of K, its threads compute the depthwise results of some channels to shared
memory, where a tile of the 1x1 convolution's data would be, while its weights are copied; then these are multiplied.
Blocks with other output channels of the same pixels compute the same depthwise results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from jitdelegate.targets.cuda.contract_kernel import FLOAT, ContractArguments, ContractSizes
from jitdelegate.targets.cuda.depthwise_kernel import DepthwiseKernel, DepthwiseSizes, DepthwiseTile
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import Element, pack
from jitdelegate.targets.cuda.ffma_kernel import Ffma, FfmaKernel
from jitdelegate.targets.cuda.mma_kernel import Mma, MmaKernel
from jitdelegate.targets.cuda.phases import PhaseSizes
from jitdelegate.targets.cuda.pixel_tiles import PixelTiles, TilePixels
from jitdelegate.targets.cuda.sizes import Kind
from jitdelegate.targets.cuda.tensor_core import CHUNK, Swizzle, await_copies, commit_copies
from jitdelegate.targets.cuda.window import WindowAxis


class DepthwiseArguments(NamedTuple):
    """What a separable kernel passes to its depthwise part.

    Attributes:
        bias: one pointer, or none if it follows the weights.
        extra: epilogue operands.
    """

    data: Value
    weights: Value
    bias: Sequence[Value]
    extra: Sequence[Value]
    rows: WindowAxis
    columns: WindowAxis
    sizes: DepthwiseSizes


def parameters(template: SeparableMma | SeparableFfma, *sizes: Kind) -> tuple[Kind, ...]:
    """The kinds of a separable kernel's parameters: output, data, weights, bias, depthwise weights and bias, operands
    of both epilogues, sizes, tiles, window."""
    window = template.window
    bias = ("pointer",) * (window.weights is not Element.FLOAT32)
    operands = template.epilogue.parameters, window.epilogue.parameters
    return *("pointer",) * 5, bias, *operands, *sizes, PixelTiles, WindowAxis, WindowAxis, DepthwiseSizes


CONSTANTS = frozenset({2, 3, 4, 5})
"""The numbers of those that are constants."""


class DepthwiseLoader:
    """Computes a thread's part of each tile of data: the depthwise results of neighbouring pixels of a row, for as many
    channels as `window` computes at a time.

    Args:
        pixels: the block's pixels.
        units: groups of channels in a tile of K.
        place: (row, byte) -> the offset of a row's byte from the tile's start, in bytes.
    """

    def __init__(
        self,
        code: Code,
        window: DepthwiseTile,
        arguments: DepthwiseArguments,
        pixels: TilePixels,
        thread: Value,
        units: int,
        place: Callable[[Value, Value], Value],
    ) -> None:
        data, weights, bias, extra, rows, columns, sizes = arguments
        self.depthwise = DepthwiseKernel(window, code, data, data, weights, bias, (), extra, None, rows, columns, sizes)
        self.code, self.window, self.pixels, self.units, self.place = code, window, pixels, units, place
        self.row, self.unit = thread // units * window.tile[1], thread % units

    def compute(self, tile: Value, slot: Value) -> None:
        """Stores this thread's part of a tile of K to the shared address `slot`."""
        self.locate(tile)
        self.store(slot)

    def locate(self, tile: Value) -> None:
        """Sets which channels of a tile of K this thread computes: the first ones for channels past the last one."""
        channel = (tile * self.units + self.unit) * self.window.width
        self.exists = channel < self.depthwise.channels
        self.depthwise.locate(self.pixels.image, self.code.select(self.exists, channel, 0))

    def window_place(self) -> tuple[Value, Value]:
        """(y, x) of this thread's first pixel, as the window counts them."""
        return self.pixels.place(self.row)

    def store(self, slot: Value) -> None:
        """Stores the results at the shared address `slot`.

        Pixels past the image are computed as others are, and the kernel does not store what becomes of them. Channels
        past the last one are zeros, since their weights are. No epilogue operand is read for either.
        """
        code, depthwise, window = self.code, self.depthwise, self.window
        y, x = self.pixels.place(self.row)
        first = self.unit * (window.width * window.target.nbytes)
        for at, sums in enumerate(window.results(depthwise, *self.window_place())):
            real, pixel = self.pixels.pixel(y, x + self.pixels.tiles.apart_x.size * at)
            results = depthwise.output.applied(sums, code.select(real, pixel, 0), depthwise.channel)
            values = pack(code, window.target, results) if window.target.is_narrow_float else results
            chunk = [code.select(self.exists, value, 0) for value in values]
            code.store(chunk, slot, self.place(self.row + at, first))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SeparableMma(Mma):
    """The 1x1 convolution on tensor cores.

    Attributes:
        window: how a thread computes depthwise results.
    """

    family: ClassVar[str] = "separable_mma"
    constants: ClassVar[frozenset[int]] = CONSTANTS
    window: DepthwiseTile

    @property
    def is_asynchronous(self) -> bool:
        """Whether weights are copied by cp.async."""
        return self.has_async_copy and not self.converts_weights

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return parameters(self, ContractSizes, PhaseSizes)

    def write(self, code: Code, *arguments: Any) -> None:
        """The arguments are those of `parameters`; weights is [tiles of N, tiles of K]."""
        SeparableMmaKernel(code, self, *arguments).write()


class SeparableMmaKernel(MmaKernel):
    """Writes the kernel of one template."""

    template: SeparableMma

    def __init__(
        self,
        code: Code,
        template: SeparableMma,
        output: Value,
        data: Value,
        weights: Value,
        bias: Value,
        taps: Value,
        inner_bias: Sequence[Value],
        extra: Sequence[Value],
        inner_extra: Sequence[Value],
        sizes: ContractSizes,
        phase: PhaseSizes,
        tiles: PixelTiles,
        *window: Any,
    ) -> None:
        self.block = TilePixels.of(code, tiles, code.special("ctaid.x"), template.tile.rows)
        self.passed = DepthwiseArguments(data, taps, inner_bias, inner_extra, *window)
        super().__init__(
            code, template, ContractArguments(output, data, weights, bias, data, extra), sizes, phase, None
        )

    def find_data(self) -> None:
        template = self.template
        self.depthwise = DepthwiseLoader(
            self.code,
            template.window,
            self.passed,
            self.block,
            self.thread,
            self.tile.row_bytes // template.unit_bytes,
            self.place_of,
        )

    def place_of(self, row: Value, byte: Value) -> Value:
        """The offset of a row's byte from the tile's start, in bytes."""
        return Swizzle(self.tile.row_bytes).place(row, byte // CHUNK) + byte % CHUNK

    def pixel(self, row: Value) -> tuple[Value, Value]:
        return self.block.pixel(*self.block.place(row))

    def multiply(self) -> list[Value]:
        return multiplied(self)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SeparableFfma(Ffma):
    """The 1x1 convolution by float32 multiply-adds.

    Attributes:
        window: how a thread computes depthwise results.
    """

    family: ClassVar[str] = "separable_ffma"
    constants: ClassVar[frozenset[int]] = CONSTANTS
    window: DepthwiseTile

    @property
    def min_blocks(self) -> int:
        return 1  # a thread has depthwise sums too

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return parameters(self, ContractSizes, PhaseSizes)

    def write(self, code: Code, *arguments: Any) -> None:
        """The arguments are those of `parameters`; weights is [tiles of N, tiles of K, steps, columns]."""
        SeparableFfmaKernel(code, self, *arguments).write()


class SeparableFfmaKernel(FfmaKernel):
    """Writes the kernel of one template."""

    template: SeparableFfma

    def __init__(
        self,
        code: Code,
        template: SeparableFfma,
        output: Value,
        data: Value,
        weights: Value,
        bias: Value,
        taps: Value,
        inner_bias: Sequence[Value],
        extra: Sequence[Value],
        inner_extra: Sequence[Value],
        sizes: ContractSizes,
        phase: PhaseSizes,
        tiles: PixelTiles,
        *window: Any,
    ) -> None:
        self.block = TilePixels.of(code, tiles, code.special("ctaid.x"), template.tile.rows)
        self.passed = DepthwiseArguments(data, taps, inner_bias, inner_extra, *window)
        arguments = ContractArguments(output, data, weights, bias, data, extra)
        super().__init__(code, template, arguments, sizes, phase)

    def find_data(self) -> None:
        template, tile = self.template, self.tile
        self.depthwise = DepthwiseLoader(
            self.code,
            template.window,
            self.passed,
            self.block,
            self.thread,
            tile.steps // template.width,
            lambda row, byte: row * (tile.row_pitch * FLOAT) + byte,
        )

    def pixel(self, row: Value) -> tuple[Value, Value]:
        return self.block.pixel(*self.block.place(row))

    def multiply(self) -> list[Value]:
        return multiplied(self)


def multiplied(kernel: SeparableMmaKernel | SeparableFfmaKernel) -> list[Value]:
    """All sums. In each turn, a tile of data is computed and multiplied, while the weights of the next one arrive in
    the other of two slots."""
    code, weights, is_asynchronous = kernel.code, kernel.weights, kernel.template.is_asynchronous

    def copy(tile: Value, slot: Value) -> None:
        weights.copy(tile, kernel.weights_slot(slot))
        commit_copies(code)

    zero = code.integer(0)
    if is_asynchronous:
        copy(zero, kernel.shared)
    code.await_launches()
    with code.carried(kernel.tiles, [zero, *kernel.nothing()]) as (tile, now, following):
        slot, following[0] = kernel.shared + now[0], kernel.next_slot(now[0])
        if not is_asynchronous:
            weights.put(weights.fetch(tile), kernel.weights_slot(slot))
        kernel.depthwise.compute(tile, slot)
        if is_asynchronous:
            await_copies(code, 0)
        code.barrier()
        if is_asynchronous:
            with code.when(tile + 1 < kernel.tiles):
                copy(tile + 1, kernel.shared + following[0])
        following[1:] = kernel.accumulate(now[1:], slot)
    return following[1:]
