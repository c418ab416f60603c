"""ArgReduce: the indices of the largest or smallest elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import ArgReduce
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.axes import offset_of
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.fold import Fold
from jitdelegate.targets.cpu.code.kernel import Job, JobWriter, Kernel
from jitdelegate.targets.cpu.code.rows import Placed, along_row, job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import (
    FLOAT,
    FLOAT_BYTES,
    INDEX,
    Function,
    Value,
    element_type,
    lanes_of,
    vector,
)
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.cast import cast

I32 = "i32"
SHORT_VECTORS = 4
"""Rows of up to this many vectors are held in registers whole."""


@dataclass(frozen=True)
class Best:
    """A value and its index, or a vector of values and a vector of their indices."""

    value: Value
    place: Value

    def select(self, f: Function, condition: Value, other: Best) -> Best:
        """Per lane: this one where the condition holds, `other` elsewhere."""
        return Best(f.select(condition, self.value, other.value), f.select(condition, self.place, other.place))

    def lane(self, f: Function, number: int) -> Best:
        """Lane `number` of the vectors; a scalar is returned as it is."""
        if lanes_of(self.value.type) == 1:
            return self
        return Best(*(_lane(f, vector, number) for vector in (self.value, self.place)))


def _lane(f: Function, value: Value, number: int) -> Value:
    return f.emit(element_type(value.type), f"extractelement {value}, i64 {number}")


def beats(f: Function, a: Value, b: Value, kind: str = "max") -> Value:
    """Whether `a` is larger than `b`, or smaller for kind "min"; false for NaN."""
    prefix = "o" if element_type(a.type) == FLOAT else "s"
    return f.compare(prefix + {"max": "gt", "min": "lt"}[kind], a, b)


def equals(f: Function, a: Value, b: Value) -> Value:
    """Whether both are equal; false for NaN."""
    return f.compare("oeq" if element_type(a.type) == FLOAT else "eq", a, b)


def best_lane(f: Function, best: Best, kind: str = "max") -> Best:
    """The best of all lanes; of equal lanes, the one with the lowest index."""
    found = best.lane(f, 0)
    for number in range(1, lanes_of(best.value.type)):
        other = best.lane(f, number)
        earlier = equals(f, other.value, found.value) & f.compare("slt", other.place, found.place)
        found = other.select(f, beats(f, other.value, found.value, kind) | earlier, found)
    return found


def places_from(f: Function, first: Value, lanes: int) -> Value:
    """The indices `first`, `first` + 1, ... of a vector's lanes, as int32."""
    start = f.splat(f.cast("trunc", first, I32), lanes)
    if lanes == 1:
        return start
    numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return f.emit(start.type, f"add {start}, <{numbers}>")


def write_arg_reduce(writer: Writer, node: Node, form: ArgReduce) -> list[Job]:
    """The jobs of an ArgReduce node."""
    return ArgReduceWriter(writer.generator).jobs(form, *placed(writer, node))


