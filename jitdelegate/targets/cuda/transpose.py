"""Maps that read one operand transposed: neighbours in memory are not neighbours in the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from jitdelegate.ir.expr import Expr
from jitdelegate.targets.cuda.device_code import F32, I32, I64, Code, Value, register, size_of
from jitdelegate.targets.cuda.division import DIVISOR_SIZES, coordinates, divisors
from jitdelegate.targets.cuda.element import Element, narrowed, store, widened
from jitdelegate.targets.cuda.expression import emit
from jitdelegate.targets.cuda.index_map import CanonicalMap, dense_strides
from jitdelegate.targets.cuda.operand import Neighbours, Operand, operands_of
from jitdelegate.targets.cuda.sizes import Kind
from jitdelegate.targets.cuda.template import Template

TILE = 32
"""Rows and columns of a tile; neighbouring threads read along columns and write along rows."""
PITCH = TILE + 1
"""Distance between rows, in elements: the elements of a column lie in different banks."""
THREADS = 256
ROWS = THREADS // TILE
"""Rows that the threads of a block access at once."""
SMALLEST_AXIS = 16
"""Smallest axis that tiles are used for: with a smaller one, tiles would be mostly empty, and the cache works as
well."""
SMALLEST_OUTPUT = 4096


@dataclass(frozen=True, eq=False)
class TransposeTemplate(Template):
    """out[i] = expr(operands at i); operand `across` is contiguous along `axis`, not along the last axis.

    A block moves this operand through a tile of shared memory: 32 indices of `axis` by 32 indices of the last axis.
    """

    family: ClassVar[str] = "transpose"
    threads: ClassVar[int] = THREADS
    rank: int
    axis: int
    across: int
    target: Element
    operands: tuple[Operand, ...]
    expr: Expr

    def blocks(self, index_map: CanonicalMap) -> int:
        """Number of blocks of a launch."""
        return prod(self._grid(index_map))

    def _grid(self, index_map: CanonicalMap) -> list[int]:
        """Number of blocks along every axis; `axis` is moved to the last position but one."""
        sizes = list(index_map.sizes)
        last, axis = sizes.pop(), sizes.pop(self.axis)
        return [*sizes, -(-axis // TILE), -(-last // TILE)]

    @property
    def parameters(self) -> tuple[Kind, ...]:
        outer, walks = self.rank - 1, tuple(one.kind for one in self.operands)
        own = ("int32",) * (DIVISOR_SIZES * outer), ("int32", "int32"), ("int32",) * outer
        return "pointer", ("pointer",) * len(self.operands), *own, walks

    def arguments(self, index_map: CanonicalMap) -> tuple[Any, ...]:
        """The launch arguments after the pointers: number of blocks along each axis, sizes of the two tiled axes, the
        output's strides, the operands' walks."""
        sizes, walks = index_map.sizes, zip(self.operands, index_map.walks, strict=True)
        numbers = [one.numbers(walk) for one, walk in walks]
        return divisors(self._grid(index_map)), (sizes[self.axis], sizes[-1]), dense_strides(sizes)[:-1], numbers

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
        thread = code.special("tid.x")
        column, first = thread & (TILE - 1), thread // TILE
        for row in range(0, TILE, ROWS):
            place, inside = self._place(code, blocks, sizes, column, first + row)
            with code.when(inside):
                found = self.operands[self.across].read(code, pointers[self.across], walks[self.across], place, 1)
                self._put(code, found[0], (first + row) * PITCH + column)
        code.barrier()
        for row in range(0, TILE, ROWS):
            place, inside = self._place(code, blocks, sizes, first + row, column)
            with code.when(inside):
                across = self._get(code, column * PITCH + first + row)
                result = self._result(code, pointers, walks, place, across)
                *outer, index = place
                for coordinate, stride in zip(outer, strides, strict=True):
                    index = index + coordinate * stride
                store(code, self.target, [result], out, index)

    @property
    def _tile_type(self) -> Any:
        """The LLVM type of the tile's elements: at least a 32-bit word, so that neighbours lie in different banks."""
        type_ = register(self.operands[self.across].element.dtype)
        return type_ if type_ in (F32, I64) else I32

    def _tile(self, code: Code) -> Value:
        return code.static_shared(TILE * PITCH * size_of(self._tile_type), "tile")

    def _put(self, code: Code, value: Value, place: Value) -> None:
        code.store([widened(code, value)], self._tile(code), place * size_of(self._tile_type))

    def _get(self, code: Code, place: Value) -> Value:
        type_ = self._tile_type
        (value,) = code.load(self._tile(code), place * size_of(type_), type_)
        return narrowed(code, value, self.operands[self.across].element.dtype)

    def _place(
        self, code: Code, blocks: Sequence[Value], sizes: Sequence[Value], along_axis: Value, along_last: Value
    ) -> tuple[list[Value], Value]:
        """The output coordinates of an element of the tile, and whether that output exists."""
        *place, axis, last = coordinates(code, code.special("ctaid.x"), blocks)
        axis, last = axis * TILE + along_axis, last * TILE + along_last
        place.insert(self.axis, axis)
        return [*place, last], (axis < sizes[0]) & (last < sizes[1])

    def _result(
        self, code: Code, pointers: Sequence[Value], walks: Sequence[Any], place: Sequence[Value], across: Value
    ) -> Value:
        operands = enumerate(zip(self.operands, walks, pointers, strict=True))
        values = [
            across if k == self.across else one.read(code, base, walk, place, 1)[0] for k, (one, walk, base) in operands
        ]
        return emit(code, self.expr, values, [one.element.dtype for one in self.operands], self.target.dtype)


def transpose_template(
    index_map: CanonicalMap, elements: Sequence[Element], target: Element, expr: Expr
) -> TransposeTemplate | None:
    """The template; None unless an operand is read transposed and is large enough for tiles to pay."""
    if prod(index_map.sizes) < SMALLEST_OUTPUT or index_map.sizes[-1] < SMALLEST_AXIS:
        return None
    operands = operands_of(index_map, elements, 1)
    for across, walk in enumerate(index_map.walks):
        axes = [k for k, stride in enumerate(walk.strides[:-1]) if stride == 1 and index_map.sizes[k] >= SMALLEST_AXIS]
        if operands[across].neighbours is Neighbours.APART and axes:
            return TransposeTemplate(len(index_map.sizes), axes[0], across, target, operands, expr)
    return None
