"""The kernel of a contraction on tensor cores: copy tiles of K, multiply them, combine what the warps have, store.

Tiles of data and weights lie one after another in a ring of slots in shared memory. The sums go through shared memory
too: there warps that shared out K meet, and every thread finishes runs of neighbouring channels with wide accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jitdelegate.targets.cuda.conv_problem import SOURCE_SIZES, Entry, Gather, Row, output_pixel
from jitdelegate.targets.cuda.device_code import I32, Code, Value, reduce_tree
from jitdelegate.targets.cuda.element import Element, load_where, pack, store
from jitdelegate.targets.cuda.epilogue import load_run
from jitdelegate.targets.cuda.tensor_core import CHUNK, Swizzle, await_copies, commit_copies, copy_async, nothing

if TYPE_CHECKING:
    from jitdelegate.targets.cuda.mma import Mma

OWN_SIZES = 6
"""Numbers before those of the problem: tiles of K, those of a part of K, parts; data channels and output channels of a
group, output channels."""
FLOAT = 4


@dataclass(frozen=True, slots=True)
class Arguments:
    """A launch's arguments, in the order of the kernel's parameters.

    Attributes:
        weights: tiles as they lie in shared memory, [groups, tiles of N, tiles of K].
        bias: f32[groups, N padded to whole tiles].
        table: of `Gather`.
        sizes: OWN_SIZES, `Problem.source` and, if scattered, `Problem.place`.
    """

    output: Value
    data: Value
    weights: Value
    bias: Value
    table: Value
    extra: Sequence[Value]
    sizes: Sequence[Value]


class DataShare:
    """What one thread copies of a tile of data: some rows of some neighbouring chunks of the table ("units").

    Where a unit is a whole 16-byte chunk of shared memory, neighbouring threads have neighbouring units of a row.
    Otherwise they have neighbouring rows of the same units, so that a thread fills whole chunks.
    """

    def __init__(self, code: Code, template: Mma, gather: Gather, thread: Value) -> None:
        self.code, self.template, self.gather = code, template, gather
        tile = template.tile
        self.units = tile.row_bytes // template.unit_bytes
        if template.unit_bytes == CHUNK:
            self.pitch, self.own = tile.threads // self.units, 1
            self.row, self.unit = thread // self.units, thread % self.units
        else:
            self.pitch, self.own = tile.rows, self.units * tile.rows // tile.threads
            self.row, self.unit = thread % tile.rows, thread // tile.rows * self.own
        self.swizzle = Swizzle(tile.row_bytes)

    def rows(self, first: Value, channel: Value) -> list[Row]:
        """The pixels of this thread's rows, the tile's first one being `first`."""
        pixels = [first + self.row + at for at in range(0, self.template.tile.rows, self.pitch)]
        return [self.gather.row(pixel, channel) for pixel in pixels]

    def entries(self, tile: Value) -> list[Entry]:
        """What the table says of this thread's units of a tile of K."""
        start = tile * self.units + self.unit
        return [self.gather.entry(start + at) for at in range(self.own)]

    def copy(self, rows: Sequence[Row], entries: Sequence[Entry], data: Value, slot: Value) -> None:
        """Begins to copy this thread's share to the tile at the shared address `slot`."""
        nbytes = self.template.unit_bytes
        for at, row in enumerate(rows):
            for number, entry in enumerate(entries):
                inside, index = self.gather.chunk(row, entry)
                to = slot + self._place(at, number * nbytes)
                copy_async(self.code, to, data, index * self.template.source.nbytes, nbytes, inside)

    def _place(self, at: int, nbytes: int) -> Value:
        """Bytes from the tile's start to this thread's row number `at`, `nbytes` after its first unit."""
        chunk = self.unit * self.template.unit_bytes // CHUNK + nbytes // CHUNK
        return self.swizzle.place(self.row, chunk) + (at * self.pitch * self.swizzle.row_bytes + nbytes % CHUNK)

    def fetch(self, rows: Sequence[Row], entries: Sequence[Entry], data: Value) -> list[list[Value]]:
        """This thread's share as chunks of four int32, for `put`."""
        group = CHUNK // self.template.unit_bytes
        groups = [entries[at : at + group] for at in range(0, len(entries), group)]
        return [self._chunk(row, some, data) for row in rows for some in groups]

    def _chunk(self, row: Row, entries: Sequence[Entry], data: Value) -> list[Value]:
        template, code = self.template, self.code
        places = [self.gather.chunk(row, entry) for entry in entries]
        if template.width > 1 and not template.converts:
            nbytes = template.unit_bytes
            return [
                word
                for inside, index in places
                for word in code.load_where(inside, data, index * template.source.nbytes, nbytes // 4)
            ]
        step = min(template.width, template.source.widest)
        values = [
            value
            for inside, index in places
            for at in range(0, template.width, step)
            for value in load_where(code, template.source, inside, data, index + at, step)
        ]
        return pack(code, template.operand.element, values)

    def put(self, chunks: Sequence[Sequence[Value]], slot: Value) -> None:
        """Stores what `fetch` gave to the tile at the shared address `slot`."""
        each = self.own * self.template.unit_bytes // CHUNK
        for at, chunk in enumerate(chunks):
            self.code.store(chunk, slot, self._place(at // each, at % each * CHUNK))


class WeightShare:
    """What one thread copies of a tile of weights: every `threads`-th chunk."""

    def __init__(self, code: Code, template: Mma, weights: Value, first_tile: Value, thread: Value) -> None:
        tile = template.tile
        self.code, self.weights = code, weights
        self.nbytes, self.pitch = tile.columns * tile.row_bytes, tile.threads * CHUNK
        self.start = thread * CHUNK
        self.first = first_tile * self.nbytes + self.start

    def copy(self, tile: Value, slot: Value) -> None:
        """Begins to copy this thread's share of a tile of K to the shared address `slot`."""
        for at in range(0, self.nbytes, self.pitch):
            copy_async(self.code, slot + self.start + at, self.weights, self.first + tile * self.nbytes + at, CHUNK)

    def fetch(self, tile: Value) -> list[list[Value]]:
        """This thread's share as chunks of four int32, for `put`."""
        places = [self.first + tile * self.nbytes + at for at in range(0, self.nbytes, self.pitch)]
        return [self.code.load(self.weights, place, I32, 4) for place in places]

    def put(self, chunks: Sequence[Sequence[Value]], slot: Value) -> None:
        """Stores what `fetch` gave to the tile at the shared address `slot`."""
        for at, chunk in enumerate(chunks):
            self.code.store(chunk, slot + self.start, at * self.pitch)


class MmaKernel:
    """Writes the kernel of one template."""

    def __init__(self, code: Code, template: Mma, arguments: Arguments) -> None:
        self.code, self.template, self.arguments = code, template, arguments
        tile = self.tile = template.tile
        every, share, parts, self.depth, self.outputs, self.channels = arguments.sizes[:OWN_SIZES]
        problem = arguments.sizes[OWN_SIZES:]
        gather = Gather(code, problem[:SOURCE_SIZES], arguments.table, template.width, direct=template.is_direct)
        self.pixels, self.places = problem[0], problem[SOURCE_SIZES:]
        self.thread, z = code.special("tid.x"), code.special("ctaid.z")
        self.group, self.part = (z // parts, z % parts) if template.is_part else (z, code.integer(0))
        self.first = self.part * share
        self.tiles = code.minimum(every - self.first, share)
        self.panel = self.group * code.special("nctaid.y") + code.special("ctaid.y")
        self.first_pixel = code.special("ctaid.x") * tile.rows
        self.shared = code.dynamic_shared()
        self.data = DataShare(code, template, gather, self.thread)
        self.weights = WeightShare(code, template, arguments.weights, self.panel * every + self.first, self.thread)
        self._locate_warp()

    def _locate_warp(self) -> None:
        """Which rows, columns and slice of every tile of K this thread's warp multiplies."""
        warp_rows, warp_columns, _ = self.tile.warps
        lane, warp = self.thread & 31, self.thread >> 5
        self.slice = warp // (warp_rows * warp_columns)
        within = warp % (warp_rows * warp_columns)
        self.row = within // warp_columns * (self.tile.rows // warp_rows)
        self.column = within % warp_columns * (self.tile.columns // warp_columns)
        shape = self.shape = self.template.warp_tile
        self.starts = shape.left_start(lane, self.row, self.slice), shape.right_start(lane, self.column, self.slice)

    def write(self) -> None:
        """The whole kernel."""
        sums = self._overlapped() if self.template.is_asynchronous else self._through_registers()
        self.code.barrier()
        self._share_sums(sums)
        self.code.barrier()
        self._finish()

    def _accumulate(self, sums: Sequence[Value], slot: Value, meanwhile: Callable[[], None] = nothing) -> list[Value]:
        right = slot + self.tile.rows * self.tile.row_bytes
        return self.shape.accumulate(self.code, sums, slot, right, self.starts, meanwhile)

    def _nothing(self) -> list[Value]:
        return [self.code.real(0.0)] * self.shape.sums

    # asynchronous copies, several tiles ahead

    def _overlapped(self) -> list[Value]:
        """Copies run `ahead` tiles before the multiplications; entries of the table one tile further."""
        code, ahead = self.code, self.tile.stages - 1
        entries = [self._entries(code.integer(number)) for number in range(ahead + 1)]
        rows = self.data.rows(self.first_pixel, self.group * self.depth)
        slots = [code.integer(number * self.tile.stage_bytes) for number in range(ahead + 1)]
        for number in range(ahead):
            self._copy(rows, entries[number], code.integer(number), slots[number])
        state = [slots[0], slots[ahead], *_flat(entries[ahead])]
        with code.carried(self.tiles, [*state, *self._nothing()]) as (tile, now, following):
            await_copies(code, ahead - 1)
            code.barrier()
            read, written, count = now[0], now[1], len(state)
            copy = partial(self._copy, rows, _entries(now[2:count]), tile + ahead, written)
            sums = self._accumulate(now[count:], self.shared + read, copy)
            entered = _flat(self._entries(tile + ahead + 1))
            following[:] = [self._next_slot(read), self._next_slot(written), *entered, *sums]
        return following[count:]

    def _entries(self, tile: Value) -> list[Entry]:
        """Of a tile that may be past the last one: then of the last one."""
        return self.data.entries(self.first + self.code.minimum(tile, self.tiles - 1))

    def _copy(self, rows: Sequence[Row], entries: Sequence[Entry], tile: Value, slot: Value) -> None:
        """Begins a group of copies, an empty one past the last tile."""
        place = self.shared + slot
        with self.code.when(tile < self.tiles):
            self.data.copy(rows, entries, self.arguments.data, place)
            self.weights.copy(tile, place + self.tile.rows * self.tile.row_bytes)
        commit_copies(self.code)

    def _next_slot(self, slot: Value) -> Value:
        following = slot + self.tile.stage_bytes
        return self.code.select(following.equals(self.tile.stages * self.tile.stage_bytes), 0, following)

    # copies through registers, one tile ahead

    def _through_registers(self) -> list[Value]:
        """While a tile is multiplied the next one is on its way to registers."""
        code = self.code
        rows = self.data.rows(self.first_pixel, self.group * self.depth)
        self._put(*self._fetch(rows, code.integer(0)), self.shared)
        initial = [code.integer(0), *self._nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(rows, tile)
            following[1:] = self._accumulate(now[1:], self.shared + now[0])
            following[0] = self._next_slot(now[0])
            self._put(*fetched, self.shared + following[0])
        code.barrier()
        return self._accumulate(following[1:], self.shared + following[0])

    def _fetch(self, rows: Sequence[Row], tile: Value) -> tuple[list[list[Value]], list[list[Value]]]:
        entries = self.data.entries(self.first + tile)
        return self.data.fetch(rows, entries, self.arguments.data), self.weights.fetch(tile)

    def _put(self, data: list[list[Value]], weights: list[list[Value]], slot: Value) -> None:
        self.data.put(data, slot)
        self.weights.put(weights, slot + self.tile.rows * self.tile.row_bytes)

    # sums to the output

    def _share_sums(self, sums: Sequence[Value]) -> None:
        """Puts this thread's sums, two neighbouring columns at a time, where `_sum` finds them."""
        lane, columns = self.thread & 31, self.shape.columns
        row, column = self.row + (lane >> 2), self.column + ((lane & 3) << 1)
        for at in range(0, len(sums), 2):
            fragment, half = at // 4, at % 4 // 2
            down = fragment // (columns // 8) * 16 + half * 8
            place = self._sum_place(self.slice, row, column + fragment % (columns // 8) * 8)
            self.code.store(sums[at : at + 2], place, down * self.tile.columns * FLOAT)

    def _sum_place(self, number: Value | int, row: Value, column: Value) -> Value:
        """Shared address of a sum of slice `number`; runs of 8 columns are swizzled so that stores of fragments meet no
        bank twice."""
        tile = self.tile
        swizzled = column ^ ((row & 3) << 3)
        return self.shared + (row * tile.columns + swizzled) * FLOAT + number * (tile.rows * tile.columns * FLOAT)

    def _finish(self) -> None:
        """Every thread takes runs of neighbouring channels through bias and epilogue to the output."""
        code, tile = self.code, self.tile
        runs = tile.columns // self.template.run
        column = self.thread % runs * self.template.run
        channel = code.special("ctaid.y") * tile.columns + column
        first, pitch = self.thread // runs, tile.threads // runs
        bias = self._bias(column)
        with code.when(channel < self.outputs), code.loop(-(-tile.rows // pitch)) as turn:
            row = first + turn * pitch
            pixel = self.first_pixel + row
            inside = pixel < self.pixels if tile.rows % pitch == 0 else (pixel < self.pixels) & (row < tile.rows)
            with code.when(inside):
                self._store(self._sums(row, column, bias), pixel, self.group * self.outputs + channel)

    def _bias(self, column: Value) -> list[Value]:
        """Of one run of columns; parts of a sum have none."""
        if self.template.is_part:
            return []
        place = self.panel * self.tile.columns + column
        return load_run(self.code, Element.FLOAT32, self.arguments.bias, place, self.template.run)

    def _sums(self, row: Value, column: Value, bias: Sequence[Value]) -> list[Value]:
        """The sums of one run of columns, over all slices of K."""
        slices = [self._slice(number, row, column) for number in range(self.tile.warps[2])]
        slices += [bias] if bias else []
        return [reduce_tree(values, lambda a, b: a + b) for values in zip(*slices, strict=True)]

    def _slice(self, number: int, row: Value, column: Value) -> Sequence[Value]:
        place = self._sum_place(number, row, column)
        return load_run(self.code, Element.FLOAT32, place, self.code.integer(0), self.template.run)

    def _store(self, sums: Sequence[Value], pixel: Value, channel: Value) -> None:
        template, arguments = self.template, self.arguments
        if template.is_part:
            place = (self.part * self.pixels + pixel) * self.channels + channel
            store(self.code, template.output, sums, arguments.output, place)
            return
        if template.is_scattered:
            pixel = output_pixel(pixel, self.places)
        results = template.epilogue.apply(self.code, sums, pixel, channel, self.channels, arguments.extra)
        store(self.code, template.output, results, arguments.output, pixel * self.channels + channel)


def _flat(entries: Sequence[Entry]) -> list[Value]:
    return [value for entry in entries for value in (entry.offset, entry.taps)]


def _entries(values: Sequence[Value]) -> list[Entry]:
    return [Entry(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