class ArgReduceWriter(JobWriter):
    """Writes the jobs of ArgReduce nodes."""

    def jobs(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        """One row per output if the last axis is reduced, else one per row of outputs."""
        if form.axis != len(data.shape) - 1:
            return self._across(form, data, out)
        if data.nbytes < FLOAT_BYTES:
            return self._along_narrow(form, data, out)
        if data.shape[-1] <= SHORT_VECTORS * self.generator.lanes:
            return self._along_short(form, data, out)
        return self._along(form, data, out)

    def _along_short(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        """Finds the extreme of a few vectors, then the first equal element: comparisons give one bit per element."""
        size, lanes = data.shape[-1], self.generator.lanes

        def row(kernel: Kernel, number: Value) -> None:
            f = kernel.f
            start = kernel.pointer(data.memory) + offset_of(f, number, data.axes[:-1])
            worst = COMBINERS[form.kind].identity_of(data.dtype)
            values = self._vectors(f, data, start, f.constant(data.dtype, worst, lanes))
            extreme = reduce(lambda a, b: f.select(beats(f, a, b, form.kind), a, b), values)
            found = f.splat(_extreme_lane(f, form.kind, extreme), lanes)
            bits = [f.cast("bitcast", equals(f, value, found), f"i{lanes}") for value in values]
            place = _first_bit(f, bits)
            if data.dtype == "float32":
                first = load(f, data.dtype, start, 1, 0)
                place = f.select(f.compare("uno", first, first), f.literal(I32, 0), place)
            _store_place(f, out, place, kernel.pointer(out.memory) + number * out.nbytes, None)

        return [job_of_rows(self.generator, "arg_reduce", size_of(data.axes[:-1]), size, row)]

    def _vectors(self, f: Function, data: Placed, start: Value, rest: Value) -> list[Value]:
        """A whole row as vectors; `rest` replaces NaN and fills lanes after the row's end."""
        lanes, step = self.generator.lanes, data.nbytes
        whole, left = divmod(data.shape[-1], lanes)
        values = [load(f, data.dtype, start + number * lanes * step, lanes, step) for number in range(whole)]
        if left:
            mask = f.first_lanes(f.index(left), lanes)
            values.append(f.select(mask, load(f, data.dtype, start + whole * lanes * step, lanes, step, mask), rest))
        if data.dtype != "float32":
            return values
        return [f.select(f.compare("ord", value, value), value, rest) for value in values]

    def _along_narrow(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        """Finds the extreme of integers of 8 or 16 bits, then the first equal one. The last vector of a row overlaps
        the one before it, and a row shorter than a vector is two overlapping vectors."""
        size, fold = data.shape[-1], Fold(form.kind, data.dtype, data.dtype)
        lanes = min(self.generator.vector_bytes // data.nbytes, 1 << size.bit_length() - 1)
        vectors, left = divmod(size, lanes)

        def row(kernel: Kernel, number: Value) -> None:
            f = kernel.f
            start = kernel.pointer(data.memory) + offset_of(f, number, data.axes[:-1])

            def scan(step: Callable[[Value, Value, Value], Value], value: Value) -> Value:
                """value = step(first element, vector, value), from vector to vector."""

                def one(first: Value, value: Value) -> Value:
                    return step(first, fold.load(f, start + first * data.nbytes, lanes), value)

                (value,) = f.loop(vectors, lambda i, value: [one(i * lanes, value)], value)
                return one(f.index(size - lanes), value) if left else value

            best = scan(lambda first, found, value: fold.combine(f, value, found), fold.start(f, lanes))
            extreme = f.splat(fold.across(f, best), lanes)

            def first_equal(first: Value, found: Value, place: Value) -> Value:
                word = f.cast("bitcast", f.compare("eq", found, extreme), f"i{lanes}")
                at = first + f.cast("zext", _first_bit(f, [word]), INDEX)
                is_first = f.compare("ne", word, 0) & f.compare("ult", at, place)
                return f.select(is_first, at, place)

            place = f.cast("trunc", scan(first_equal, f.index(size)), I32)
            _store_place(f, out, place, kernel.pointer(out.memory) + number * out.nbytes, None)

        return [job_of_rows(self.generator, "arg_reduce", size_of(data.axes[:-1]), size, row)]

    def _along(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        size, lanes = data.shape[-1], self.generator.lanes
        done = size // lanes * lanes

        def row(kernel: Kernel, number: Value) -> None:
            f = kernel.f
            start = kernel.pointer(data.memory) + offset_of(f, number, data.axes[:-1])
            wide = Best(load(f, data.dtype, start, lanes, 0), f.literal(vector(lanes, I32), 0))
            best = best_lane(f, self._scan(f, form.kind, data, start, (0, done), lanes, wide), form.kind)
            if size > done:
                best = self._scan(f, form.kind, data, start, (done, size), 1, best)
            _store_place(f, out, best.place, kernel.pointer(out.memory) + number * out.nbytes, None)

        return [job_of_rows(self.generator, "arg_reduce", size_of(data.axes[:-1]), size, row)]

    @staticmethod
    def _scan(
        f: Function, kind: str, data: Placed, start: Value, part: tuple[int, int], lanes: int, best: Best
    ) -> Best:
        """The best of each lane over a part of a row; of equal elements, the first."""
        first, last = part

        def step(i: Value, value: Value, place: Value) -> list[Value]:
            at = i * lanes + first
            found = Best(load(f, data.dtype, start + at * data.nbytes, lanes, data.nbytes), places_from(f, at, lanes))
            now = found.select(f, beats(f, found.value, value, kind), Best(value, place))
            return [now.value, now.place]

        return Best(*f.loop((last - first) // lanes, step, best.value, best.place))

    def _across(self, form: ArgReduce, data: Placed, out: Placed) -> list[Job]:
        """The reduced axis is not the last: each lane reduces its own column."""
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
                    loaded = _ordered(f, data, at + i * along.distance, lanes, mask)
                    found = Best(loaded, f.splat(f.cast("trunc", i, I32), lanes))
                    now = found.select(f, beats(f, loaded, value, form.kind), Best(value, place))
                    return [now.value, now.place]

                value = _ordered(f, data, at, lanes, mask)
                _, place = f.loop(along.size, step, value, f.literal(vector(lanes, I32), 0))
                _store_place(f, out, place, target + first * out.nbytes, mask)
                return []

            along_row(f, columns, self.generator.lanes, column)

        rows = size_of([data.axes[axis] for axis in kept])
        return [job_of_rows(self.generator, "arg_reduce", rows, columns * along.size, row)]


def _ordered(f: Function, data: Placed, at: Value, lanes: int, mask: Value | None) -> Value:
    """Neighbouring elements, or signed integers in the order of unsigned ones."""
    value = load(f, data.dtype, at, lanes, data.nbytes, mask)
    if ELEMENT_TYPES[data.dtype].kind != "uint":
        return value
    return value ^ (1 << value.bits - 1)


def _extreme_lane(f: Function, kind: str, value: Value) -> Value:
    """The largest or smallest lane of a vector that has no NaN."""
    element, lanes = element_type(value.type), lanes_of(value.type)
    flag, prefix, suffix = ("nnan ", "f", "f32") if element == FLOAT else ("", "s", element)
    name = f"llvm.vector.reduce.{prefix}{kind}.v{lanes}{suffix}"
    f.module.declare(f"{element} @{name}({value.type})")
    return f.emit(element, f"call {flag}{element} @{name}({value})")


def _first_bit(f: Function, words: Sequence[Value]) -> Value:
    """Number of the first set bit in words of one bit per lane, counted through; at most 64 bits together."""
    joined = f.index(0)
    for number, word in enumerate(words):
        wide = word if word.bits == 64 else f.cast("zext", word, INDEX)
        shifted = f.emit(INDEX, f"shl {wide}, {number * int(word.type[1:])}")
        joined = f.emit(INDEX, f"or {joined}, {shifted.text}")
    f.module.declare("i64 @llvm.cttz.i64(i64, i1)")
    return f.cast("trunc", f.emit(INDEX, f"call i64 @llvm.cttz.i64({joined}, i1 false)"), I32)


def _store_place(f: Function, out: Placed, place: Value, at: Value, mask: Value | None) -> None:
    store(f, out.dtype, cast(f, place, "int32", out.dtype), at, mask)
