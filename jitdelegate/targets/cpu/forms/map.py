"""Map and Concat: elementwise expressions and all data movement, as nests of loops over strided operands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.ir.expr import Arg, Expr
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.forms import Concat, IndexMap, Map, Shape
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.ir.random_bits import RandomBits
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.fold import pieces
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory, divisor
from jitdelegate.targets.cpu.code.narrow import emitted
from jitdelegate.targets.cpu.code.nest import Box, Loop, Nest, Operand, moved, nests, regions, whole
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, INDEX, Function, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.transpose import TransposeWriter, Transposition
from jitdelegate.targets.cpu.forms.update import is_port_copy, write_port_copy

SHORT = 32
"""Channels up to which several pixels make up a row."""
WIDE_ROW = 1024
"""Most elements of such a row."""
CHUNK_ELEMENTS = 16384
"""Elements that are worth a chunk of their own."""
LONG = 8
"""Rounds of whole vectors from which on a row is written so that vectors begin at cache lines."""
TOGETHER = 4
"""Vectors in one round of the innermost loop. Their chains of operations are independent and overlap."""


def write_map(writer: Writer, node: Node, form: Map) -> list[Job]:
    """The jobs of a Map node."""
    if is_port_copy(writer, node, form):
        return write_port_copy(writer, node)
    output = node.outputs[0]
    pairs = zip(node.inputs, form.operands, strict=True)
    operands = tuple(_operand(writer, index, index_map) for index, index_map in pairs)
    shape = writer.shape(output)
    if many := _pixels_together(writer, node, form):
        shape = prod(shape) // (many * shape[-1]), many * shape[-1]
        operands = tuple(_widened(writer, index, one, shape) for index, one in zip(node.inputs, operands, strict=True))
    return map_jobs(writer.generator, writer.memory(output), shape, form.epilogue, operands)


def _pixels_together(writer: Writer, node: Node, form: Map) -> int:
    """The number of pixels of few narrow channels that a row is made of, for operands that lie like the output and
    constants that have a number per channel; 0 for other nodes."""
    shape, dense, channels = writer.shape(node.outputs[0]), [writer.memory(node.outputs[0])], False
    for index, index_map in zip(node.inputs, form.operands, strict=True):
        tensor = writer.graph.tensors[index]
        if tensor.data is None and index_map.is_identity() and tensor.shape == shape:
            dense.append(writer.memory(index))
        elif tensor.data is not None and _is_per_channel(tensor.shape, shape, index_map):
            channels = True
        elif tensor.data is None or tensor.data.size > 1:
            return 0
    is_narrow = min(memory.layout.element for memory in dense) < FLOAT_BYTES
    if not channels or not is_narrow or shape[-1] >= SHORT or not all(memory.layout.plain for memory in dense):
        return 0
    return divisor(prod(shape[:-1]), WIDE_ROW // shape[-1])


def _is_per_channel(constant: Shape, shape: Shape, index_map: IndexMap) -> bool:
    is_row = prod(constant) == constant[-1:][0] == shape[-1] if constant else False
    return is_row and index_map.dims[-1] == len(shape) - 1 and not any(index_map.starts) and index_map.steps[-1] == 1


def _widened(writer: Writer, index: int, operand: Operand, shape: Shape) -> Operand:
    """An operand of rows of several pixels, of this shape: constants are repeated."""
    if operand.memory is None:
        return replace(operand, shape=(), index_map=IndexMap.along())
    data = writer.graph.tensors[index].data
    if data is None:
        return replace(operand, shape=shape, index_map=IndexMap.along(0, 1))
    row = np.tile(data.reshape(-1), shape[1] // data.size)
    return Operand(writer.packed(row, operand.dtype), row.shape, IndexMap.along(1), operand.dtype)


def _operand(writer: Writer, index: int, index_map: IndexMap) -> Operand:
    tensor = writer.graph.tensors[index]
    if tensor.data is not None and tensor.data.size == 1 and index_map.fill is None:
        return Operand(None, tensor.shape, index_map, tensor.dtype, tensor.data.flat[0].item())
    return Operand(writer.memory(index), tensor.shape, index_map, tensor.dtype)


def write_concat(writer: Writer, node: Node, form: Concat) -> list[Job]:
    """The jobs of a Concat node: a copy of each operand that does not lie in the output to its range of that."""
    output, shape = writer.memory(node.outputs[0]), writer.shape(node.outputs[0])
    copied = writer.plan.parts.copied.get(node.outputs[0], range(len(node.inputs)))
    jobs, at = list[Job](), 0
    for number, index in enumerate(node.inputs):
        part = writer.shape(index)
        if number in copied:
            starts = tuple(-at if axis == form.axis else 0 for axis in range(len(shape)))
            index_map = IndexMap.along(*range(len(shape)), starts=starts)
            box = whole(shape).between(form.axis, at, at + part[form.axis])
            operand = Operand(writer.memory(index), part, index_map, writer.graph.tensors[index].dtype)
            jobs += map_jobs(writer.generator, output, shape, Arg(0), (operand,), box)
        at += part[form.axis]
    return jobs


def copy_jobs(generator: Generator, source: Memory, target: Memory, shape: tuple[int, ...]) -> list[Job]:
    """The jobs that copy a tensor of this shape to another layout."""
    dense = Layout(image_shape(shape), generator.lanes, dtype=source.layout.dtype)
    source, target = (
        replace(side, layout=dense) if side.layout.plain and side.layout.shape != dense.shape else side
        for side in (source, target)
    )
    operand = Operand(source, shape, IndexMap.along(*range(len(shape))), dense.dtype)
    return map_jobs(generator, target, shape, Arg(0), (operand,))


def map_jobs(
    generator: Generator,
    output: Memory,
    shape: tuple[int, ...],
    expr: Expr,
    operands: tuple[Operand, ...],
    box: Box | None = None,
) -> list[Job]:
    """output[i] = expr(operands at i) for every i in `box` (the whole output if None)."""
    box = box or whole(shape)
    every = [nest for part, known in regions(box, operands) for nest in nests(output, shape, part, known)]
    # jobs for parts of the same rows are cut alike, so that threads do not write to the same cache lines
    is_part = len(every) > 1 or box.starts[-1:] != whole(shape).starts[-1:] or box.stops[-1:] != shape[-1:]
    cuts = -(-prod(shape) // CHUNK_ELEMENTS) if is_part else 0
    jobs = []
    for nest in every:
        turn = Transposition.of(nest, expr, output.layout.dtype, output.layout.element)
        if turn:
            jobs.append(TransposeWriter(generator, output, expr, turn).job())
        else:
            jobs += _nest_jobs(generator, output, expr, nest, cuts)
    return jobs


def _nest_jobs(generator: Generator, output: Memory, expr: Expr, nest: Nest, cuts: int) -> list[Job]:
    """The jobs of a nest. Its outermost loop is cut into `cuts` chunks; 0 cuts it by the work."""
    loops = nest.loops
    inner = loops[-1].count
    if len(loops) == 1 and inner >= 2 * CHUNK_ELEMENTS:
        many = inner // CHUNK_ELEMENTS
        steps = loops[0].steps
        main = (Loop(many, tuple(s * CHUNK_ELEMENTS for s in steps)), Loop(CHUNK_ELEMENTS, steps))
        jobs = _nest_jobs(generator, output, expr, replace(nest, loops=main), 0)
        if inner % CHUNK_ELEMENTS:
            done = many * CHUNK_ELEMENTS
            starts = tuple(start + s * done for start, s in zip(nest.starts, steps, strict=True))
            rest = (Loop(inner - done, steps),)
            jobs += _nest_jobs(generator, output, expr, replace(nest, loops=rest, starts=starts), 0)
        return jobs
    outer = loops[0] if len(loops) > 1 else Loop(1, (0,) * len(nest.starts))
    remaining = loops[1:] if len(loops) > 1 else loops
    work = prod(loop.count for loop in remaining)
    at_once = -(-outer.count // cuts) if cuts else min(outer.count, max(1, CHUNK_ELEMENTS // work))
    chunks = -(-outer.count // at_once)

    def body(kernel: Kernel) -> None:
        _chunk(kernel, output, expr, nest, outer, remaining, at_once)

    key = "map", output, expr, nest, cuts, *(str(operand.value) for operand in nest.operands)
    worth = outer.count * work / CHUNK_ELEMENTS
    return [generator.once_for(key, lambda: generator.job("map", chunks, body, worth=worth))]


def _chunk(
    kernel: Kernel, output: Memory, expr: Expr, nest: Nest, outer: Loop, remaining: tuple[Loop, ...], at_once: int
) -> None:
    f = kernel.f
    starts = nest.pointers(kernel, output)
    first, count = kernel.span(outer.count, at_once)

    def walk(depth: int, at: list[Value]) -> None:
        if depth == len(remaining) - 1:
            Row(kernel.generator, f, expr, output, nest.operands, remaining[-1].steps).write(at, remaining[-1].count)
            return

        def inside(i: Value) -> None:
            walk(depth + 1, moved(at, i, remaining[depth].steps))

        f.loop(remaining[depth].count, inside)

    def one(i: Value) -> None:
        walk(0, moved(starts, first + i, outer.steps))

    f.loop(count, one)


@dataclass
class Row:
    """The innermost loop, over neighbouring elements of the output."""

    generator: Generator
    f: Function
    expr: Expr
    output: Memory
    operands: tuple[Operand, ...]
    steps: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """The type of the output's elements."""
        return self.output.layout.dtype

    def write(self, at: list[Value], count: int) -> None:
        """`count` elements, starting at the pointers `at`: whole vectors, then the rest, masked or one by one."""
        f, lanes = self.f, self.generator.lanes
        if self._smallest < FLOAT_BYTES and self._runs_along():
            self._write_narrow(at, count)
            return
        vectors, left = divmod(count, lanes)
        together, single = divmod(vectors, TOGETHER)
        rest = self._vectors(at, lanes, together, TOGETHER)
        rest = self._vectors(rest, lanes, single, 1)
        if left > 1 and self._runs_along():
            self._store(rest, lanes, f.first_lanes(f.index(left), lanes))
        elif left:
            f.loop(left, lambda i: self._store(moved(rest, i, self.steps), 1, None))

    def _write_narrow(self, at: list[Value], count: int) -> None:
        """`count` elements, of which some have less than four bytes: whole registers of the smallest ones. Elements
        after them are a vector that overlaps the one before it, or smaller vectors, since masks of bytes are slow
        without AVX-512. Long calculations are written for one register of words only."""
        smallest = FLOAT_BYTES if _is_long(self.expr) else self._smallest
        lanes = self.generator.vector_bytes // smallest
        # calculations take several registers for each vector
        group = TOGETHER if self.expr == Arg(0) else 1 if smallest == FLOAT_BYTES else smallest
        widest = max(range(len(at)), key=self._sizes.__getitem__)
        memory = (self.output, *(operand.memory for operand in self.operands))[widest]
        if memory and memory.exact and self.steps[widest] and count >= LONG * lanes * group:
            self._write_aligned(at, widest, count, lanes, group)
            return
        together, single = divmod(count // lanes, group)
        rest = self._vectors(at, lanes, together, group)
        self._vectors(rest, lanes, single, 1)
        for first, width in pieces(count, lanes):
            self._store(moved(at, first, self.steps), width, None)

    def _write_aligned(self, at: list[Value], widest: int, count: int, lanes: int, group: int) -> None:
        """A long row, of which pointer number `widest` is into the caller's memory: no access of it between the first
        and the last ones crosses cache lines, which takes twice as long."""
        f, element = self.f, self._sizes[widest]
        size = min(self.generator.vector_bytes, lanes * element)
        before = (f.index(0) - f.cast("ptrtoint", at[widest], INDEX)) % size // element
        self._store(at, lanes, None)
        self._rounds(moved(at, before, self.steps), lanes, (f.index(count) - before) // (lanes * group), group)
        for number in range(group):
            self._store(moved(at, count - (number + 1) * lanes, self.steps), lanes, None)

    def _vectors(self, at: list[Value], lanes: int, rounds: int, group: int) -> list[Value]:
        """Writes `rounds` times `group` whole vectors; returns the pointers after them."""
        if rounds:
            self._rounds(at, lanes, rounds, group)
        return moved(at, lanes * group * rounds, self.steps)

    def _rounds(self, at: list[Value], lanes: int, rounds: Value | int, group: int) -> None:
        """Writes `rounds` times `group` whole vectors, at least once."""
        width = [step * lanes for step in self.steps]

        def one_round(i: Value) -> None:
            start = moved(at, i, [step * group for step in width])
            for number in range(group):
                self._store(moved(start, number, width), lanes, None)

        self.f.loop(rounds, one_round)

    def _runs_along(self) -> bool:
        """True if every operand either advances to the neighbouring element or does not advance."""
        return all(step in (0, size) for size, step in zip(self._sizes, self.steps, strict=True))

    @property
    def _sizes(self) -> list[int]:
        """Bytes of an element of the output and of each operand; 0 for a constant."""
        return [ELEMENT_TYPES[self.dtype].nbytes, *(operand.element for operand in self.operands)]

    @property
    def _smallest(self) -> int:
        return min(filter(None, self._sizes))

    def _store(self, at: list[Value], lanes: int, mask: Value | None) -> None:
        f, values = self.f, list[Value]()
        for operand, pointer, step in zip(self.operands, at[1:], self.steps[1:], strict=True):
            if operand.memory is None:
                values.append(f.constant(operand.dtype, operand.value, lanes))
            else:
                values.append(load(f, operand.dtype, pointer, lanes, step, mask))
        result = emitted(f, self.expr, values, [operand.dtype for operand in self.operands], self.dtype, lanes)
        store(f, self.dtype, result, at[0], mask)


def _is_long(expr: Expr) -> bool:
    """Whether an expression is a hundred operations or more."""
    return isinstance(expr, FixedPoint | RandomBits) or any(map(_is_long, expr.parts))
