"""MatMul: products of two matrices computed at run time, with a tile chosen by their sizes.

Integers and precision "float32" use multiply-adds, all other precisions use tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jitdelegate.ir.forms import MatMul
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.choices import candidate, problem
from jitdelegate.targets.cuda.code.cost import COPIED, cycles
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.fragments import PAIR
from jitdelegate.targets.cuda.multiply.quads import QUAD
from jitdelegate.targets.cuda.multiply.tensor_core import Operand, check_operand
from jitdelegate.targets.cuda.walks.matmul_ffma import FFMA_TILES, FfmaProduct
from jitdelegate.targets.cuda.walks.matmul_mma import MMA_TILES, MmaProduct
from jitdelegate.targets.cuda.walks.matmul_product import ProductAxis, ProductSizes, ProductTemplate, Side
from jitdelegate.targets.planning.implicit_gemm import matrix_strides, permuted

TURN_CYCLES = 600
"""Cycles per tile of K if no resource is the bottleneck, where tiles go through registers: a read of memory, a write
and a read of shared memory, the barrier. Estimated from instruction latencies, like the next two."""
COPY_TURN_CYCLES = 250
"""The same where tiles are copied asynchronously."""
ENDS_CYCLES = 2000
"""Cycles before the first and after the last multiplication of a block."""
FINISHED = 16
"""Sums per cycle that a multiprocessor adds up and takes through the epilogue."""
THREADS = 512
"""Threads on a multiprocessor at a time, limited by the registers that they use."""
MOST_BLOCKS = 16
"""Most blocks on a multiprocessor at a time, on every GPU."""
MOST_THREADS = 256
"""Most threads of a block, so that each may use the largest number of registers that an instruction can name."""
SHARED_BYTES = 48 * 1024
"""Most shared memory of a block: every GPU grants this much by default."""
OUTPUT = 2
"""The number of the output among the sides of a product, after a and b."""


@dataclass(frozen=True, slots=True)
class Product:
    """The operands of a node: `count` pairs of matrices, [rows, depth] by [depth, columns].

    Attributes:
        pitches: elements between the rows of both operands, as they are stored, and of the output.
        axes: leading axes; neighbouring axes with continuing strides are merged.
        grains: what the widths of accesses to both operands and the output have to divide besides (`Writer.grain`).
    """

    rows: int
    columns: int
    depth: int
    pitches: tuple[int, int, int]
    axes: tuple[ProductAxis, ...]
    grains: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        return prod(axis.size for axis in self.axes)

    def side_width(self, side: int, size: int, most: int) -> int:
        """The widest access to neighbours in memory of which there are `size`; sides are a, b and the output."""
        distances = self.pitches[side], *(axis[1 + side] for axis in self.axes)
        return common_width((size, *distances, *self.grains[side]), most)


def product_of(writer: Writer, node: Node, form: MatMul) -> Product:
    """The product of a node."""
    sides = [(*node.inputs[:2], node.outputs[0]), (form.a_order, form.b_order, form.order)]
    shapes = [permuted(writer.shape(index), order) for index, order in zip(*sides, strict=True)]
    far = [permuted(writer.strides(index), order) for index, order in zip(*sides, strict=True)]
    *leading, rows, columns = shapes[2]
    strides = [matrix_strides(shape, one, len(leading)) for shape, one in zip(shapes, far, strict=True)]
    axes: list[ProductAxis] = []
    for size, *along in zip(leading, *strides, strict=True):
        if axes and axes[-1][1:] == tuple(size * one for one in along):
            axes[-1] = ProductAxis(axes[-1].size * size, *along)
        elif size > 1:
            axes.append(ProductAxis(size, *along))
    pitches = far[0][-2], far[1][-2], far[2][-2]
    grains = *map(writer.grain, node.inputs[:2]), writer.output_grain(node)
    return Product(rows, columns, shapes[0][-2 if form.adj_x else -1], pitches, tuple(axes), grains)


def write_matmul(writer: Writer, node: Node, form: MatMul) -> None:
    """Writes the launch of a MatMul node.

    Raises:
        CompileError: the GPU does not support the precision.
    """
    (a, b), output = node.inputs[:2], node.outputs[0]
    product = product_of(writer, node, form)
    epilogue, extra = writer.epilogue(node)
    template = _template(writer, node, form, product, epilogue)
    down, across = -(-product.rows // template.tile.rows), -(-product.columns // template.tile.columns)
    writer.launch(
        template,
        (product.count * down, across, 1),
        (
            writer.pointer(output),
            (writer.pointer(a), writer.pointer(b)),
            extra,
            ProductSizes(product.rows, product.columns, product.depth, down, *product.pitches),
            product.axes,
            (form.input_zero,) if template.is_integer else (),
        ),
        template.shared_bytes,
        cycles=_cycles(writer.gpu, product, template),
    )


def _template(writer: Writer, node: Node, form: MatMul, product: Product, epilogue: Epilogue) -> ProductTemplate:
    """The template that suits a product on the writer's GPU."""
    is_new, is_scalar = writer.gpu.has_async_copy, writer.precision == "float32" or form.accumulator == "int32"
    operand = None if is_scalar else Operand(writer.precision)
    if operand:
        check_operand(writer.gpu, operand)
    output, most = writer.element(node.outputs[0]), PAIR if operand else QUAD
    run = product.side_width(OUTPUT, product.columns, most)
    sides = _sides(writer, node, form, product, (operand.element if operand else Element.FLOAT32).widest)
    common = *sides, output, run, len(product.axes), epilogue, is_new
    candidates: list[ProductTemplate]
    if operand:
        candidates = [MmaProduct(tile, *common, operand) for tile in MMA_TILES]
    else:
        candidates = [FfmaProduct(tile, *common) for tile in FFMA_TILES]
    first = candidates[0]
    text = problem(
        f"{first.family} {writer.precision}",
        (first.left.element, first.right.element, first.output),
        M=product.rows,
        N=product.columns,
        K=product.depth,
        B=product.count,
        A=first.left.along_depth + 2 * first.right.along_depth,
        W=first.left.width,
        V=first.right.width,
        R=first.run,
        E=len(first.epilogue.operands),
    )
    fitting = [one for one in candidates if one.threads <= MOST_THREADS and one.shared_bytes <= SHARED_BYTES]
    named = {candidate(one.tile): one for one in fitting}
    return writer.choose(text, named, lambda one: _cycles(writer.gpu, product, one))


