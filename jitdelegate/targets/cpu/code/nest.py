"""Nests of loops over strided operands, as which Map and Concat see every output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jitdelegate.ir.forms import IndexMap
from jitdelegate.targets.cpu.code.kernel import Kernel, Memory, distances_along
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Value


@dataclass(frozen=True)
class Operand:
    """One operand: a tensor of logical `shape` read through `index_map`, or the constant `value`."""

    memory: Memory | None
    shape: tuple[int, ...]
    index_map: IndexMap
    dtype: str = "float32"
    value: float = 0.0

    @property
    def element(self) -> int:
        """Bytes of one element; 0 for a constant."""
        return self.memory.layout.element if self.memory else 0


@dataclass(frozen=True)
class Box:
    """A rectangular part of the output: [start, stop) per axis."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        return any(stop <= start for start, stop in zip(self.starts, self.stops, strict=True))

    def between(self, axis: int, start: int, stop: int) -> Box:
        """The part whose index on `axis` lies in [start, stop)."""
        start, stop = max(start, self.starts[axis]), min(stop, self.stops[axis])
        return Box(
            (*self.starts[:axis], start, *self.starts[axis + 1 :]),
            (*self.stops[:axis], stop, *self.stops[axis + 1 :]),
        )


@dataclass(frozen=True)
class Loop:
    """`count` iterations; bytes that the output and each operand advance per iteration."""

    count: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Nest:
    """Loops from outermost to innermost, the last over neighbouring elements; start offsets of output and operands in
    bytes."""

    loops: tuple[Loop, ...]
    starts: tuple[int, ...]
    operands: tuple[Operand, ...]

    def pointers(self, kernel: Kernel, output: Memory) -> list[Value]:
        """The addresses of the first elements, of the output and of each operand; any address for a constant, which
        does not move."""
        memories = output, *(operand.memory for operand in self.operands)
        # steps of a sequence read and write at other addresses: these have the start, so that they share the function
        has_start = min(memory.layout.element for memory in memories if memory) < FLOAT_BYTES
        pointers: list[Value] = []
        for memory, start in zip(memories, self.starts, strict=True):
            inner, outer = (start, 0) if has_start else (0, start)
            pointers.append(kernel.pointer(memory, inner) + outer if memory else pointers[0])
        return pointers


def moved(pointers: Sequence[Value], count: Value | int, steps: Sequence[int]) -> list[Value]:
    """The pointers after `count` iterations of a loop with these steps."""
    return [pointer + count * step if step else pointer for pointer, step in zip(pointers, steps, strict=True)]


def indices_of(number: Value, counts: Sequence[int]) -> list[Value]:
    """The index on each level of nested loops, of iteration `number` of all of them."""
    indices = []
    for count in reversed(counts[1:]):
        indices.append(number % count if count > 1 else number.function.index(0))
        number = number // count
    return [number, *reversed(indices)]


def whole(shape: tuple[int, ...]) -> Box:
    """The box that covers a whole output."""
    return Box((0,) * len(shape), shape)


def regions(box: Box, operands: tuple[Operand, ...]) -> Iterator[tuple[Box, tuple[Operand, ...]]]:
    """Disjoint parts of `box`, in each of which every padded operand is either inside its tensor or a constant."""
    if box.is_empty:
        return
    padded = next((k for k, o in enumerate(operands) if o.memory is not None and o.index_map.fill is not None), None)
    if padded is None:
        yield box, operands
        return
    operand = operands[padded]
    assert operand.index_map.fill is not None
    constant = replace(operand, memory=None, value=operand.index_map.fill)
    outside = (*operands[:padded], constant, *operands[padded + 1 :])
    for axis, (dim, first, step) in enumerate(
        zip(operand.index_map.dims, operand.index_map.starts, operand.index_map.steps, strict=True)
    ):
        if dim < 0:
            continue
        low, high = _inside(first, step, operand.shape[axis])
        yield from regions(box.between(dim, box.starts[dim], low), outside)
        yield from regions(box.between(dim, high, box.stops[dim]), outside)
        box = box.between(dim, low, high)
        if box.is_empty:
            return
    inside = replace(operand, index_map=replace(operand.index_map, fill=None))
    yield from regions(box, (*operands[:padded], inside, *operands[padded + 1 :]))


