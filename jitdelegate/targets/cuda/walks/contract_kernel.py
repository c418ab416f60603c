"""Shared parts of the contraction kernels: the ring of tiles in shared memory, and storing sums to the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jitdelegate.targets.cuda.code.device_code import Code, Value, register
from jitdelegate.targets.cuda.code.element import Element, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.output import Output, added
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.multiply.multiply import Multiply
from jitdelegate.targets.cuda.multiply.tensor_core import Padded, Swizzle, await_copies, commit_copies
from jitdelegate.targets.cuda.sources.phases import PhaseSizes, phase_of
from jitdelegate.targets.cuda.sources.pixel_gather import PixelGather, PixelRow, TableEntry, TargetPixels
from jitdelegate.targets.cuda.sources.tile_loader import Chunks, DataLoader, WeightLoader

FLOAT = QUAD = 4


class ContractSizes(NamedTuple):
    """Sizes of a launch for all phases.

    Attributes:
        blocks: blocks along z per group: parts of K, or phases.
        depth, outputs: data channels and output channels of a group.
        pitch: elements between output pixels; channels of a pixel where the launch stores parts of sums.
    """

    blocks: Number
    depth: Number
    outputs: Number
    pitch: Number


class ContractArguments(NamedTuple):
    """The arguments of a kernel, in the order of its parameters.

    Attributes:
        output: the tensor, or sums [parts of K, pixels, channels] for `Combine`.
        weights: tiles in the order of shared memory, [phases, groups, tiles of N, tiles of K].
        bias: [phases, groups, N padded to whole tiles], of the type of the sums.
        table: read by `PixelGather`.
        halo: 16 bytes of the value of pixels outside the image; none for zeros.
        phases: int32[phases, RECORD] for a scattered problem; none for others.
        extra: epilogue operands.
        phase: the only phase of any other problem.
        more: what the template takes besides.
    """

    output: Value
    data: Value
    weights: Value
    bias: Value
    table: Value
    halo: Sequence[Value]
    phases: Sequence[Value]
    extra: Sequence[Value]
    sizes: ContractSizes
    phase: Sequence[PhaseSizes]
    more: Sequence[Any]

    @staticmethod
    def of(arguments: Sequence[Any]) -> ContractArguments:
        """The record of a kernel's arguments."""
        count = len(ContractArguments._fields) - 1
        return ContractArguments(*[*arguments[:count], arguments[count:]])


CONSTANTS = frozenset({2, 3, 4, 5, 6})
"""The numbers of those that are constants."""


@dataclass(frozen=True, eq=False)
class ContractTemplate(Template):
    """A product of pixels by channels.

    Attributes:
        source, output: element types of data and results.
        tile: the tile of a block.
        width: elements of a chunk of the table.
        run: neighbouring channels that a thread stores together.
        is_direct, is_scattered: as in `ConvProblem`.
        is_part: whether the kernel stores plain sums of a part of K, for `Combine`.
        weights: the element type of weights; beside floats, others than float32 are converted on the way to shared
            memory.
        cluster: number of blocks that share out K and add up their sums in shared memory.
    """

    awaits_launches: ClassVar[bool] = True
    constants: ClassVar[frozenset[int]] = CONSTANTS
    source: Element
    output: Element
    tile: Any
    width: int
    run: int
    is_direct: bool
    is_scattered: bool
    weights: Element
    epilogue: Epilogue
    is_part: bool = field(default=False, kw_only=True)
    cluster: int = field(default=1, kw_only=True)

    @property
    def sums(self) -> Element:
        """The type of the sums."""
        return Element.FLOAT32

    @property
    def converts_weights(self) -> bool:
        """Whether weights beside data of floats are narrower than float32 in memory."""
        return self.weights is not Element.FLOAT32 and self.sums is Element.FLOAT32

    @property
    def stored(self) -> Element:
        """The type of data and weights in shared memory."""
        return Element.FLOAT32

    @property
    def way(self) -> str:
        """How it multiplies, where a family has several ways."""
        return ""

    @property
    def halos(self) -> int:
        """Number of pointers to the value of pixels outside the image."""
        return 0

    @property
    def more(self) -> tuple[Kind, ...]:
        """The kinds of what it takes besides."""
        return ()

    @property
    def threads(self) -> int:
        return int(self.tile.threads)

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of K in a tile."""

    @property
    def stages(self) -> int:
        """Number of slots of the ring of tiles in shared memory."""
        return int(self.tile.stages)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the ring, or of the sums that later take its place."""
        sums = self.tile.slices * self.tile.rows * self.tile.columns * FLOAT
        return int(max(self.stages * self.tile.stage_bytes, sums))

    @property
    def parameters(self) -> tuple[Kind, ...]:
        halo, phases = ("pointer",) * self.halos, ("pointer",) * self.is_scattered
        phase = () if self.is_scattered else (PhaseSizes,)
        return *("pointer",) * 5, halo, phases, self.epilogue.parameters, ContractSizes, phase, *self.more

    @property
    def of_part(self) -> ContractTemplate:
        """The same template without epilogue: it stores sums of a part of K."""
        run = min(self.run, self.sums.widest)
        return replace(self, output=self.sums, run=run, epilogue=Epilogue(), is_part=True)

    def check(self, gpu: Gpu) -> None:
        """Checks that the GPU has what the kernel needs.

        Raises:
            CompileError: it has not.
        """

    @property
    @abstractmethod
    def combine_cycles(self) -> int:
        """Cycles of a second launch, which adds up parts of K where blocks form no clusters."""

    @abstractmethod
    def cycles(self, gpu: Gpu, parts: int, pixels: int, outputs: int, steps: int, groups: int) -> float:
        """Estimated cycles of all blocks of a problem, without the launch that adds up parts of K."""

    @property
    @abstractmethod
    def layout(self) -> Swizzle | Padded:
        """The layout of data in shared memory."""

    @abstractmethod
    def packed(self, matrices: np.ndarray) -> Iterable[np.ndarray]:
        """Weights, [groups, K, N], in the order of shared memory; the rows of K and N are whole tiles."""