def _sides(writer: Writer, node: Node, form: MatMul, product: Product, most: int) -> tuple[Side, Side]:
    """The memory layout of both operands; an access has at most a chunk of shared memory, `most` elements."""

    def side(number: int, lines: int, *, along_depth: bool) -> Side:
        element, size = writer.element(node.inputs[number]), product.depth if along_depth else lines
        return Side(element, along_depth, product.side_width(number, size, min(most, element.widest)))

    return side(0, product.rows, along_depth=not form.adj_x), side(1, product.columns, along_depth=form.adj_y)


def _cycles(gpu: Gpu, product: Product, template: ProductTemplate) -> float:
    """Estimated cycles of all blocks of a product, for comparing tiles."""
    tile = template.tile
    blocks = product.count * -(-product.rows // tile.rows) * -(-product.columns // tile.columns)
    turns = -(-product.depth // template.steps)
    sides = (template.left, tile.rows), (template.right, tile.columns)
    copied = sum(side.element.nbytes * lines for side, lines in sides) / COPIED
    turn = template.steps * max(tile.rows * tile.columns / tile.products, copied)
    end = tile.rows * tile.columns / FINISHED
    resident = min(THREADS // template.threads, MOST_BLOCKS)
    alone = (COPY_TURN_CYCLES if template.is_asynchronous else TURN_CYCLES) + turn
    return cycles(gpu, blocks, resident, turns, turn, alone, ENDS_CYCLES, end)
