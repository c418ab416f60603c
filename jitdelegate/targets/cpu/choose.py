"""ArgReduce and TopK: where the largest or smallest elements are."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from jitdelegate.ir.index_forms import ArgReduce
from jitdelegate.targets.cpu.element import cast, load, store
from jitdelegate.targets.cpu.kernel import Generator, Job, Kernel
from jitdelegate.targets.cpu.reduce import offset_of
from jitdelegate.targets.cpu.rows import Placed, along_row, job_of_rows, size_of
from jitdelegate.targets.cpu.vector_ir import FLOAT, INDEX, Function, Value, element_type, lanes_of, vector

I32 = "i32"
HIGHEST_PLACE = (1 << 31) - 1
RANK_BYTES = 8
NOTHING = -(1 << 63)
"""As a rank: lower than that of any element."""
FIRST = (1 << 63) - 1
"""As a rank: higher than that of any element."""


@dataclass(frozen=True)
class Best:
    """A value and its place, or a vector of them."""

    value: Value
    place: Value

    def select(self, f: Function, condition: Value, other: Best) -> Best:
        """This one where the condition holds, the other elsewhere."""
        return Best(f.select(condition, self.value, other.value), f.select(condition, self.place, other.place))

    def lane(self, f: Function, number: int) -> Best:
        """One of a vector's lanes; a scalar has only itself."""
        if lanes_of(self.value.type) == 1:
            return self
        return Best(*(_lane(f, vector, number) for vector in (self.value, self.place)))


def _lane(f: Function, value: Value, number: int) -> Value:
    return f.emit(element_type(value.type), f"extractelement {value}, i64 {number}")


def both(f: Function, a: Value, b: Value) -> Value:
    """Whether both conditions hold."""
    return f.emit(a.type, f"and {a}, {b.text}")


def either(f: Function, a: Value, b: Value) -> Value:
    """Whether one of two conditions holds."""
    return f.emit(a.type, f"or {a}, {b.text}")


def beats(f: Function, a: Value, b: Value, kind: str = "max") -> Value:
    """Whether `a` is larger than `b`, or smaller with kind "min"; never with NaN."""
    prefix = "o" if element_type(a.type) == FLOAT else "s"
    return f.compare(prefix + {"max": "gt", "min": "lt"}[kind], a, b)


def equals(f: Function, a: Value, b: Value) -> Value:
    """Whether both are equal; never with NaN."""
    return f.compare("oeq" if element_type(a.type) == FLOAT else "eq", a, b)


def best_lane(f: Function, best: Best, kind: str = "max") -> Best:
    """Of all lanes the best, of equals the one with the lowest place."""
    found = best.lane(f, 0)
    for number in range(1, lanes_of(best.value.type)):
        other = best.lane(f, number)
        earlier = both(f, equals(f, other.value, found.value), f.compare("slt", other.place, found.place))
        found = other.select(f, either(f, beats(f, other.value, found.value, kind), earlier), found)
    return found


def places_from(f: Function, first: Value, lanes: int) -> Value:
    """The places `first`, `first` + 1, ... of a vector's lanes, as int32."""
    start = f.splat(f.cast("trunc", first, I32), lanes)
    if lanes == 1:
        return start
    numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return f.emit(start.type, f"add {start}, <{numbers}>")


