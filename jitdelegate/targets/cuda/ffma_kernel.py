"""The kernel of a contraction in float32: copy tiles of K, multiply them, add up what the warps have, store.

Tiles of data and weights lie in a ring of slots in shared memory. A lane reads its rows of data and its columns of
weights for four steps of K with 16-byte loads, and each loaded number is used four to eight times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jitdelegate.targets.cuda.conv_problem import PLACE_SIZES, SOURCE_SIZES, Entry, Gather, Row, output_pixel, whole
from jitdelegate.targets.cuda.device_code import F32, I32, Code, Value, reduce_tree
from jitdelegate.targets.cuda.element import Element, load, load_where, store
from jitdelegate.targets.cuda.tensor_core import await_copies, commit_copies, copy_async

if TYPE_CHECKING:
    from jitdelegate.targets.cuda.ffma import Ffma

COMMON_SIZES = 4
"""Numbers for all phases: blocks along z for each group (parts of K, or phases), data channels of a group, output
channels of a group, and of a pixel."""
OWN_SIZES = 4
"""Numbers of a phase before those of `Problem.source` and `Problem.place`: tiles of K, tiles of K that a block takes,
and the phase's first tile in the table and among the weights."""
RECORD = whole(OWN_SIZES + SOURCE_SIZES + PLACE_SIZES, 4)
"""Numbers between two phases, where there are several."""
FLOAT = 4
QUAD = 4
"""Neighbouring numbers in one access to shared memory."""
LANES_DOWN, LANES_ACROSS = 4, 8
"""How a warp's lanes lie over its rows and columns."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A launch's arguments, in the order of the kernel's parameters.

    Attributes:
        output: the tensor, or f32[blocks that share out K, pixels, channels] for `Combine`.
        weights: f32[phases, groups, tiles of N, tiles of K, steps of a tile, columns of a tile].
        bias: f32[groups, N padded to whole tiles].
        table: of `Gather`.
        phases: int32[phases, RECORD] of a scattered problem.
        sizes: COMMON_SIZES and, unless scattered, OWN_SIZES and `Problem.source`.
    """

    output: Value
    data: Value
    weights: Value
    bias: Value
    table: Value
    phases: Value
    extra: Sequence[Value]
    sizes: Sequence[Value]


class DataShare:
    """What one thread copies of a tile of data: one chunk of some of its rows."""

    def __init__(self, code: Code, template: Ffma, gather: Gather, data: Value, thread: Value) -> None:
        self.code, self.template, self.gather, self.data = code, template, gather, data
        tile = template.tile
        self.chunks = tile.steps // template.width
        self.pitch = tile.threads // self.chunks
        assert tile.rows % self.pitch == 0
        self.row, self.chunk = thread // self.chunks, thread % self.chunks
        self.start = (self.row * tile.row_pitch + self.chunk * template.width) * FLOAT

    def rows(self, first: Value, channel: Value) -> list[Row]:
        """The pixels of this thread's rows, the tile's first one being `first`."""
        places = range(0, self.template.tile.rows, self.pitch)
        return [self.gather.row(first + self.row + at, channel) for at in places]

    def entry(self, tile: Value) -> Entry:
        """What the table says of this thread's chunk of a tile of K."""
        return self.gather.entry(tile * self.chunks + self.chunk)

    def copy(self, rows: Sequence[Row], entry: Entry, slot: Value) -> None:
        """Begins to copy this thread's share to the shared address `slot`."""
        nbytes = self.template.width * FLOAT
        for at, row in enumerate(rows):
            inside, index = self.gather.chunk(row, entry)
            copy_async(self.code, slot + self._place(at), self.data, index * FLOAT, nbytes, inside)

    def fetch(self, rows: Sequence[Row], entry: Entry) -> list[list[Value]]:
        """This thread's share as float32 in registers, for `put`."""
        return [self._chunk(row, entry) for row in rows]

    def _chunk(self, row: Row, entry: Entry) -> list[Value]:
        inside, index = self.gather.chunk(row, entry)
        return load_where(self.code, self.template.source, inside, self.data, index, self.template.width)

    def put(self, chunks: Sequence[Sequence[Value]], slot: Value) -> None:
        """Stores what `fetch` gave to the shared address `slot`."""
        for at, chunk in enumerate(chunks):
            self.code.store(chunk, slot, self._place(at))

    def _place(self, at: int) -> Value:
        """Bytes from the tile's start to this thread's row number `at`."""
        return self.start + at * self.pitch * self.template.tile.row_pitch * FLOAT


