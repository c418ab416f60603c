"""TopK: the indices of the largest elements of rows."""

from __future__ import annotations

from math import sqrt

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import TopK
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import Placed, job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.arg_reduce import I32, indices_from

HIGHEST_PLACE = (1 << 31) - 1
RANK_BYTES = 8
NOTHING = -(1 << 63)
"""A rank below that of any element."""
FIRST = (1 << 63) - 1
"""A rank above that of any element."""


def write_top_k(writer: Writer, node: Node, form: TopK) -> list[Job]:
    """The jobs of a TopK node: one row per row of the data.

    Elements have unique integer ranks. A row is cut into blocks, and scratch memory holds the best rank of each. Each
    result takes the best of these ranks; then its block is searched for the next best.
    """
    (data, out), lanes = placed(writer, node), writer.generator.lanes
    size, count = data.shape[-1], out.shape[-1]
    vectors = max(1, round(sqrt(size) / lanes))
    blocks = -(-size // (vectors * lanes))
    groups = -(-blocks // lanes)
    writer.generator.reserve_scratch(groups * lanes * RANK_BYTES)

    def row(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        start = kernel.pointer(data.memory) + offset_of(f, number, data.axes[:-1])
        target = kernel.pointer(out.memory) + number * (count * out.nbytes)

        def look(block: Value, limit: Value) -> None:
            best = _best_of_block(f, data, start, block * (vectors * lanes), vectors, limit, lanes)
            f.store(best, kernel.scratch + block * RANK_BYTES, RANK_BYTES)

        def one(i: Value) -> None:
            best = _best_of_blocks(f, kernel.scratch, groups, lanes)
            index = f.literal(I32, HIGHEST_PLACE) - f.cast("trunc", best, I32)
            f.store(index, target + i * out.nbytes)
            look(f.cast("zext", index, INDEX) // (vectors * lanes), best)

        nothing = f.literal(vector(lanes, INDEX), NOTHING)
        f.loop(groups, lambda i: f.store(nothing, kernel.scratch + i * (lanes * RANK_BYTES), RANK_BYTES))
        f.loop(blocks, lambda i: look(i, f.index(FIRST)))
        f.loop(count, one)

    work = size + 4 * count * vectors * lanes
    return [job_of_rows(writer.generator, "top_k", size_of(data.axes[:-1]), work, row)]


def _best_of_blocks(f: Function, scratch: Value, groups: int, lanes: int) -> Value:
    type_ = vector(lanes, INDEX)

    def step(i: Value, best: Value) -> list[Value]:
        return [_higher(f, f.load(type_, scratch + i * (lanes * RANK_BYTES), RANK_BYTES), best)]

    (best,) = f.loop(groups, step, f.literal(type_, NOTHING))
    return f.intrinsic("vector.reduce.smax", INDEX, best)


def _best_of_block(
    f: Function, data: Placed, start: Value, first: Value, vectors: int, limit: Value, lanes: int
) -> Value:
    """The highest rank below `limit` in the block that starts at element `first`; NOTHING if there is none."""
    limits, nothing = f.splat(limit, lanes), f.literal(vector(lanes, INDEX), NOTHING)

    def step(i: Value, best: Value) -> list[Value]:
        at = first + i * lanes
        indices = indices_from(f, at, lanes)
        mask = f.compare("slt", indices, data.shape[-1])
        rank = _rank(f, load(f, data.dtype, start + at * data.nbytes, lanes, data.nbytes, mask), indices)
        eligible = mask & f.compare("slt", rank, limits)
        return [_higher(f, f.select(eligible, rank, nothing), best)]

    (best,) = f.loop(vectors, step, nothing)
    return f.intrinsic("vector.reduce.smax", INDEX, best)


def _higher(f: Function, a: Value, b: Value) -> Value:
    return f.select(f.compare("sgt", a, b), a, b)


def _rank(f: Function, value: Value, indices: Value) -> Value:
    """int64 ranks of float32 or int32 values: larger values rank higher; of equal values, the first ranks highest."""
    high = f.convert("sext", _key(f, value), INDEX) << 32
    left = f.literal(indices.type, HIGHEST_PLACE) - indices
    return high | f.convert("zext", left, INDEX)


def _key(f: Function, value: Value) -> Value:
    """int32s with the same order as the values."""
    if not value.is_float:
        return value
    bits = f.convert("bitcast", value + 0.0, I32)  # -0.0 + 0.0 is 0.0, which equals it
    return bits ^ (f.ashr(bits, 31) & HIGHEST_PLACE)
