"""Cell: one warp per unit, or one block, multiplies the rows of weights of all its channels, as GEMV does; then a lane
per pixel computes the results, one after another, and stores those that others read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jitdelegate.ir.expr import Expr
from jitdelegate.ir.forms import IndexMap, Shape
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, load, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.expression import emit
from jitdelegate.targets.cuda.code.index_map import walk
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.sources.conv_problem import problem_of
from jitdelegate.targets.cuda.sources.stored_weights import rows_of
from jitdelegate.targets.cuda.walks.gemv import BUSY_WARPS, CHUNK, LANES, WARPS, Gemv, GemvSizes, RowProduct, operands
from jitdelegate.targets.planning.cells import Cell
from jitdelegate.targets.planning.fusions import Fusion


class Place(NamedTuple):
    """The first element of a tensor that belongs to the results, and the distance of those that belong to the next
    pixel and the next unit."""

    first: Number
    pixel: Number
    unit: Number

    def at(self, pixel: Value, unit: Value) -> Value:
        """The number of the element of a pixel and unit."""
        index: Value = self.first + pixel * self.pixel + unit * self.unit
        return index


@dataclass(frozen=True, eq=False)
class CellTemplate(Template):
    """Results of units, from sums of products and from other tensors.

    Attributes:
        products: their rows are the channels of a unit; they have no epilogues.
        reads: how what is read from other tensors is stored.
        results: how each is stored, and its value over Args: all sums, the reads, the results. Constants stay in the
            code: steps of quantized networks differ in tables and limits besides.
    """

    family: ClassVar[str] = "cell"
    threads: ClassVar[int] = LANES * WARPS
    products: tuple[Gemv, ...]
    reads: tuple[Element, ...]
    results: tuple[tuple[Element, Expr], ...]

    @property
    def written(self) -> frozenset[int]:
        return frozenset(range(len(self.results)))

    @property
    def parameters(self) -> tuple[Kind, ...]:
        tensors = len(self.results) + len(self.reads)
        kinds = ((*one.operands, GemvSizes) for one in self.products)
        return ("pointer",) * tensors, (Place,) * tensors, "int32", tuple(kinds)

    def write(
        self,
        code: Code,
        pointers: Sequence[Value],
        places: Sequence[Place],
        units: Value,
        products: Sequence[Sequence[Any]],
    ) -> None:
        """Args:
        pointers, places: of the results, the last one first, then of what is read.
        """
        made = [RowProduct(code, template, *own) for template, own in zip(self.products, products, strict=True)]
        for number, product in enumerate(made):
            product.multiply(f"sums_{number}")
        pixel, unit, count = made[0].lane, made[0].turn, len(self.results)
        with code.when(made[0].is_first & (pixel < self.products[0].pixels) & (unit < units)):
            values = [one.totals(row, 1, pixel)[0] for one in made for row in range(one.template.rows)]
            types = [one.sums.dtype for one in self.products for _ in range(one.rows)]
            for element, base, place in zip(self.reads, pointers[count:], places[count:], strict=True):
                values += load(code, element, base, place.at(pixel, unit))
                types.append(element.dtype)
            for at, (element, expr) in zip(reversed(range(count)), self.results, strict=True):
                values.append(emit(code, expr, values, types, element.dtype))
                types.append(element.dtype)
                store(code, element, values[-1:], pointers[at], places[at].at(pixel, unit))


def fuse_cells(writer: Writer, found: Iterable[Cell]) -> Iterator[Fusion]:
    """All cells: one launch is always faster than several for so few rows."""
    for cell in found:
        yield Fusion(cell.positions, partial(_write, cell=cell), pitched=cell.positions, kept=cell.kept[:-1])


def _write(writer: Writer, nodes: Sequence[Node], cell: Cell) -> None:
    by_position = dict(zip(cell.positions, nodes, strict=True))
    results = [by_position[position].outputs[0] for position in cell.kept]
    contracts = [(by_position[position], channels) for position, channels in cell.channels.items()]
    *_, units = shape = writer.shape(results[-1])
    is_long = max(writer.shape(node.inputs[1])[-1] for node, _ in contracts) > LANES * CHUNK
    slices = WARPS if is_long and units * 2 < BUSY_WARPS * writer.gpu.multiprocessors else 1
    products = [_product(writer, node, units, channels, slices) for node, channels in contracts]
    template = CellTemplate(
        tuple(template for template, _ in products),
        tuple(writer.element(index) for index, _ in cell.reads),
        tuple(zip(map(writer.element, results), cell.values, strict=True)),
    )
    own = IndexMap.along(*range(len(shape)))
    tensors = [*((index, own) for index in reversed(results)), *cell.reads]
    places = [_place(writer, index, access, shape) for index, access in tensors]
    pointers = [writer.pointer(index) for index, _ in tensors]
    arguments = pointers, places, units, [own for _, own in products]
    writer.launch(template, template.grid(units * LANES * slices), arguments)


def _product(
    writer: Writer, node: Node, units: int, channels: Sequence[int], slices: int
) -> tuple[Gemv, tuple[Any, ...]]:
    """The template of a product whose rows of weights are the channels of one unit after another, and its operands."""
    problem = problem_of(writer, node)
    own, (phase,) = rows_of(writer, problem), problem.phases
    source = writer.element(problem.data)
    template = Gemv(
        source,
        own.element,
        problem.sums,
        problem.pixels(phase),
        len(channels),
        slices,
        width=problem.width(min(own.element.widest, source.widest)),
        run=1,
        epilogue=Epilogue(),
        is_packed=own.is_packed,
        scale=own.scale,
        has_filter_zero=problem.filter_zero != 0,
    )
    order = (np.arange(units)[:, None] + np.array(channels)).reshape(-1)
    phase = replace(phase, weights=phase.weights[order], bias=phase.bias[order])
    problem = replace(problem, target=(*problem.target[:3], len(order)), phases=(phase,))
    scales = None if own.scales is None else own.scales[order]
    return template, operands(writer, problem, replace(own, numbers=own.numbers[order], scales=scales), template)


def _place(writer: Writer, index: int, access: IndexMap, shape: Shape) -> Place:
    steps = walk(writer.shape(index), access, shape, writer.strides(index))
    pixel = sum(stride for stride, size in zip(steps.strides, shape[:-1], strict=False) if size > 1)
    return Place(steps.offset, pixel, steps.strides[-1])
