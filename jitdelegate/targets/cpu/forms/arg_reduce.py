"""ArgReduce and TopK: the indices of the largest or smallest elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import ArgReduce, TopK
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.fold import Fold
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import Placed, along_row, job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, INDEX, Function, Value, element_type, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.cast import cast
from jitdelegate.targets.maths.selection import FIRST, NOTHING, index_of, rank

I32 = "i32"
RANK_BYTES = 8
SHORT_VECTORS = 4
"""Rows of up to this many vectors are held in registers whole."""


@dataclass(frozen=True)
class Best:
    """A value and its index, or a vector of values and a vector of their indices."""

    value: Value
    index: Value

    def select(self, f: Function, condition: Value, other: Best) -> Best:
        """Per lane: this one where the condition holds, `other` elsewhere."""
        return Best(f.select(condition, self.value, other.value), f.select(condition, self.index, other.index))

    def lane(self, f: Function, number: int) -> Best:
        """Lane `number` of the vectors; a scalar is returned as it is."""
        if self.value.lanes == 1:
            return self
        return Best(f.part(self.value, number, 1), f.part(self.index, number, 1))


def beats(f: Function, a: Value, b: Value, kind: str = "max") -> Value:
    """Whether `a` is larger than `b`, or smaller for kind "min"; false for NaN."""
    return f.compare(("o" if a.is_float else "s") + {"max": "gt", "min": "lt"}[kind], a, b)


def equals(f: Function, a: Value, b: Value) -> Value:
    """Whether both are equal; false for NaN."""
    return f.compare("oeq" if a.is_float else "eq", a, b)


def best_lane(f: Function, best: Best, kind: str = "max") -> Best:
    """The best of all lanes; of equal lanes, the one with the lowest index."""
    result = best.lane(f, 0)
    for number in range(1, best.value.lanes):
        other = best.lane(f, number)
        earlier = equals(f, other.value, result.value) & f.compare("slt", other.index, result.index)
        result = other.select(f, beats(f, other.value, result.value, kind) | earlier, result)
    return result


def indices_from(f: Function, first: Value, lanes: int) -> Value:
    """The indices `first`, `first` + 1, ... of a vector's lanes, as int32."""
    start = f.splat(f.cast("trunc", first, I32), lanes)
    return start if lanes == 1 else start + f.numbers(range(lanes), I32)


def write_arg_reduce(writer: Writer, node: Node, form: ArgReduce) -> list[Job]:
    """The jobs of an ArgReduce node: one row per output if the last axis is reduced, else one per row of outputs."""
    generator, (data, out) = writer.generator, placed(writer, node)
    size = data.shape[-1]
    if form.axis != len(data.shape) - 1:
        return [_across(generator, form, data, out)]
    is_short = size <= SHORT_VECTORS * generator.lanes
    find = _find_narrow if data.nbytes < FLOAT_BYTES else _find_short if is_short else _find

    def row(kernel: Kernel, number: Value) -> None:
        start = kernel.pointer(data.memory) + offset_of(kernel.f, number, data.axes[:-1])
        index = find(kernel.f, generator, form.kind, data, start)
        _store_index(kernel.f, out, index, kernel.pointer(out.memory) + number * out.nbytes, None)

    return [job_of_rows(generator, "arg_reduce", size_of(data.axes[:-1]), size, row)]


def _find_short(f: Function, generator: Generator, kind: str, data: Placed, start: Value) -> Value:
    """Finds the extreme of a few vectors, then the first equal element: comparisons give one bit per element."""
    lanes = generator.lanes
    worst = f.constant(data.dtype, COMBINERS[kind].identity_of(data.dtype), lanes)
    values = _vectors(f, generator, data, start, worst)
    extreme = reduce(lambda a, b: f.select(beats(f, a, b, kind), a, b), values)
    best = f.splat(_extreme_lane(f, kind, extreme), lanes)
    bits = [f.cast("bitcast", equals(f, value, best), f"i{lanes}") for value in values]
    index = _first_bit(f, bits)
    if data.dtype != "float32":
        return index
    first = load(f, data.dtype, start, 1, 0)
    return f.select(f.compare("uno", first, first), f.literal(I32, 0), index)


def _vectors(f: Function, generator: Generator, data: Placed, start: Value, rest: Value) -> list[Value]:
    """A whole row as vectors; `rest` replaces NaN and fills lanes after the row's end."""
    lanes, step = generator.lanes, data.nbytes
    whole, left = divmod(data.shape[-1], lanes)
    values = [load(f, data.dtype, start + number * lanes * step, lanes, step) for number in range(whole)]
    if left:
        mask = f.first_lanes(f.index(left), lanes)
        values.append(f.select(mask, load(f, data.dtype, start + whole * lanes * step, lanes, step, mask), rest))
    if data.dtype != "float32":
        return values
    return [f.select(f.compare("ord", value, value), value, rest) for value in values]