class ArgReduceWriter:
    """Writes the jobs of ArgReduce nodes."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def jobs(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        """One row per output where the last axis is reduced, else one per row of outputs."""
        if form.axis == len(data.shape) - 1:
            return self._along(form, data, out)
        return self._across(form, data, out)

    def _along(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        size, lanes = data.shape[-1], self.generator.lanes

        def row(kernel: Kernel, number: Value) -> None:
            f = kernel.f
            start = kernel.pointer(data.memory) + offset_of(f, number, data.axes[:-1])
            first = load(f, data.dtype, start, 1, 0)
            best = Best(first, f.literal(I32, 0))
            done = size // lanes * lanes if size >= 2 * lanes else 0
            if done:
                wide = Best(f.splat(best.value, lanes), f.splat(best.place, lanes))
                best = best_lane(f, self._scan(f, form.kind, data, start, (0, done), lanes, wide), form.kind)
            if size > done:
                best = self._scan(f, form.kind, data, start, (done, size), 1, best)
            _store_place(f, out, best.place, kernel.pointer(out.memory) + number * out.nbytes, None)

        return [job_of_rows(self.generator, "arg_reduce", size_of(data.axes[:-1]), size, row)]

    @staticmethod
    def _scan(
        f: Function, kind: str, data: Placed, start: Value, part: tuple[int, int], lanes: int, best: Best
    ) -> Best:
        """The best of each lane over a part of a row, of equals the first."""
        first, last = part

        def step(i: Value, value: Value, place: Value) -> list[Value]:
            at = i * lanes + first
            found = Best(load(f, data.dtype, start + at * data.nbytes, lanes, data.nbytes), places_from(f, at, lanes))
            now = found.select(f, beats(f, found.value, value, kind), Best(value, place))
            return [now.value, now.place]

        return Best(*f.loop((last - first) // lanes, step, best.value, best.place))

    def _across(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        """Each lane looks at its own column."""
        last = len(data.shape) - 1
        kept = [axis for axis in range(last) if axis != form.axis]
        columns, along = data.shape[last], data.axes[form.axis]

        def row(kernel: Kernel, number: Value) -> None:
            f = kernel.f
            start = kernel.pointer(data.memory) + offset_of(f, number, [data.axes[axis] for axis in kept])
            target = kernel.pointer(out.memory) + number * (columns * out.nbytes)

            def column(first: Value, mask: Value | None) -> list[Value]:
                at, lanes = start + first * data.nbytes, self.generator.lanes

                def step(i: Value, value: Value, place: Value) -> list[Value]:
                    loaded = load(f, data.dtype, at + i * along.distance, lanes, data.nbytes, mask)
                    found = Best(loaded, f.splat(f.cast("trunc", i, I32), lanes))
                    now = found.select(f, beats(f, loaded, value, form.kind), Best(value, place))
                    return [now.value, now.place]

                value = load(f, data.dtype, at, lanes, data.nbytes, mask)
                _, place = f.loop(along.size, step, value, f.literal(vector(lanes, I32), 0))
                _store_place(f, out, place, target + first * out.nbytes, mask)
                return []

            along_row(f, columns, self.generator.lanes, column)

        rows = size_of([data.axes[axis] for axis in kept])
        return [job_of_rows(self.generator, "arg_reduce", rows, columns * along.size, row)]


def _store_place(f: Function, out: Placed, place: Value, at: Value, mask: Value | None) -> None:
    store(f, out.dtype, cast(f, place, "int32", out.dtype), at, mask)


class TopKWriter:
    """Writes the jobs of TopK nodes.

    Elements are ranked by integers that no two share. A row is cut into blocks, of which scratch memory holds the best
    rank each; a result takes the best of them and looks through its block for the next one.
    """

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def jobs(self, data: Placed, out: Placed) -> list[Job]:
        """One row per row of the data."""
        size, count, lanes = data.shape[-1], out.shape[-1], self.generator.lanes
        vectors = max(1, round(sqrt(size) / lanes))
        blocks = -(-size // (vectors * lanes))
        groups = -(-blocks // lanes)
        self.generator.reserve_scratch(groups * lanes * RANK_BYTES)

        def row(kernel: Kernel, number: Value) -> None:
            f = kernel.f
            start = kernel.pointer(data.memory) + offset_of(f, number, data.axes[:-1])
            target = kernel.pointer(out.memory) + number * (count * out.nbytes)

            def look(block: Value, limit: Value) -> None:
                best = self._best_of_block(f, data, start, block * (vectors * lanes), vectors, limit)
                f.store(best, kernel.scratch + block * RANK_BYTES, RANK_BYTES)

            def one(i: Value) -> None:
                best = self._best_of_blocks(f, kernel.scratch, groups)
                place = f.arithmetic("sub", f.literal(I32, HIGHEST_PLACE), f.cast("trunc", best, I32))
                f.store(place, target + i * out.nbytes)
                look(f.cast("zext", place, INDEX) // (vectors * lanes), best)

            nothing = f.literal(vector(lanes, INDEX), NOTHING)
            f.loop(groups, lambda i: f.store(nothing, kernel.scratch + i * (lanes * RANK_BYTES), RANK_BYTES))
            f.loop(blocks, lambda i: look(i, f.index(FIRST)))
            f.loop(count, one)

        return [job_of_rows(self.generator, "top_k", size_of(data.axes[:-1]), size + 4 * count * vectors * lanes, row)]

    def _best_of_blocks(self, f: Function, scratch: Value, groups: int) -> Value:
        lanes = self.generator.lanes
        type_ = vector(lanes, INDEX)

        def step(i: Value, best: Value) -> list[Value]:
            found = f.load(type_, scratch + i * (lanes * RANK_BYTES), RANK_BYTES)
            return [_higher(f, found, best)]

        (best,) = f.loop(groups, step, f.literal(type_, NOTHING))
        return f.intrinsic("vector.reduce.smax", INDEX, best)

    def _best_of_block(
        self, f: Function, data: Placed, start: Value, first: Value, vectors: int, limit: Value
    ) -> Value:
        """The highest rank below `limit` of the elements from `first` on; NOTHING if there is none."""
        lanes, type_ = self.generator.lanes, vector(self.generator.lanes, INDEX)
        limits, nothing = f.splat(limit, lanes), f.literal(type_, NOTHING)

        def step(i: Value, best: Value) -> list[Value]:
            at = first + i * lanes
            places = places_from(f, at, lanes)
            mask = f.compare("slt", places, data.shape[-1])
            rank = _rank(f, load(f, data.dtype, start + at * data.nbytes, lanes, data.nbytes, mask), places)
            eligible = both(f, mask, f.compare("slt", rank, limits))
            return [_higher(f, f.select(eligible, rank, nothing), best)]

        (best,) = f.loop(vectors, step, nothing)
        return f.intrinsic("vector.reduce.smax", INDEX, best)


def _higher(f: Function, a: Value, b: Value) -> Value:
    return f.select(f.compare("sgt", a, b), a, b)


def _rank(f: Function, value: Value, places: Value) -> Value:
    """int64s that order by the value, a float32 or int32, and where it is equal by the place, the first highest."""
    key, wide = _key(f, value), vector(lanes_of(value.type), INDEX)
    high = f.emit(wide, f"shl {f.cast('sext', key, wide)}, {f.literal(wide, 32).text}")
    left = f.arithmetic("sub", f.literal(places.type, HIGHEST_PLACE), places)
    return f.emit(wide, f"or {high}, {f.cast('zext', left, wide).text}")


def _key(f: Function, value: Value) -> Value:
    """An int32 that orders as the value does."""
    if element_type(value.type) != FLOAT:
        return value
    bits = f.cast("bitcast", value + 0.0, vector(lanes_of(value.type), I32))  # -0.0 + 0.0 is 0.0, its equal
    sign = f.emit(bits.type, f"ashr {bits}, {f.literal(bits.type, 31).text}")
    flipped = f.emit(bits.type, f"and {sign}, {f.literal(bits.type, HIGHEST_PLACE).text}")
    return f.emit(bits.type, f"xor {bits}, {flipped.text}")