class ContractKernel(ABC):
    """Writes a kernel whose blocks copy tiles of K to a ring of slots, data before weights, and multiply them.

    Attributes:
        multiply, slice: what this thread multiplies, and the number of its slice of K of each tile.
        group, part: this block's group of channels, and its part of K where blocks split K.
        target_pixels: where the pixels of a scattered phase lie in the output.
        skipped: tiles of K of the parts before this one.
        first: number of the block's first tile of K in the table.
        tiles: number of tiles of K that the block multiplies.
        finished: neighbouring channels that a thread finishes together.
    """

    group: Value
    part: Value
    data: DataLoader
    multiply: Multiply
    slice: Value
    finished: int

    def __init__(self, code: Code, template: Any, arguments: ContractArguments) -> None:
        sizes = arguments.sizes
        self.thread, z = code.special("tid.x"), code.special("ctaid.z")
        is_split = template.is_part or template.cluster > 1
        is_alone = not (is_split or template.is_scattered)
        self.group, self.part = (z, code.integer(0)) if is_alone else (z // sizes.blocks, z % sizes.blocks)
        self.target_pixels: TargetPixels | None = None
        if template.is_scattered:
            self.phase, self.target_pixels = phase_of(code, arguments.phases[0], self.part)
        else:
            self.phase = arguments.phase[0]
        self.code, self.template, self.arguments, self.sizes = code, template, arguments, sizes
        self.tile, self.sums, self.cluster = template.tile, template.sums, template.cluster
        self.pixels = self.phase.source.pixels
        self.panel = self.group * code.special("nctaid.y") + code.special("ctaid.y")
        self.bias_panel = self.panel
        if template.is_scattered:
            panels = code.special("nctaid.z") // sizes.blocks * code.special("nctaid.y")
            self.bias_panel = self.part * panels + self.panel
        self.first_pixel = code.special("ctaid.x") * template.tile.rows
        self.shared = code.dynamic_shared()
        self.gather = PixelGather(code, self.phase.source, arguments.table, template.width, template.is_direct)
        self.output = Output(code, template.epilogue, template.output, arguments.output, arguments.extra, sizes.pitch)
        self.skipped = self.part * self.phase.share if is_split else code.integer(0)
        self.first = self.phase.entry + self.skipped
        self.tiles = code.minimum(self.phase.tiles - self.skipped, self.phase.share)
        self.find_data()
        self.weights = WeightLoader(
            code,
            arguments.weights,
            self.phase.weight + self.panel * self.phase.tiles + self.skipped,
            self.thread,
            template.threads,
            template.tile.stage_bytes - template.tile.data_bytes,
            template.tile.data_bytes,
            template.weights if template.converts_weights else None,
            template.stored,
        )
        self.locate()

    def find_data(self) -> None:
        """Sets what brings tiles of data to shared memory."""
        template, arguments = self.template, self.arguments
        self.data = DataLoader(
            self.code,
            self.gather,
            arguments.data,
            template.source,
            template.stored,
            self.thread,
            template.threads,
            self.tile.rows,
            template.steps,
            template.layout,
            arguments.halo[0] if arguments.halo else None,
            keeps=template.is_asynchronous,
        )

    @abstractmethod
    def locate(self) -> None:
        """Sets what this thread multiplies."""

    def next_slot(self, slot: Value) -> Value:
        """The slot after `slot`; both in bytes from the first slot."""
        following = slot + self.tile.stage_bytes
        return self.code.select(following.equals(self.template.stages * self.tile.stage_bytes), 0, following)

    def entries(self, tile: Value) -> list[TableEntry]:
        """The table entries of a tile of this block; past the last tile, those of the last tile."""
        return self.data.entries(self.first + self.code.minimum(tile, self.tiles - 1))

    def write(self) -> None:
        """Writes the whole kernel."""
        self._finish(self.all_sums())

    def all_sums(self) -> list[Value]:
        """The sums of all tiles."""
        return self.overlapped() if self.template.is_asynchronous else self.through_registers()

    def accumulate(
        self, sums: Sequence[Value], slot: Value, meanwhile: Callable[[], None] | None = None
    ) -> list[Value]:
        """The sums after this thread's part of the tile at the shared address `slot`."""
        return self.multiply.accumulate(sums, slot, slot + self.tile.data_bytes, meanwhile)

    # copies through registers, one tile ahead

    @abstractmethod
    def through_registers(self) -> list[Value]:
        """All sums. While a tile is multiplied, the next one is loaded to registers."""

    def put(self, data: Chunks, weights: Chunks, slot: Value) -> None:
        """Stores a fetched tile at the shared address `slot`."""
        self.data.put(data, slot)
        self.weights.put(weights, slot)

    # asynchronous copies, several tiles ahead

    @abstractmethod
    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        """The sums after the tile at the shared address `slot`; `copy` and `advance` write the code that runs
        meanwhile."""

    def rows(self) -> list[PixelRow]:
        """The pixels of this thread's rows of data."""
        return self.data.rows(self.first_pixel, self.group * self.sizes.depth)

    def overlapped(self) -> list[Value]:
        """All sums. Copies run `stages - 1` tiles ahead of the multiplications, reads of the table `stages` tiles."""
        code, ahead = self.code, self.template.stages - 1
        entries = [self.entries(code.integer(number)) for number in range(ahead + 1)]
        rows = self.rows()
        numbers = [code.integer(number) for number in range(ahead)]
        slots = [code.integer(number * self.tile.stage_bytes) for number in range(ahead)]
        for number, slot in zip(numbers, slots, strict=True):
            with code.when(number < self.tiles):
                self.weights.copy(number, self.shared + slot)
        code.await_launches()
        for number, own, slot in zip(numbers, entries, slots, strict=False):
            with code.when(number < self.tiles):
                self.data.copy(rows, own, self.shared + slot)
            commit_copies(code)
        slots = [code.integer(0), code.integer(ahead * self.tile.stage_bytes)]
        state = [*slots, *flat(entries[ahead])]
        with code.carried(self.tiles, [*state, *self.multiply.nothing()]) as (tile, now, following):
            (read, written), own = now[:2], unflat(now[2 : len(state)])
            await_copies(code, ahead - 1)
            code.barrier()

            def copy() -> None:
                with code.when(tile + ahead < self.tiles):
                    self.data.copy(rows, own, self.shared + written)
                    self.weights.copy(tile + ahead, self.shared + written)
                commit_copies(code)

            def advance() -> None:
                entered = flat(self.entries(tile + ahead + 1))
                following[: len(state)] = [self.next_slot(read), read, *entered]  # a slot is free once it is read

            following[len(state) :] = self.step(now[len(state) :], self.shared + read, copy, advance)
        return following[len(state) :]

    # sums to the output

    def _finish(self, sums: Sequence[Value]) -> None:
        """Adds up the sums in shared memory: of the warps that split each tile's K, and of the blocks of a cluster."""
        code = self.code
        code.barrier()
        columns = self.tile.columns * FLOAT
        for run in self.multiply.held.runs:
            address = self._sum_address(self.slice, self.multiply.held.row, self.multiply.held.column + run.column)
            code.store(sums[run.sums], address, run.row * columns)
        code.barrier()
        if self.cluster > 1:
            self._fold()
            code.cluster_barrier()
        self._store_all()
        if self.cluster > 1:
            code.cluster_barrier()

    @abstractmethod
    def swizzled(self, row: Value, column: Value) -> Value:
        """The column of shared memory where a sum lies: stores of `held` have no bank conflicts."""

    def _sum_address(self, number: Value | int, row: Value, column: Value) -> Value:
        """Shared address of a sum of slice `number`."""
        tile = self.tile
        first = self.shared + (row * tile.columns + self.swizzled(row, column)) * FLOAT
        address: Value = first + number * (tile.rows * tile.columns * FLOAT)
        return address

    def _fold(self) -> None:
        """Adds up the slices of K of this block, where the other blocks of the cluster read the sums."""
        if self.tile.slices == 1:
            return
        runs = self.tile.columns // QUAD
        column, first, pitch = self.thread % runs * QUAD, self.thread // runs, self.tile.threads // runs
        with self.code.loop(self.tile.rows, start=first, step=pitch) as row:
            sums = added([self._slice(number, row, column, QUAD) for number in range(self.tile.slices)])
            self.code.store(sums, self._sum_address(0, row, column), 0)

    def _store_all(self) -> None:
        """Adds the bias, applies the epilogue and stores the results; each thread takes neighbouring channels, and the
        blocks of a cluster take turns with the rows."""
        code, tile, width = self.code, self.tile, self.finished
        runs = tile.columns // width
        assert tile.threads % runs == 0, tile
        column = self.thread % runs * width
        channel = code.special("ctaid.y") * tile.columns + column
        first, pitch = self.thread // runs, tile.threads // runs * self.cluster
        if self.cluster > 1:
            first = first * self.cluster + self.part
        bias = self._bias(column, width)
        with code.when(channel < self.sizes.outputs), code.loop(-(-tile.rows // pitch)) as turn:
            row = first + turn * pitch
            exists, pixel = self.pixel(row)
            inside = exists if tile.rows % pitch == 0 else exists & (row < tile.rows)
            with code.when(inside):
                self._store(self._total(row, column, bias), pixel, channel)

    def pixel(self, row: Value) -> tuple[Value, Value]:
        """(whether a row of the tile is a pixel of the phase, its number)."""
        pixel = self.first_pixel + row
        return pixel < self.pixels, pixel

    def _total(self, row: Value, column: Value, bias: Sequence[Value]) -> list[Value]:
        """The sums of neighbouring columns, added up over all slices of K."""
        if self.cluster > 1:
            address = self._sum_address(0, row, column)
            slices = [self._sums_of(address, rank) for rank in range(self.cluster)]
        else:
            slices = [self._slice(number, row, column, self.finished) for number in range(self.tile.slices)]
        return added([*slices, bias] if bias else slices)

    def _slice(self, number: int, row: Value, column: Value, count: int) -> list[Value]:
        return load_run(self.code, self.sums, self._sum_address(number, row, column), self.code.integer(0), count)

    def _sums_of(self, address: Value, rank: int) -> list[Value]:
        """Neighbouring sums of a block of the cluster; `address` is theirs in this block's shared memory."""
        code, type_, step = self.code, register(self.sums.dtype), min(self.finished, self.sums.widest)
        start = code.of_block(address, rank)
        offsets = range(0, self.finished, step)
        return [one for at in offsets for one in code.load_remote(start + at * FLOAT, type_, step)]

    def _bias(self, column: Value, count: int) -> list[Value]:
        """The bias of neighbouring columns of the tile; empty for parts of a sum."""
        if self.template.is_part:
            return []
        first = self.bias_panel * self.tile.columns + column
        return load_run(self.code, self.sums, self.arguments.bias, first, count)

    def _store(self, sums: Sequence[Value], pixel: Value, channel: Value) -> None:
        """Stores neighbouring channels of a pixel of the phase, the first of which exists, in runs that lie completely
        inside or outside the group's channels: parts of sums unchanged, complete sums through the epilogue."""
        code, run = self.code, self.template.run
        for at in range(0, len(sums), run):
            with code.when(channel + at < self.sizes.outputs) if at else nullcontext():
                own, first = sums[at : at + run], self.group * self.sizes.outputs + (channel + at if at else channel)
                if self.template.is_part:
                    index = (self.part * self.pixels + pixel) * self.output.pitch + first
                    store(code, self.sums, own, self.arguments.output, index)
                else:
                    whole = self.target_pixels.pixel(pixel) if self.target_pixels else pixel
                    self.output.store(own, whole, first)


def flat(entries: Sequence[TableEntry]) -> list[Value]:
    """The values of table entries one after another, for `unflat`."""
    return [value for entry in entries for value in (entry.offset, entry.taps)]


def unflat(values: Sequence[Value]) -> list[TableEntry]:
    """The table entries that consist of these values: the inverse of `flat`."""
    return [TableEntry(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
