"""Shared parts of the contraction kernels: the ring of tiles in shared memory, and storing sums to the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree, register
from jitdelegate.targets.cuda.code.element import Element, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.output import Output
from jitdelegate.targets.cuda.code.sizes import Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.multiply.tensor_core import await_copies, commit_copies
from jitdelegate.targets.cuda.sources.phases import PhaseSizes, phase_of
from jitdelegate.targets.cuda.sources.pixel_gather import PixelGather, PixelRow, PlaceSizes, TableEntry
from jitdelegate.targets.cuda.sources.tile_loader import Chunks, DataLoader, WeightLoader

FLOAT = 4


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


class ContractTemplate(Template):
    """A product of pixels by channels; every subclass has at least these fields.

    Attributes:
        source, output: element types of data and results.
        tile: the tile of a block.
        width: elements of a chunk of the table.
        run: neighbouring channels that a thread finishes and stores together.
        is_direct, is_scattered: as in `ConvProblem`.
        is_part: whether the kernel stores plain sums of a part of K, for `Combine`.
        cluster: number of blocks that share out K and add up their sums in shared memory.
        sums: the type of the sums.
    """

    source: Element
    output: Element
    tile: Any
    width: int
    run: int
    is_direct: bool
    is_scattered: bool
    is_part: bool
    epilogue: Epilogue
    cluster: int
    awaits_launches: ClassVar[bool] = True

    @property
    def sums(self) -> Element:
        return Element.FLOAT32

    @property
    def threads(self) -> int:
        return int(self.tile.threads)

    @property
    def stages(self) -> int:
        """Number of slots of the ring of tiles in shared memory."""
        return int(self.tile.stages)


@dataclass(frozen=True, slots=True)
class ContractArguments:
    """The pointers of a launch, in the order of the kernel's parameters.

    Attributes:
        output: the tensor, or sums [parts of K, pixels, channels] for `Combine`.
        weights: tiles in the order of shared memory.
        bias: [groups, N padded to whole tiles], of the type of the sums.
        table: read by `PixelGather`.
        extra: epilogue operands.
    """

    output: Value
    data: Value
    weights: Value
    bias: Value
    table: Value
    extra: Sequence[Value]


class ContractKernel(ABC):
    """Writes a kernel whose blocks copy tiles of K to a ring of slots, data before weights, and multiply them.

    Args:
        phase: the only phase, or a pointer to the phases of a scattered problem.

    Attributes:
        is_asynchronous: whether data is copied without going through registers.
        group, part: this block's group of channels, and its part of K where blocks split K.
        place: None where the phase has all pixels of the output.
        skipped: tiles of K of the parts before this one.
    """

    is_asynchronous: bool
    group: Value
    part: Value
    place: PlaceSizes | None
    data: DataLoader
    weights: WeightLoader
    first: Value
    """Number of the block's first tile of K in the table."""
    tiles: Value
    """Number of tiles of K that the block multiplies."""

    def __init__(
        self,
        code: Code,
        template: ContractTemplate,
        arguments: ContractArguments,
        sizes: ContractSizes,
        phase: PhaseSizes | Value,
    ) -> None:
        self.thread, z = code.special("tid.x"), code.special("ctaid.z")
        is_split = template.is_part or template.cluster > 1
        is_alone = not (is_split or template.is_scattered)
        self.group, self.part = (z, code.integer(0)) if is_alone else (z // sizes.blocks, z % sizes.blocks)
        self.phase, self.place = (phase, None) if isinstance(phase, PhaseSizes) else phase_of(code, phase, self.part)
        self.code, self.arguments, self.sizes, self.stages = code, arguments, sizes, template.stages
        self.is_part, self.run, self.tile, self.sums = template.is_part, template.run, template.tile, template.sums
        self.cluster = template.cluster
        self.pixels = self.phase.source.pixels
        self.panel = self.group * code.special("nctaid.y") + code.special("ctaid.y")
        self.bias_panel = self.panel
        self.first_pixel = code.special("ctaid.x") * template.tile.rows
        self.shared = code.dynamic_shared()
        self.gather = PixelGather(code, self.phase.source, arguments.table, template.width, template.is_direct)
        self.output = Output(code, template.epilogue, template.output, arguments.output, arguments.extra, sizes.pitch)
        self.skipped = self.part * self.phase.share if is_split else code.integer(0)

    def next_slot(self, slot: Value) -> Value:
        """The slot after `slot`; both in bytes from the first slot."""
        following = slot + self.tile.stage_bytes
        return self.code.select(following.equals(self.stages * self.tile.stage_bytes), 0, following)

    def entries(self, tile: Value) -> list[TableEntry]:
        """The table entries of a tile of this block; past the last tile, those of the last tile."""
        return self.data.entries(self.first + self.code.minimum(tile, self.tiles - 1))

    def multiply(self) -> list[Value]:
        """All sums."""
        return self.overlapped() if self.is_asynchronous else self.through_registers()

    @abstractmethod
    def nothing(self) -> list[Value]:
        """This thread's sums before the first tile."""

    @abstractmethod
    def accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        """The sums after this thread's part of the tile at the shared address `slot`."""

    def weights_slot(self, slot: Value) -> Value:
        """What the loader of weights takes for a slot: the slot itself where it adds the length of the data."""
        return slot

    # copies through registers, one tile ahead

    @abstractmethod
    def through_registers(self) -> list[Value]:
        """All sums. While a tile is multiplied, the next one is loaded to registers."""

    def put(self, data: Chunks, weights: Chunks, slot: Value) -> None:
        """Stores a fetched tile at the shared address `slot`."""
        self.data.put(data, slot)
        self.weights.put(weights, self.weights_slot(slot))

    # asynchronous copies, several tiles ahead

    @abstractmethod
    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        """The sums after the tile in `slot` (in bytes from the first slot); `copy` and `advance` write the code that
        runs meanwhile."""

    def rows(self) -> list[PixelRow]:
        """The pixels of this thread's rows of data."""
        return self.data.rows(self.first_pixel, self.group * self.sizes.depth)

    def overlapped(self) -> list[Value]:
        """All sums. Copies run `stages - 1` tiles ahead of the multiplications, reads of the table `stages` tiles."""
        code, ahead = self.code, self.stages - 1
        entries = [self.entries(code.integer(number)) for number in range(ahead + 1)]
        rows = self.rows()
        numbers = [code.integer(number) for number in range(ahead)]
        slots = [code.integer(number * self.tile.stage_bytes) for number in range(ahead)]
        for number, slot in zip(numbers, slots, strict=True):
            with code.when(number < self.tiles):
                self.copy_weights(number, slot)
        code.await_launches()
        for number, own, slot in zip(numbers, entries, slots, strict=False):
            with code.when(number < self.tiles):
                self.copy_data(rows, own, slot)
            commit_copies(code)
        slots = [code.integer(0), code.integer(ahead * self.tile.stage_bytes)]
        state = [*slots, *flat(entries[ahead])]
        with code.carried(self.tiles, [*state, *self.nothing()]) as (tile, now, following):
            (read, written), own = now[:2], unflat(now[2 : len(state)])
            await_copies(code, ahead - 1)
            code.barrier()

            def copy() -> None:
                self._copy(rows, own, tile + ahead, written)

            def advance() -> None:
                entered = flat(self.entries(tile + ahead + 1))
                following[: len(state)] = [self.next_slot(read), read, *entered]  # a slot is free once it is read

            following[len(state) :] = self.step(now[len(state) :], read, copy, advance)
        return following[len(state) :]

    def copy_weights(self, tile: Value, slot: Value) -> None:
        """Begins to copy the weights of a tile of K to a slot (in bytes from the first slot)."""
        self.weights.copy(tile, self.weights_slot(self.shared + slot))

    def copy_data(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry], slot: Value) -> None:
        """Begins to copy the data of a tile of K to a slot."""
        self.data.copy(rows, entries, self.shared + slot)

    def _copy(self, rows: Sequence[PixelRow], entries: Sequence[TableEntry], tile: Value, slot: Value) -> None:
        """Begins a group of copies, which is empty past the last tile."""
        with self.code.when(tile < self.tiles):
            self.copy_data(rows, entries, slot)
            self.copy_weights(tile, slot)
        commit_copies(self.code)

    # sums to the output

    def pixel(self, row: Value) -> tuple[Value, Value]:
        """(whether a row of the tile is a pixel of the phase, its number)."""
        pixel = self.first_pixel + row
        return pixel < self.pixels, pixel

    def load_sums(self, place: Value, rank: int, count: int) -> list[Value]:
        """Neighbouring sums of a block of the cluster; `place` is their address in this block's shared memory."""
        code, type_, step = self.code, register(self.sums.dtype), min(count, self.sums.widest)
        start = code.of_block(place, rank)
        return [x for at in range(0, count, step) for x in code.load_remote(start + at * FLOAT, type_, step)]

    def bias(self, column: Value, count: int) -> list[Value]:
        """The bias of neighbouring columns of the tile; empty for parts of a sum."""
        if self.is_part:
            return []
        place = self.bias_panel * self.tile.columns + column
        return load_run(self.code, self.sums, self.arguments.bias, place, count)

    def store(self, sums: Sequence[Value], pixel: Value, channel: Value) -> None:
        """Stores neighbouring channels of a pixel of the phase: parts of sums unchanged, complete sums through the
        epilogue."""
        if self.is_part:
            place = (self.part * self.pixels + pixel) * self.output.pitch + channel
            store(self.code, self.sums, sums, self.arguments.output, place)
            return
        pixel = pixel if self.place is None else self.place.pixel(pixel)
        self.output.store(sums, pixel, channel)


def added(parts: Sequence[Sequence[Value]]) -> list[Value]:
    """The sums of neighbouring columns, in a fixed order of the parts."""
    return [reduce_tree(values, lambda a, b: a + b) for values in zip(*parts, strict=True)]


def flat(entries: Sequence[TableEntry]) -> list[Value]:
    """The values of table entries one after another, for `unflat`."""
    return [value for entry in entries for value in (entry.offset, entry.taps)]


def unflat(values: Sequence[Value]) -> list[TableEntry]:
    """The table entries that consist of these values: the inverse of `flat`."""
    return [TableEntry(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
