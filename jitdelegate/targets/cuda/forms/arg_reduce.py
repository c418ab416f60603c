"""ArgReduce and TopK: the indices of the largest or smallest elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import ArgReduce, TopK
from jitdelegate.targets.cuda.code.axes import Rows
from jitdelegate.targets.cuda.code.device_code import I32, I64, Code, Value
from jitdelegate.targets.cuda.code.element import WORD, Element, load, store
from jitdelegate.targets.cuda.code.lanes import WARP, combine_lanes, power_of_two
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.maths.cast import cast
from jitdelegate.targets.maths.selection import FIRST, NOTHING, index_of, rank

THREADS = 256
LONG_ROW = 1024
"""Elements of a row from which on a whole block works on the row."""


@dataclass(frozen=True, eq=False)
class ArgReduceTemplate(Template):
    """`lanes` threads compute each output: a part of a warp or a whole block. Each thread reads every lanes-th
    element."""

    family: ClassVar[str] = "arg_reduce"
    threads: ClassVar[int] = THREADS
    parameters: ClassVar[tuple[Kind, ...]] = ("pointer", "pointer", Rows)
    kind: str
    lanes: int
    source: Element
    target: Element

    def write(self, code: Code, out: Value, data: Value, rows: Rows) -> None:
        thread = self.thread(code)
        row, lane = thread // self.lanes, thread & (self.lanes - 1)
        exists = row < rows.number
        first = rows.first(code, code.select(exists, row, 0))
        start = [self._load(code, data, first), code.integer(0)]
        with code.carried(rows.length, start, lane, self.lanes) as (place, (best, at), following):
            value = self._load(code, data, first + place * rows.pitch.size)
            better = self._beats(value, best)
            following[:] = code.select(better, value, best), code.select(better, place, at)
        best, at = self._combined(code, *following)
        with code.when(exists & lane.equals(0)):
            place = at if self.target is Element.INT32 else Value(code, code.builder.zext(at.value, I64))
            store(code, self.target, [place], out, row)

    def _load(self, code: Code, data: Value, index: Value) -> Value:
        """An element; integers of 8 and 16 bits as int32."""
        (value,) = load(code, self.source, data, index)
        is_narrow = not value.is_float and value.bits < 8 * WORD
        return cast(code, value, self.source.dtype, "int32") if is_narrow else value

    def _beats(self, a: Value, b: Value) -> Value:
        return a > b if self.kind == "max" else a < b

    def _combined(self, code: Code, best: Value, at: Value) -> tuple[Value, Value]:
        """The best value of all lanes and its index; the first one of equal values."""
        for mask in (1, 2, 4, 8, 16):
            if mask < self.lanes:
                other = code.shuffle_xor(best, mask), code.shuffle_xor(at, mask)
                best, at = self._better(code, other, (best, at))
        return (best, at) if self.lanes <= WARP else self._combined_warps(code, best, at)

    def _combined_warps(self, code: Code, best: Value, at: Value) -> tuple[Value, Value]:
        thread, warps = code.special("tid.x"), self.lanes // WARP
        values, places = (code.static_shared(WORD * warps, name) for name in ("values", "places"))
        with code.when((thread & (WARP - 1)).equals(0)):
            code.store([best], values, thread // WARP * WORD)
            code.store([at], places, thread // WARP * WORD)
        code.barrier()
        for warp in range(warps):
            other = code.load(values, warp * WORD, best.value.type)[0], code.load(places, warp * WORD, I32)[0]
            best, at = self._better(code, other, (best, at))
        return best, at

    def _better(self, code: Code, other: tuple[Value, Value], own: tuple[Value, Value]) -> tuple[Value, Value]:
        """The better of two values with their indices; the first one of equal values."""
        is_first = other[0].equals(own[0]) & (other[1] < own[1])
        better = self._beats(other[0], own[0]) | is_first
        return code.select(better, other[0], own[0]), code.select(better, other[1], own[1])


def write_arg_reduce(writer: Writer, node: Node, form: ArgReduce) -> None:
    """Writes the launch of an ArgReduce node: a block, a warp or a part of a warp per row, or a thread per column."""
    source, target = node.inputs[0], node.outputs[0]
    rows = Rows.of(writer.shape(source), form.axis)
    lanes = THREADS if rows.length >= LONG_ROW else min(WARP, power_of_two(rows.length))
    lanes = lanes if rows.pitch.size == 1 else 1
    template = ArgReduceTemplate(form.kind, lanes, writer.element(source), writer.element(target))
    writer.launch(template, template.grid(rows.number * lanes), [writer.pointer(target), writer.pointer(source), rows])


def highest(code: Code, a: Value, b: Value) -> Value:
    """The higher of two ranks."""
    return code.select(a > b, a, b)


class RankedSizes(NamedTuple):
    """Number of elements in a row, and number of results per row."""

    length: Number
    results: Number


@dataclass(frozen=True, eq=False)
class TopKTemplate(Template):
    """One block per row and one round per result: each round finds the highest rank below that of the round before."""

    family: ClassVar[str] = "top_k"
    threads: ClassVar[int] = THREADS
    parameters: ClassVar[tuple[Kind, ...]] = ("pointer", "pointer", RankedSizes)
    source: Element

    def write(self, code: Code, out: Value, data: Value, sizes: RankedSizes) -> None:
        row, thread = code.special("ctaid.x"), code.special("tid.x")
        with code.carried(sizes.results, [Value(code, I64(FIRST))]) as (number, (last,), following):
            own = self._own(code, data, row * sizes.length, sizes.length, last)
            following[0] = combine_lanes(code, own, THREADS, highest, "ranks")
            with code.when(thread.equals(0)):
                store(code, Element.INT32, [index_of(code, following[0])], out, row * sizes.results + number)
            code.barrier()  # the next round writes to the shared memory that this round reads

    def _own(self, code: Code, data: Value, first: Value, size: Value, last: Value) -> Value:
        """The highest rank below `last` among the thread's own elements of a row."""
        start = [Value(code, I64(NOTHING))]
        with code.carried(size, start, code.special("tid.x"), THREADS) as (place, (best,), following):
            ranked = rank(code, load(code, self.source, data, first + place)[0], place)
            following[0] = code.select((ranked < last) & (ranked > best), ranked, best)
        return following[0]


def write_top_k(writer: Writer, node: Node, form: TopK) -> None:
    """Writes the launch of a TopK node."""
    source, target = node.inputs[0], node.outputs[0]
    sizes = RankedSizes(writer.shape(source)[-1], writer.shape(target)[-1])
    rows = prod(writer.shape(source)) // sizes.length
    template = TopKTemplate(writer.element(source))
    writer.launch(template, (rows, 1, 1), [writer.pointer(target), writer.pointer(source), sizes])