class WeightShare:
    """What one thread copies of a tile of weights: every `threads`-th quad, from tile `first` on."""

    def __init__(self, code: Code, template: Ffma, weights: Value, first: Value, thread: Value) -> None:
        tile = template.tile
        self.code, self.weights = code, weights
        self.nbytes, self.pitch = tile.steps * tile.columns * FLOAT, tile.threads * QUAD * FLOAT
        assert self.nbytes % self.pitch == 0
        self.start = thread * (QUAD * FLOAT)
        self.first = first * self.nbytes + self.start
        self.slot = self.start + tile.rows * tile.row_pitch * FLOAT

    def copy(self, tile: Value, slot: Value) -> None:
        """Begins to copy this thread's share of a tile of K to the shared address `slot`."""
        source = self.first + tile * self.nbytes
        for at in range(0, self.nbytes, self.pitch):
            copy_async(self.code, slot + self.slot + at, self.weights, source + at, QUAD * FLOAT)

    def fetch(self, tile: Value, real: Value) -> list[list[Value]]:
        """This thread's share in registers, for `put`; zeros for a tile that is not `real`."""
        source = self.first + tile * self.nbytes
        places = range(0, self.nbytes, self.pitch)
        return [self.code.load_where(real, self.weights, source + at, QUAD) for at in places]

    def put(self, quads: Sequence[Sequence[Value]], slot: Value) -> None:
        """Stores what `fetch` gave to the shared address `slot`."""
        for at, quad in enumerate(quads):
            self.code.store(quad, slot + self.slot, at * self.pitch)


