"""Maps that read one operand transposed: neighbours in memory are not neighbours in the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from jitdelegate.ir.expr import Arg, Expr
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import coordinates, divisor_kinds, divisors
from jitdelegate.targets.cuda.code.element import Element, common_width, load, store
from jitdelegate.targets.cuda.code.expression import emit
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.index_map import CanonicalMap
from jitdelegate.targets.cuda.code.operand import Neighbours, Operand, operands_of
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template

NARROW_TILE, RUNS = 32, 8
"""Fewest rows and columns of a tile, and most runs of a row: neighbouring threads have neighbouring runs."""
THREADS = 256
WORD = 4
SMALLEST_AXIS = 16
"""Smallest axis that tiles are used for: with a smaller one, tiles would be mostly empty, and the cache works as
well."""
SMALLEST_OUTPUT = 4096
MOVED = {1: Element.INT8, 2: Element.INT16, 4: Element.INT32, 8: Element.INT64}
"""By bytes: the type that elements have in kernels that only move them."""


@dataclass(frozen=True, eq=False)
class TransposeTemplate(Template):
    """out[i] = expr(operands at i); operand `across` is contiguous along `axis`, not along the last axis.

    A block moves this operand through a tile of shared memory: indices of `axis` by as many indices of the last axis.

    Attributes:
        width: neighbours that a thread reads along `axis`, and writes along the last axis, in one access.
    """

    family: ClassVar[str] = "transpose"
    threads: ClassVar[int] = THREADS
    rank: int
    axis: int
    across: int
    width: int
    target: Element
    operands: tuple[Operand, ...]
    expr: Expr

    @property
    def tile(self) -> int:
        """Rows and columns of a tile."""
        return max(NARROW_TILE, RUNS * self.width)

    @property
    def instructions(self) -> int:
        """Instructions of a thread that only moves, counted in machine code."""
        return 35 + self.tile**2 // (self.width * THREADS) * (38 + 2 * self.width)

    @property
    def pitch(self) -> int:
        """Distance between a tile's rows, in elements: the elements of a column lie in different banks."""
        return self.tile + max(WORD // self.operands[self.across].element.nbytes, 1)

    def blocks(self, index_map: CanonicalMap) -> int:
        """Number of blocks of a launch."""
        return prod(self._grid(index_map))

    def _grid(self, index_map: CanonicalMap) -> list[int]:
        """Number of blocks along every axis; `axis` is moved to the last position but one."""
        sizes = list(index_map.sizes)
        last, axis = sizes.pop(), sizes.pop(self.axis)
        return [*sizes, -(-axis // self.tile), -(-last // self.tile)]

    @property
    def parameters(self) -> tuple[Kind, ...]:
        walks = tuple(one.kind for one in self.operands)
        own = divisor_kinds(self.rank), ("int32", "int32"), ("int32",) * (self.rank - 1)
        return "pointer", ("pointer",) * len(self.operands), *own, walks

    def arguments(self, index_map: CanonicalMap) -> tuple[Any, ...]:
        """The launch arguments after the pointers: number of blocks along each axis, sizes of the two tiled axes, the
        output's strides, the operands' walks."""
        sizes, walks = index_map.sizes, zip(self.operands, index_map.walks, strict=True)
        numbers = [one.numbers(walk) for one, walk in walks]
        return divisors(self._grid(index_map)), (sizes[self.axis], sizes[-1]), index_map.strides[:-1], numbers

    def write(
        self,
        code: Code,
        out: Value,
        pointers: Sequence[Value],
        blocks: Sequence[Value],
        sizes: Sequence[Value],
        strides: Sequence[Value],
        walks: Sequence[Any],
    ) -> None:
        """Neighbouring threads read neighbours along `axis` and write neighbours along the last axis."""
        operand, runs = self.operands[self.across], self.tile // self.width
        shared = code.static_shared(self.tile * self.pitch * operand.element.nbytes, "tile")
        thread = code.special("tid.x")
        column, first = thread % runs * self.width, thread // runs
        for at in range(0, self.tile, THREADS // runs):
            row = first + at
            place, inside = self._place(code, blocks, sizes, column, row)
            with code.when(inside):
                values = self._read(code, pointers[self.across], walks[self.across], place)
                self._put(code, values, shared, row * self.pitch + column)
        code.barrier()
        for at in range(0, self.tile, THREADS // runs):
            row = first + at
            place, inside = self._place(code, blocks, sizes, row, column)
            with code.when(inside):
                spots = [(column + k) * self.pitch + row for k in range(self.width)]
                across = [load(code, operand.element, shared, spot)[0] for spot in spots]
                *outer, index = place
                for coordinate, stride in zip(outer, strides, strict=True):
                    index = index + coordinate * stride
                store(code, self.target, self._results(code, pointers, walks, place, across), out, index)

    def _read(self, code: Code, base: Value, walk: Sequence[Any], place: Sequence[Value]) -> list[Value]:
        """Neighbours of the operand along `axis`."""
        operand, index = self.operands[self.across], walk[0]
        if self.width == 1:
            return operand.read(code, base, walk, place, 1)
        for coordinate, stride in zip(place, walk[1], strict=True):
            index = index + coordinate * stride
        return load(code, operand.element, base, index, self.width)

    def _put(self, code: Code, values: Sequence[Value], shared: Value, place: Value) -> None:
        """Stores a run to the tile, a word at a time where elements are narrower: rows begin at whole words."""
        element = self.operands[self.across].element
        step = min(self.width, max(WORD // element.nbytes, 1))
        for at in range(0, self.width, step):
            store(code, element, values[at : at + step], shared, place + at)

    def _place(
        self, code: Code, blocks: Sequence[Value], sizes: Sequence[Value], along_axis: Value, along_last: Value
    ) -> tuple[list[Value], Value]:
        """The output coordinates of the first element of a run of the tile, and whether that output exists."""
        *place, axis, last = coordinates(code, code.special("ctaid.x"), blocks)
        axis, last = axis * self.tile + along_axis, last * self.tile + along_last
        place.insert(self.axis, axis)
        return [*place, last], (axis < sizes[0]) & (last < sizes[1])

    def _results(
        self,
        code: Code,
        pointers: Sequence[Value],
        walks: Sequence[Any],
        place: Sequence[Value],
        across: Sequence[Value],
    ) -> list[Value]:
        operands = enumerate(zip(self.operands, walks, pointers, strict=True))
        columns = [
            across if k == self.across else one.read(code, base, walk, place, self.width)
            for k, (one, walk, base) in operands
        ]
        types = [one.element.dtype for one in self.operands]
        return [emit(code, self.expr, values, types, self.target.dtype) for values in zip(*columns, strict=True)]


def transpose_template(
    gpu: Gpu, index_map: CanonicalMap, elements: Sequence[Element], target: Element, expr: Expr, first: int
) -> TransposeTemplate | None:
    """The template; None unless an operand is read transposed and is large enough for tiles to pay.

    Args:
        first: number of the output's first element in its memory.
    """
    if prod(index_map.sizes) < SMALLEST_OUTPUT or index_map.sizes[-1] < SMALLEST_AXIS or index_map.strides[-1] != 1:
        return None
    operands = operands_of(index_map, elements, 1)
    for across, walk in enumerate(index_map.walks):
        axes = [k for k, stride in enumerate(walk.strides[:-1]) if stride == 1 and index_map.sizes[k] >= SMALLEST_AXIS]
        if operands[across].neighbours is Neighbours.APART and axes:
            if expr == Arg(0) and len(elements) == 1 and elements[0] is target:
                target = MOVED[target.nbytes]
                elements = [target]
            narrow = TransposeTemplate(len(index_map.sizes), axes[0], across, 1, target, (), expr)
            width = _width(gpu, index_map, narrow, elements, first)
            return replace(narrow, width=width, operands=operands_of(index_map, elements, width))
    return None


def _width(
    gpu: Gpu, index_map: CanonicalMap, narrow: TransposeTemplate, elements: Sequence[Element], first: int
) -> int:
    """The widest access that all runs begin at a multiple of, and whose tiles are enough for the GPU."""
    walk, sizes = index_map.walks[narrow.across], index_map.sizes
    if any(index_map.checked(walk)):
        return 1
    apart = [stride for axis, stride in enumerate(walk.strides) if axis != narrow.axis]
    numbers = sizes[narrow.axis], sizes[-1], *index_map.strides[:-1], first, walk.offset, *apart
    width = common_width(numbers, min(elements[narrow.across].widest, narrow.target.widest))
    while width > WORD and prod(replace(narrow, width=width)._grid(index_map)) < gpu.multiprocessors:
        width //= 2
    return width
