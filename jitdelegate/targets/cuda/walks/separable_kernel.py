"""A depthwise convolution and the 1x1 convolution after it as one kernel: tiles of data are computed, not copied.

A block has a tile of pixels. For each tile of K, its threads compute the depthwise results of some channels to shared
memory, where a tile of the 1x1 convolution's data would be, while its weights are copied; then these are multiplied.
Blocks with other output channels of the same pixels compute the same depthwise results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import stored
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.multiply.tensor_core import await_copies, commit_copies
from jitdelegate.targets.cuda.sources.pixel_tiles import PixelTiles, TilePixels
from jitdelegate.targets.cuda.walks.contract_kernel import CONSTANTS, ContractArguments, ContractKernel
from jitdelegate.targets.cuda.walks.depthwise_kernel import DepthwiseKernel, DepthwiseTile
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma, FfmaKernel
from jitdelegate.targets.cuda.walks.mma_kernel import Mma, MmaKernel


def kinds(window: DepthwiseTile) -> tuple[Kind, ...]:
    """The kinds of what a separable kernel takes besides the arguments of a contraction: those of the depthwise
    convolution, with tiles of pixels instead of parts of the output."""
    return PixelTiles, *(kind for kind in window.parameters[2:] if kind is not FourAxes)


WITH_DEPTHWISE = CONSTANTS | {11, 12}
"""The numbers of the parameters that are constants: also the weights and the bias of the depthwise convolution."""

SIZES = 3
"""The records at the end of what a depthwise convolution takes."""


class DepthwiseLoader:
    """Computes a thread's part of each tile of data: the depthwise results of neighbouring pixels of a row, for as many
    channels as the template's window computes at a time."""

    def __init__(self, kernel: SeparableKernel) -> None:
        self.code, self.window, self.layout = kernel.code, kernel.template.window, kernel.template.layout
        self.pixels, self.units = kernel.block, kernel.template.steps // self.window.width
        data, (_, weights, bias, halo, extra, *more) = kernel.arguments.data, kernel.arguments.more
        pointers = data, data, weights, bias, halo, extra  # it stores nothing
        self.depthwise = DepthwiseKernel(self.window, self.code, *pointers, None, *more[:SIZES])
        self.row, self.unit = kernel.thread // self.units * self.window.tile[1], kernel.thread % self.units

    def compute(self, tile: Value, slot: Value) -> None:
        """Stores this thread's part of a tile of K to the shared address `slot`.

        Pixels past the image are computed as others are, and the kernel does not store what becomes of them. Channels
        past the last one are zeros, since their weights are. No epilogue operand is read for either.
        """
        code, depthwise, window = self.code, self.depthwise, self.window
        channel = (tile * self.units + self.unit) * window.width
        exists = channel < depthwise.channels
        depthwise.locate(self.pixels.image, code.select(exists, channel, 0))
        y, x = self.pixels.position(self.row)
        first = self.unit * (window.width * window.target.nbytes)
        for at, sums in enumerate(window.results(depthwise, y, x)):
            real, pixel = self.pixels.pixel(y, x + self.pixels.tiles.apart_x.size * at)
            results = depthwise.output.applied(sums, code.select(real, pixel, 0), depthwise.channel)
            chunk = [code.select(exists, value, 0) for value in stored(code, window.target, results)]
            code.store(chunk, slot, self.layout.byte_offset(self.row + at, first))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SeparableMma(Mma):
    """The 1x1 convolution on tensor cores.

    Attributes:
        window: how a thread computes depthwise results.
    """

    family: ClassVar[str] = "separable_mma"
    constants: ClassVar[frozenset[int]] = WITH_DEPTHWISE
    window: DepthwiseTile

    @property
    def is_asynchronous(self) -> bool:
        """Whether weights are copied by cp.async."""
        return self.has_async_copy and not self.converts_weights

    @property
    def more(self) -> tuple[Kind, ...]:
        return *kinds(self.window), *("int32",) * self.has_filter_zero

    def write(self, code: Code, *arguments: Any) -> None:
        SeparableMmaKernel(code, self, ContractArguments.of(arguments)).write()


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SeparableFfma(Ffma):
    """The 1x1 convolution by float32 multiply-adds.

    Attributes:
        window: how a thread computes depthwise results.
    """

    family: ClassVar[str] = "separable_ffma"
    constants: ClassVar[frozenset[int]] = WITH_DEPTHWISE
    min_blocks: ClassVar[int] = 1  # a thread has depthwise sums too
    window: DepthwiseTile

    @property
    def more(self) -> tuple[Kind, ...]:
        return kinds(self.window)

    def write(self, code: Code, *arguments: Any) -> None:
        SeparableFfmaKernel(code, self, ContractArguments.of(arguments)).write()


class SeparableKernel(ContractKernel):
    """Writes the kernel of one template, before `MmaKernel` or `FfmaKernel` in the order of base classes: where these
    copy data, it computes data."""

    def __init__(self, code: Code, template: SeparableMma | SeparableFfma, arguments: ContractArguments) -> None:
        self.block = TilePixels.of(code, arguments.more[0], code.special("ctaid.x"), template.tile.rows)
        super().__init__(code, template, arguments)

    def find_data(self) -> None:
        self.depthwise = DepthwiseLoader(self)

    def pixel(self, row: Value) -> tuple[Value, Value]:
        return self.block.pixel(*self.block.position(row))

    def all_sums(self) -> list[Value]:
        """The sums of all tiles. In each turn, a tile of data is computed and multiplied, while the weights of the next
        one arrive in the other of two slots."""
        code, weights, is_asynchronous = self.code, self.weights, self.template.is_asynchronous

        def copy(tile: Value, slot: Value) -> None:
            weights.copy(tile, slot)
            commit_copies(code)

        zero = code.integer(0)
        if is_asynchronous:
            copy(zero, self.shared)
        code.await_launches()
        with code.carried(self.tiles, [zero, *self.multiply.nothing()]) as (tile, now, following):
            slot, following[0] = self.shared + now[0], self.next_slot(now[0])
            if not is_asynchronous:
                weights.put(weights.fetch(tile), slot)
            self.depthwise.compute(tile, slot)
            if is_asynchronous:
                await_copies(code, 0)
            code.barrier()
            if is_asynchronous:
                with code.when(tile + 1 < self.tiles):
                    copy(tile + 1, self.shared + following[0])
            following[1:] = self.accumulate(now[1:], slot)
        return following[1:]


class SeparableMmaKernel(SeparableKernel, MmaKernel):
    """The kernel on tensor cores."""

    template: SeparableMma


class SeparableFfmaKernel(SeparableKernel, FfmaKernel):
    """The kernel with float32 multiply-adds."""

    template: SeparableFfma