class FfmaKernel:
    """Writes the kernel of one template."""

    def __init__(self, code: Code, template: Ffma, arguments: Arguments) -> None:
        self.code, self.template, self.arguments = code, template, arguments
        tile = self.tile = template.tile
        blocks, self.depth, self.outputs, self.channels, *sizes = arguments.sizes
        self.thread, z = code.special("tid.x"), code.special("ctaid.z")
        is_alone = not (template.is_part or template.is_scattered)
        self.group, self.part = (z, code.integer(0)) if is_alone else (z // blocks, z % blocks)
        tiles, share, entry, weight, *problem = self._phase() if template.is_scattered else sizes
        self.pixels, self.places = problem[0], problem[SOURCE_SIZES:][:PLACE_SIZES]
        self.panel = self.group * code.special("nctaid.y") + code.special("ctaid.y")
        self.first_pixel = code.special("ctaid.x") * tile.rows
        skipped = self.part * share if template.is_part else code.integer(0)
        self.count = code.minimum(share, tiles - skipped)
        self.first_entry, first_weight = entry + skipped, weight + self.panel * tiles + skipped
        self.shared = code.dynamic_shared()
        gather = Gather(code, problem[:SOURCE_SIZES], arguments.table, template.width, direct=template.is_direct)
        self.data = DataShare(code, template, gather, arguments.data, self.thread)
        self.weights = WeightShare(code, template, arguments.weights, first_weight, self.thread)
        self._locate_lane()

    def _phase(self) -> list[Value]:
        """The numbers of this block's phase."""
        places = [self.part * (RECORD * FLOAT) + at for at in range(0, RECORD * FLOAT, QUAD * FLOAT)]
        return [number for place in places for number in self.code.load(self.arguments.phases, place, I32, QUAD)]

    def _locate_lane(self) -> None:
        """Which rows, columns and slice of K this thread multiplies.

        Neighbouring lanes share columns and those two apart rows: a 16-byte load of either takes half the time.
        """
        tile, thread = self.tile, self.thread
        lane, warp = thread & 31, thread >> 5
        down, across = lane & 1 | lane >> 4 << 1, lane >> 1 & LANES_ACROSS - 1
        self.slice = warp // (tile.warps_down * tile.warps_across)
        within = warp % (tile.warps_down * tile.warps_across)
        self.row = within // tile.warps_across * (LANES_DOWN * tile.height) + down
        self.column = within % tile.warps_across * (LANES_ACROSS * tile.width) + across * QUAD
        step = self.slice * (tile.steps // tile.slices)
        self.rows_start = (self.row * tile.row_pitch + step) * FLOAT
        self.columns_start = (tile.rows * tile.row_pitch + step * tile.columns + self.column) * FLOAT

    def write(self) -> None:
        """The whole kernel."""
        sums = self._overlapped() if self.template.is_asynchronous else self._through_registers()
        self._finish(sums)

    # multiplication

    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        """The sums after this thread's slice of the tile at the shared address `slot`."""
        tile, sums = self.tile, list(sums)
        rows, columns = slot + self.rows_start, slot + self.columns_start
        for step in range(0, tile.steps // tile.slices, QUAD):
            left = [
                self.code.load(rows, (at * LANES_DOWN * tile.row_pitch + step) * FLOAT, F32, QUAD)
                for at in range(tile.height)
            ]
            for k in range(QUAD):
                right = self._weights(columns, (step + k) * tile.columns)
                products = [(row[k], column) for row in left for column in right]
                sums = [self.code.fma(a, b, c) for (a, b), c in zip(products, sums, strict=True)]
        return sums

    def _weights(self, columns: Value, place: int) -> list[Value]:
        """One step's weights for the columns of this thread: quads, LANES_ACROSS quads apart."""
        places = range(self.tile.width // QUAD)
        quads = [self.code.load(columns, (place + at * LANES_ACROSS * QUAD) * FLOAT, F32, QUAD) for at in places]
        return [number for quad in quads for number in quad]

    def _nothing(self) -> list[Value]:
        return [self.code.real(0.0)] * (self.tile.height * self.tile.width)

    def _next_slot(self, slot: Value) -> Value:
        following = slot + self.tile.stage_bytes
        return self.code.select(following.equals(self.template.stages * self.tile.stage_bytes), 0, following)

    def _entry(self, tile: Value) -> Entry:
        """Of a tile of this block that may be past the last one: then of the last one."""
        return self.data.entry(self.first_entry + self.code.minimum(tile, self.count - 1))

    def _rows(self) -> list[Row]:
        return self.data.rows(self.first_pixel, self.group * self.depth)

    # asynchronous copies, several tiles ahead

    def _overlapped(self) -> list[Value]:
        """Copies run `stages - 1` tiles ahead of the multiplications; entries of the table one tile further."""
        code, ahead = self.code, self.template.stages - 1
        entries = [self._entry(code.integer(number)) for number in range(ahead + 1)]
        rows = self._rows()
        for number in range(ahead):
            self._copy(rows, entries[number], code.integer(number), code.integer(number * self.tile.stage_bytes))
        slots = [code.integer(0), code.integer(ahead * self.tile.stage_bytes)]
        initial = [*slots, entries[ahead].offset, entries[ahead].taps, *self._nothing()]
        with code.carried(self.count, initial) as (tile, now, following):
            await_copies(code, ahead - 1)
            code.barrier()
            self._copy(rows, Entry(now[2], now[3]), tile + ahead, now[1])
            entry = self._entry(tile + ahead + 1)
            following[:4] = self._next_slot(now[0]), self._next_slot(now[1]), entry.offset, entry.taps
            following[4:] = self._accumulate(now[4:], self.shared + now[0])
        return following[4:]

    def _copy(self, rows: Sequence[Row], entry: Entry, tile: Value, slot: Value) -> None:
        with self.code.when(tile < self.count):
            self.data.copy(rows, entry, self.shared + slot)
            self.weights.copy(tile, self.shared + slot)
        commit_copies(self.code)

    # copies through registers, one tile ahead

    def _through_registers(self) -> list[Value]:
        """While a tile is multiplied the next one is on its way to registers."""
        code, zero = self.code, self.code.integer(0)
        rows, entry = self._rows(), self._entry(code.integer(1))
        self._put(self._fetch(rows, self._entry(zero), zero), self.shared)
        initial = [zero, entry.offset, entry.taps, *self._nothing()]
        with code.carried(self.count, initial) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(rows, Entry(now[1], now[2]), tile + 1)
            entry = self._entry(tile + 2)
            following[:3] = self._next_slot(now[0]), entry.offset, entry.taps
            following[3:] = self._accumulate(now[3:], self.shared + now[0])
            self._put(fetched, self.shared + following[0])
        return following[3:]

    def _fetch(self, rows: Sequence[Row], entry: Entry, tile: Value) -> tuple[list[list[Value]], list[list[Value]]]:
        return self.data.fetch(rows, entry), self.weights.fetch(tile, tile < self.count)

    def _put(self, fetched: tuple[list[list[Value]], list[list[Value]]], slot: Value) -> None:
        self.data.put(fetched[0], slot)
        self.weights.put(fetched[1], slot)

    # sums to the output

    def _finish(self, sums: Sequence[Value]) -> None:
        """Slices of K meet in shared memory, then every thread finishes some quads."""
        code, tile, slices = self.code, self.tile, self.tile.slices
        while slices > tile.meeting:
            slices //= 2
            sums = self._folded(sums, slices)
        code.barrier()
        with code.when(self.slice < slices):
            self._share(sums, self.slice)
        code.barrier()
        across = tile.columns // QUAD
        first, column = self.thread // across, self.thread % across * QUAD
        bias = self._bias(column)
        with code.loop(tile.rows, start=first, step=tile.threads // across) as row:
            pixel = self.first_pixel + row
            with code.when(pixel < self.pixels):
                parts = [self._shared_quad(part, row, column) for part in range(slices)]
                total = [reduce_tree(values, lambda a, b: a + b) for values in zip(*parts, strict=True)]
                self._store(total, bias, pixel, column)

    def _folded(self, sums: Sequence[Value], half: int) -> list[Value]:
        """The sums of slices below `half`, those of slices from there on added to them."""
        self.code.barrier()
        with self.code.when(self.slice < 2 * half), self.code.when(self.slice >= half):
            self._share(sums, self.slice % half)
        self.code.barrier()
        other = [
            number for row, column in self._quads() for number in self._shared_quad(self.slice % half, row, column)
        ]
        return [a + b for a, b in zip(sums, other, strict=True)]

    def _quads(self) -> list[tuple[Value, Value]]:
        """The first row and column of every quad of this thread's sums."""
        rows = [self.row + at * LANES_DOWN for at in range(self.tile.height)]
        columns = [self.column + at * LANES_ACROSS * QUAD for at in range(self.tile.width // QUAD)]
        return [(row, column) for row in rows for column in columns]

    def _share(self, sums: Sequence[Value], part: Value) -> None:
        for at, (row, column) in enumerate(self._quads()):
            self.code.store(sums[at * QUAD : (at + 1) * QUAD], self._sum_place(part, row, column), 0)

    def _shared_quad(self, part: Value | int, row: Value, column: Value) -> list[Value]:
        return self.code.load(self._sum_place(part, row, column), 0, F32, QUAD)

    def _sum_place(self, part: Value | int, row: Value, column: Value) -> Value:
        """Shared address of a sum; halves of odd rows change places, so that a warp's stores meet no bank twice."""
        tile = self.tile
        swizzled = column ^ ((row & 1) << 4)
        return self.shared + (row * tile.columns + swizzled) * FLOAT + part * (tile.rows * tile.columns * FLOAT)

    def _bias(self, column: Value) -> list[Value]:
        if self.template.is_part:
            return []
        return load(self.code, Element.FLOAT32, self.arguments.bias, self.panel * self.tile.columns + column, QUAD)

    def _store(self, sums: Sequence[Value], bias: Sequence[Value], pixel: Value, column: Value) -> None:
        """Stores a quad of the tile's columns in runs that lie whole inside the group's channels or outside."""
        first = self.code.special("ctaid.y") * self.tile.columns + column
        run = self.template.run
        for at in range(0, QUAD, run):
            with self.code.when(first + at < self.outputs):
                channel = self.group * self.outputs + first + at
                if self.template.is_part:
                    place = (self.part * self.pixels + pixel) * self.channels + channel
                    store(self.code, Element.FLOAT32, sums[at : at + run], self.arguments.output, place)
                else:
                    results = [a + b for a, b in zip(sums[at : at + run], bias[at : at + run], strict=True)]
                    self._store_run(results, pixel, channel)

    def _store_run(self, results: Sequence[Value], pixel: Value, channel: Value) -> None:
        template, arguments = self.template, self.arguments
        if template.is_scattered:
            pixel = output_pixel(pixel, self.places)
        results = template.epilogue.apply(self.code, results, pixel, channel, self.channels, arguments.extra)
        store(self.code, template.output, results, arguments.output, pixel * self.channels + channel)
