"""Map: elementwise expressions and all data movement, one vector of outputs per thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import add
from typing import Any, ClassVar

from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, Expr, substitute
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.division import coordinates, divisor_kinds, divisors
from jitdelegate.targets.cuda.code.element import Element, common_width, store
from jitdelegate.targets.cuda.code.expression import emit, quantizes
from jitdelegate.targets.cuda.code.index_map import CanonicalMap, Walk, canonical, walk
from jitdelegate.targets.cuda.code.operand import Operand, operands_of, read
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.planning.epilogue import without_constants

THREADS = 256
MOST_VALUES = 64
"""Most operand values that a thread reads before it computes."""
FEWEST = 4
"""Fewest outputs per thread; all operands are read at once for this many outputs, however many operands there are."""


@dataclass(frozen=True, eq=False)
class MapTemplate(Template):
    """out[i] = expr(operands at i, then numbers), for indices of `rank` axes.

    Thread t computes vector t of `width` outputs. Where there is only one axis, further threads compute the outputs
    after the last whole vector, one each. Outputs that are not `is_dense` have strides, which are arguments.
    """

    family: ClassVar[str] = "map"
    threads: ClassVar[int] = THREADS
    rank: int
    width: int
    target: Element
    operands: tuple[Operand, ...]
    numbers: tuple[str, ...]
    expr: Expr
    is_dense: bool

    @property
    def parameters(self) -> tuple[Kind, ...]:
        sizes = divisor_kinds(self.rank)
        walks = tuple(one.kind for one in self.operands)
        strides = () if self.is_dense else ("int32",) * self.rank
        return "pointer", ("pointer",) * len(self.operands), self.numbers, "int32", "int32", sizes, strides, walks

    def write(
        self,
        code: Code,
        out: Value,
        pointers: Sequence[Value],
        numbers: Sequence[Value],
        vectors: Value,
        rest: Value,
        sizes: Sequence[Value],
        strides: Sequence[Value],
        walks: Sequence[Any],
    ) -> None:
        """Args:
        vectors, rest: number of whole vectors of the output, and of outputs after them.
        sizes: sizes of the output in vectors, as divisors.
        strides: strides of the output, if it is not dense.
        """

        def write_outputs(place: Sequence[Value], index: Value, width: int) -> None:
            """Writes the outputs from `index` on, which have the coordinates `place`."""
            columns = read(code, self.operands, pointers, walks, place, width)
            types = [*(one.element.dtype for one in self.operands), *self.numbers]
            rows = [[*(column[k] for column in columns), *numbers] for k in range(width)]
            results = [emit(code, self.expr, row, types, self.target.dtype) for row in rows]
            if strides:
                index = reduce_tree([at * stride for at, stride in zip(place, strides, strict=True)], add)
            store(code, self.target, results, out, index)

        thread = self.thread(code)
        with code.when(thread < vectors):
            *outer, last = coordinates(code, thread, sizes)
            write_outputs([*outer, last * self.width], thread * self.width, self.width)
        if self.rank == 1 and self.width > 1:
            after = thread - vectors
            with code.when((after >= 0) & (after < rest)):
                last = vectors * self.width + after
                write_outputs([last], last, 1)


def write_map(writer: Writer, node: Node, form: Map) -> None:
    """Writes the launches of a Map node: in vectors where memory allows."""
    output = node.outputs[0]
    shape = writer.shape(output)
    walks = [_walk(writer, index, access, shape) for index, access in zip(node.inputs, form.operands, strict=True)]
    types = [writer.element(index).dtype for index in node.inputs]
    expr, read = _without_empty(form.epilogue, walks, types)
    index_map = canonical(shape, [walks[k] for k in read], writer.strides(output))
    _write_launch(writer, expr, index_map, [node.inputs[k] for k in read], output)


def _walk(writer: Writer, index: int, access: IndexMap, output: tuple[int, ...]) -> Walk:
    """The walk of an operand in the tensor that has its memory."""
    return walk(writer.shape(index), access, output, writer.strides(index), writer.part(index).first)


def copy(writer: Writer, source: int, target: int) -> None:
    """Writes a launch that copies the elements of tensor `source`, in order, to tensor `target`; both are dense."""
    flat = (writer.graph.tensors[source].size,)
    index_map = canonical(flat, [walk(flat, IndexMap.broadcast(flat, flat), flat, first=writer.part(source).first)])
    _write_launch(writer, RESULT, index_map, [source], target)


def _without_empty(expr: Expr, walks: Sequence[Walk], types: Sequence[str]) -> tuple[Expr, list[int]]:
    """The expression with constants for operands that no index reads, and the numbers of the other operands."""
    read = [k for k, walk in enumerate(walks) if not walk.is_empty]
    arguments = [
        Cast(Const(walk.fill), dtype) if walk.is_empty else Arg(read.index(k))
        for k, (walk, dtype) in enumerate(zip(walks, types, strict=True))
    ]
    return substitute(expr, arguments), read


def _write_launch(writer: Writer, expr: Expr, index_map: CanonicalMap, inputs: Sequence[int], output: int) -> None:
    target = writer.element(output)
    pointers = [writer.pointer(index) for index in (output, *(writer.part(index).whole for index in inputs))]
    elements = [writer.element(index) for index in inputs]
    width = _width(index_map, target, writer.part(output).first)
    operands = operands_of(index_map, elements, width)
    types = [element.dtype for element in elements]
    is_float = {*types, target.dtype} == {"float32"} and not quantizes(expr)
    expr, numbers = (expr, ()) if is_float else without_constants(expr, types)
    template = MapTemplate(
        len(index_map.sizes), width, target, operands, tuple(dtype for dtype, _ in numbers), expr, index_map.is_dense
    )
    values = [value for _, value in numbers]
    *outer, last = index_map.sizes
    vectors, rest = divmod(last, width)
    whole, sizes = prod(outer) * vectors, divisors([*outer, vectors])
    strides = () if index_map.is_dense else index_map.strides
    walks = [one.numbers(walk) for one, walk in zip(operands, index_map.walks, strict=True)]
    writer.launch(template, template.grid(whole + rest), [*pointers, *values, whole, rest, sizes, strides, walks])


def _width(index_map: CanonicalMap, target: Element, first: int) -> int:
    """Outputs per thread: as many as one store can write, so that rows are whole vectors if there are several axes;
    fewer where a thread would read too much for its registers, or where wider stores cannot begin at `first`."""
    *outer, last = index_map.strides
    if last != 1:
        return 1
    most = target.widest
    while most > FEWEST and most * len(index_map.walks) > MOST_VALUES:
        most //= 2
    rows = () if not outer else (index_map.sizes[-1], *outer)
    return common_width((*rows, first), most)