def _inside(first: int, step: int, size: int) -> tuple[int, int]:
    """The indices i with 0 <= first + step * i < size, as [low, high)."""
    if step > 0:
        return -(first // step), -((first - size) // step)
    return -((size - 1 - first) // -step), first // -step + 1


def nests(output: Memory, shape: tuple[int, ...], box: Box, operands: tuple[Operand, ...]) -> Iterator[Nest]:
    """The loops over the elements of `box` in an output of this shape."""
    memories = [output, *(o.memory for o in operands if o.memory)]
    if len(shape) == 4 and any(m.layout.blocked for m in memories):
        yield from _blocked_nests(output, box, operands)
        return
    counts = [stop - start for start, stop in zip(box.starts, box.stops, strict=True)]
    distances = [distances_along(output, shape), *(read_distances(o, len(shape)) for o in operands)]
    starts = [_start(output, shape, box.starts)]
    starts += [_start(o.memory, o.shape, _position(o.index_map, box.starts)) if o.memory else 0 for o in operands]
    loops = [Loop(count, tuple(d[axis] for d in distances)) for axis, count in enumerate(counts)]
    loops = loops or [Loop(1, (0,) * len(distances))]
    yield Nest(tuple(_collapse(loops, output.layout.element)), tuple(starts), operands)


def _blocked_nests(output: Memory, box: Box, operands: tuple[Operand, ...]) -> Iterator[Nest]:
    """Loops (n, y, block, x, lane): one nest for all full blocks, one for a last block that is not full."""
    layout, lanes = output.layout, output.layout.lanes
    channels = box.stops[3] - box.starts[3]
    counts = [stop - start for start, stop in zip(box.starts, box.stops, strict=True)]
    columns = [(layout.image, layout.row, layout.block, layout.pixel, layout.element)]
    columns += [block_distances(o) for o in operands]
    starts = [_block_start(output, box.starts), *(_read_block_start(o, box.starts) for o in operands)]
    for first, blocks, width in ((0, channels // lanes, lanes), (channels // lanes, 1, channels % lanes)):
        if blocks and width:
            sizes = (counts[0], counts[1], blocks, counts[2], width)
            loops = [Loop(size, tuple(c[axis] for c in columns)) for axis, size in enumerate(sizes)]
            moved = tuple(start + first * c[2] for start, c in zip(starts, columns, strict=True))
            yield Nest(tuple(_collapse(loops, layout.element)), moved, operands)


def _collapse(loops: Sequence[Loop], element: int) -> list[Loop]:
    """As `joined_loops`, but the last loop is over neighbouring elements of the output, `element` bytes each, even if
    there is only one."""
    result = joined_loops(loops)
    if not result or result[-1].steps[0] != element:
        result.append(Loop(1, (0,) * len(loops[0].steps)))
    return result


def joined_loops(loops: Sequence[Loop]) -> list[Loop]:
    """The same iterations with fewer loops: drops loops of one iteration, and joins loops that continue each other."""
    result: list[Loop] = []
    for loop in loops:
        if result and result[-1].steps == tuple(step * loop.count for step in loop.steps):
            result[-1] = Loop(result[-1].count * loop.count, loop.steps)
        elif loop.count > 1:
            result.append(loop)
    return result


def _start(memory: Memory, shape: tuple[int, ...], index: Sequence[int]) -> int:
    return sum(i * d for i, d in zip(index, distances_along(memory, shape), strict=True))


def _spread(index_map: IndexMap, rank: int, distances: Sequence[int]) -> list[int]:
    """Bytes that the operand advances per step along each axis of the output."""
    result = [0] * rank
    for dim, step, distance in zip(index_map.dims, index_map.steps, distances, strict=True):
        if dim >= 0:
            result[dim] += step * distance
    return result


def _position(index_map: IndexMap, index: Sequence[int]) -> list[int]:
    """The operand's index for an output index."""
    return [
        first + (step * index[dim] if dim >= 0 else 0)
        for dim, first, step in zip(index_map.dims, index_map.starts, index_map.steps, strict=True)
    ]


def read_distances(operand: Operand, rank: int) -> list[int]:
    if operand.memory is None:
        return [0] * rank
    return _spread(operand.index_map, rank, distances_along(operand.memory, operand.shape))


def block_distances(operand: Operand) -> tuple[int, int, int, int, int]:
    """Bytes per step along (n, y, block, x, lane) of a rank-4 output."""
    if operand.memory is None:
        return 0, 0, 0, 0, 0
    layout = operand.memory.layout
    distances = distances_along(operand.memory, operand.shape)
    image, row, pixel, lane = _spread(operand.index_map, 4, distances)
    return image, row, layout.block if lane else 0, pixel, lane


def _block_start(memory: Memory, index: Sequence[int]) -> int:
    layout = memory.layout
    block, lane = divmod(index[3], layout.lanes)
    start = index[0] * layout.image + index[1] * layout.row + index[2] * layout.pixel
    assert not (lane and layout.blocked), "a blocked tensor is entered in the middle of a block"
    return start + block * layout.block + lane * layout.element


def _read_block_start(operand: Operand, index: Sequence[int]) -> int:
    if operand.memory is None:
        return 0
    position = [0] * (4 - len(operand.shape)) + _position(operand.index_map, index)
    if len(operand.shape) == 4:
        return _block_start(operand.memory, position)
    return _start(operand.memory, operand.shape, position[4 - len(operand.shape) :])
