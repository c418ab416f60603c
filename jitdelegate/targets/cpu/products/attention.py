"""Attention as one step: a product, its Softmax along rows, and the product of that with a third matrix.

A chunk is some rows of one product. Their scores stay in the thread's scratch memory and so in the second-level cache;
those of all rows would be read from farther away, twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jitdelegate.ir.forms import MatMul, Softmax
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.kernel import ALIGN, Axis, Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.tasks import Plan
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.reduce import softmax_row
from jitdelegate.targets.cpu.products.chunks import Chunks
from jitdelegate.targets.cpu.products.matmul import FEWEST_COPIED_ROWS, Matrix, Product, matrix, products_by_rows
from jitdelegate.targets.planning.fusions import Attention, Fusion

SCORES_BYTES = 1280 * 1024
"""Scores of a chunk that stay in a second-level cache of 2 MB, beside a part of the matrix that they multiply."""
FEWEST_FUSED_ROWS = 48
"""Fewest rows of a product that is fused with the Softmax after it: each chunk of rows copies the other matrix."""
FEWEST_CHUNKS = 8
"""Fewest chunks, so that threads end at about the same time; each copies the other matrices."""


def fuse_attentions(plan: Plan, found: Iterable[Attention]) -> Iterator[Fusion]:
    """The attentions with many scores, to which nothing happens before the Softmax."""
    for attention in found:
        scores, weights = plan.graph.nodes[attention.scores].outputs[0], plan.graph.nodes[attention.product].inputs[0]
        shape = plan.graph.tensors[scores].shape
        is_large = plan.is_large(scores) and shape[-2] >= FEWEST_FUSED_ROWS
        if is_large and not attention.maps and plan.graph.tensors[weights].shape == shape:
            yield Fusion(attention.positions, write_attention)


def write_attention(writer: Writer, nodes: Sequence[Node]) -> list[Job]:
    """The jobs of a MatMul, the Softmax of its result, and the MatMul that has its result as a."""
    first, softmax, second = nodes
    form, soft, last = first.form, softmax.form, second.form
    assert isinstance(form, MatMul)
    assert isinstance(soft, Softmax)
    assert isinstance(last, MatMul)
    *leading, rows, columns = writer.shape(first.outputs[0])
    row = -(-columns * FLOAT_BYTES // ALIGN) * ALIGN + ALIGN  # not a power of two, so that rows lie in different sets
    layout = Layout((1, 1, rows, columns), writer.generator.lanes)
    scores = Matrix(Memory("scratch", 0, layout), (rows, columns), tuple(Axis(size, 0) for size in leading), row)

    def side(index: int, order: tuple[int, ...]) -> Matrix:
        return matrix(writer.memory(index), writer.shape(index), order, tuple(leading))

    a, b = side(first.inputs[0], form.a_order), side(first.inputs[1], form.b_order)
    values, result = side(second.inputs[1], last.b_order), side(second.outputs[0], last.order)
    machine = writer.generator.machine
    products = [products_by_rows(machine, *operands, rows) for operands in ((form, a), (last, scores))]
    first_product = Product.of(form, products[0], a, b, scores, writer.epilogue(first))
    second_product = Product.of(last, products[1], scores, values, result, writer.epilogue(second))
    return [_job(writer.generator, first_product, soft, second_product)]


def _job(generator: Generator, first: Product, softmax: Softmax, second: Product) -> Job:
    """Chunks are (number of the product, rows)."""
    chunks = Chunks.of(first.count, 0, first.rows, _rows(first))
    scores = first.c
    scratch = chunks.rows * scores.row
    generator.reserve_scratch(scratch)

    def body(kernel: Kernel) -> None:
        f, (number, _, part) = kernel.f, chunks.numbers(kernel)
        start, row = kernel.pointer(scores.memory), part * chunks.rows
        a, b, _, *streams = first.down(first.pointers(kernel, number), row)
        _, *others = second.down(second.pointers(kernel, number), row)

        def normalize(i: Value) -> None:
            row = start + i * scores.row
            softmax_row(f, softmax.beta, row, row, scores.shape[1])

        def run(rows: int) -> None:
            first.walk(kernel, [a, b, start, *streams], first.groups, f.index(0), rows, scratch=scratch)
            f.loop(rows, normalize)
            second.walk(kernel, [start, *others], second.groups, f.index(0), rows, scratch=scratch)

        chunks.run(kernel, part, run)

    return generator.job("attention", chunks.count, body)


def _rows(product: Product) -> int:
    """Rows of a chunk: whole tiles, and as equal as possible."""
    fitting = SCORES_BYTES // product.c.row
    parts = max(-(-product.rows // max(fitting, FEWEST_COPIED_ROWS)), -(-FEWEST_CHUNKS // product.count))
    tile = product.tile_rows(product.groups[0])
    return min(product.rows, max(FEWEST_COPIED_ROWS, -(-product.rows // (parts * tile)) * tile))