def _find_narrow(f: Function, generator: Generator, kind: str, data: Placed, start: Value) -> Value:
    """Finds the extreme of integers of 8 or 16 bits, then the first equal one. The last vector of a row overlaps the
    one before it, and a row shorter than a vector is two overlapping vectors."""
    size, fold = data.shape[-1], Fold(kind, data.dtype, data.dtype)
    lanes = min(generator.vector_bytes // data.nbytes, 1 << size.bit_length() - 1)
    vectors, left = divmod(size, lanes)

    def scan(step: Callable[[Value, Value, Value], Value], value: Value) -> Value:
        """value = step(first element, vector, value), from vector to vector."""

        def one(first: Value, value: Value) -> Value:
            return step(first, fold.load(f, start + first * data.nbytes, lanes), value)

        (value,) = f.loop(vectors, lambda i, value: [one(i * lanes, value)], value)
        return one(f.index(size - lanes), value) if left else value

    best = scan(lambda first, loaded, value: fold.combine(f, value, loaded), fold.start(f, lanes))
    extreme = f.splat(fold.across(f, best), lanes)

    def first_equal(first: Value, loaded: Value, index: Value) -> Value:
        word = f.cast("bitcast", f.compare("eq", loaded, extreme), f"i{lanes}")
        at = first + f.cast("zext", _first_bit(f, [word]), INDEX)
        is_first = f.compare("ne", word, 0) & f.compare("ult", at, index)
        return f.select(is_first, at, index)

    return f.cast("trunc", scan(first_equal, f.index(size)), I32)


def _find(f: Function, generator: Generator, kind: str, data: Placed, start: Value) -> Value:
    """Finds the best of each lane, then of all lanes, then goes on with the elements after the last whole vector."""
    size, lanes = data.shape[-1], generator.lanes
    done = size // lanes * lanes
    wide = Best(load(f, data.dtype, start, lanes, 0), f.literal(vector(lanes, I32), 0))
    best = best_lane(f, _scan(f, kind, data, start, (0, done), lanes, wide), kind)
    return _scan(f, kind, data, start, (done, size), 1, best).index if size > done else best.index


def _scan(f: Function, kind: str, data: Placed, start: Value, part: tuple[int, int], lanes: int, best: Best) -> Best:
    """The best of each lane over a part of a row; of equal elements, the first."""
    first, last = part

    def step(i: Value, value: Value, index: Value) -> list[Value]:
        at = i * lanes + first
        loaded = load(f, data.dtype, start + at * data.nbytes, lanes, data.nbytes)
        return kept(f, kind, Best(loaded, indices_from(f, at, lanes)), Best(value, index))

    return Best(*f.loop((last - first) // lanes, step, best.value, best.index))


def _across(generator: Generator, form: ArgReduce, data: Placed, out: Placed) -> Job:
    """The reduced axis is not the last: each lane reduces its own column."""
    last = len(data.shape) - 1
    others = [data.axes[axis] for axis in range(last) if axis != form.axis]
    columns, along = data.shape[last], data.axes[form.axis]

    def row(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        start = kernel.pointer(data.memory) + offset_of(f, number, others)
        target = kernel.pointer(out.memory) + number * (columns * out.nbytes)

        def column(first: Value, mask: Value | None) -> None:
            at, lanes = start + first * data.nbytes, generator.lanes

            def step(i: Value, value: Value, index: Value) -> list[Value]:
                loaded = _ordered(f, data, at + i * along.distance, lanes, mask)
                return kept(f, form.kind, Best(loaded, f.splat(f.cast("trunc", i, I32), lanes)), Best(value, index))

            value = _ordered(f, data, at, lanes, mask)
            _, index = f.loop(along.size, step, value, f.literal(vector(lanes, I32), 0))
            _store_index(f, out, index, target + first * out.nbytes, mask)

        along_row(f, columns, generator.lanes, column)

    return job_of_rows(generator, "arg_reduce", size_of(others), columns * along.size, row)


def kept(f: Function, kind: str, new: Best, old: Best) -> list[Value]:
    """The value and the index of the better one; of equal ones, the old one's."""
    best = new.select(f, beats(f, new.value, old.value, kind), old)
    return [best.value, best.index]


def _ordered(f: Function, data: Placed, at: Value, lanes: int, mask: Value | None) -> Value:
    """Neighbouring elements, or signed integers in the order of unsigned ones."""
    value = load(f, data.dtype, at, lanes, data.nbytes, mask)
    if ELEMENT_TYPES[data.dtype].kind != "uint":
        return value
    return value ^ (1 << value.bits - 1)


def _extreme_lane(f: Function, kind: str, value: Value) -> Value:
    """The largest or smallest lane of a vector that has no NaN."""
    element, lanes = element_type(value.type), value.lanes
    flag, prefix, suffix = ("nnan ", "f", "f32") if value.is_float else ("", "s", element)
    name = f"llvm.vector.reduce.{prefix}{kind}.v{lanes}{suffix}"
    f.module.declare(f"{element} @{name}({value.type})")
    return f.emit(element, f"call {flag}{element} @{name}({value})")


def _first_bit(f: Function, words: Sequence[Value]) -> Value:
    """Number of the first set bit in words of one bit per lane, counted through; at most 64 bits together."""
    joined = f.index(0)
    for number, word in enumerate(words):
        wide = word if word.bits == 64 else f.cast("zext", word, INDEX)
        joined = joined | (wide << number * word.bits)
    f.module.declare("i64 @llvm.cttz.i64(i64, i1)")
    return f.cast("trunc", f.emit(INDEX, f"call i64 @llvm.cttz.i64({joined}, i1 false)"), I32)


def _store_index(f: Function, out: Placed, index: Value, at: Value, mask: Value | None) -> None:
    store(f, out.dtype, cast(f, index, "int32", out.dtype), at, mask)


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
            index = index_of(f, best)
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
        ranked = rank(f, load(f, data.dtype, start + at * data.nbytes, lanes, data.nbytes, mask), indices)
        eligible = mask & f.compare("slt", ranked, limits)
        return [_higher(f, f.select(eligible, ranked, nothing), best)]

    (best,) = f.loop(vectors, step, nothing)
    return f.intrinsic("vector.reduce.smax", INDEX, best)


def _higher(f: Function, a: Value, b: Value) -> Value:
    return f.select(f.compare("sgt", a, b), a, b)
