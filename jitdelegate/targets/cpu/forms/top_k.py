"""TopK: the indices of the largest elements of rows."""

from __future__ import annotations

from math import sqrt

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import TopK
from jitdelegate.targets.cpu.code.axes import offset_of
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Job, JobWriter, Kernel
from jitdelegate.targets.cpu.code.rows import Placed, job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, INDEX, Function, Value, element_type, lanes_of, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.arg_reduce import I32, places_from

HIGHEST_PLACE = (1 << 31) - 1
RANK_BYTES = 8
NOTHING = -(1 << 63)
"""A rank below that of any element."""
FIRST = (1 << 63) - 1
"""A rank above that of any element."""


def write_top_k(writer: Writer, node: Node, form: TopK) -> list[Job]:
    """The jobs of a TopK node."""
    return TopKWriter(writer.generator).jobs(*placed(writer, node))


class TopKWriter(JobWriter):
    """Writes the jobs of TopK nodes.

    Elements have unique integer ranks. A row is cut into blocks, and scratch memory holds the best rank of each. Each
    result takes the best of these ranks; then its block is searched for the next best.
    """

    def jobs(self, data: Placed, out: Placed) -> list[Job]:
        """The jobs of a node: one row per row of the data."""
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
        """The highest rank below `limit` in the block that starts at element `first`; NOTHING if there is none."""
        lanes, type_ = self.generator.lanes, vector(self.generator.lanes, INDEX)
        limits, nothing = f.splat(limit, lanes), f.literal(type_, NOTHING)

        def step(i: Value, best: Value) -> list[Value]:
            at = first + i * lanes
            places = places_from(f, at, lanes)
            mask = f.compare("slt", places, data.shape[-1])
            rank = _rank(f, load(f, data.dtype, start + at * data.nbytes, lanes, data.nbytes, mask), places)
            eligible = mask & f.compare("slt", rank, limits)
            return [_higher(f, f.select(eligible, rank, nothing), best)]

        (best,) = f.loop(vectors, step, nothing)
        return f.intrinsic("vector.reduce.smax", INDEX, best)


def _higher(f: Function, a: Value, b: Value) -> Value:
    return f.select(f.compare("sgt", a, b), a, b)


def _rank(f: Function, value: Value, places: Value) -> Value:
    """int64 ranks of float32 or int32 values: larger values rank higher; of equal values, the first ranks highest."""
    key, wide = _key(f, value), vector(lanes_of(value.type), INDEX)
    high = f.emit(wide, f"shl {f.cast('sext', key, wide)}, {f.literal(wide, 32).text}")
    left = f.arithmetic("sub", f.literal(places.type, HIGHEST_PLACE), places)
    return f.emit(wide, f"or {high}, {f.cast('zext', left, wide).text}")


def _key(f: Function, value: Value) -> Value:
    """int32s with the same order as the values."""
    if element_type(value.type) != FLOAT:
        return value
    bits = f.cast("bitcast", value + 0.0, vector(lanes_of(value.type), I32))  # -0.0 + 0.0 is 0.0, which equals it
    sign = f.emit(bits.type, f"ashr {bits}, {f.literal(bits.type, 31).text}")
    flipped = f.emit(bits.type, f"and {sign}, {f.literal(bits.type, HIGHEST_PLACE).text}")
    return f.emit(bits.type, f"xor {bits}, {flipped.text}")
