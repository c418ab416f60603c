"""Attention as one step: a product, its Softmax along rows, and the product of that with a third matrix.

A chunk is some rows of one product. Their scores stay in the thread's scratch memory and so in the second-level cache;
those of all rows would be read from farther away, twice.
"""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.forms import MatMul, Softmax
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.kernel import ALIGN, Axis, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.reduce import softmax_row
from jitdelegate.targets.cpu.products.matmul import FEWEST_COPIED_ROWS, MatMulWriter, Matrix, Place, Product, matrix

SCORES_BYTES = 1280 * 1024
"""Scores of a chunk that stay in a second-level cache of 2 MB, beside a part of the matrix that they multiply."""
FEWEST_CHUNKS = 8
"""Fewest chunks, so that threads end at about the same time; each copies the other matrices."""


def write_attention(writer: Writer, first: Node, softmax: Node, second: Node) -> list[Job]:
    """The jobs of a MatMul, the Softmax of its result, and the MatMul that has its result as a."""
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
    return AttentionWriter(writer.generator).attention(
        Product(form, a, b, scores, writer.epilogue(first)),
        soft,
        Product(last, scores, values, result, writer.epilogue(second)),
    )


class AttentionWriter(MatMulWriter):
    """Writes the jobs of attention."""

    def attention(self, first: Product, softmax: Softmax, second: Product) -> list[Job]:
        """Chunks are (number of the product, `rows` rows); the last one of a product may have fewer rows."""
        rows = self._rows(first)
        parts = -(-first.rows // rows)
        last = first.rows - (parts - 1) * rows
        panels = [list(self._panels(product)) for product in (first, second)]
        scores = first.c
        self.panel_start = rows * scores.row
        self.generator.reserve_scratch(self.panel_start)

        def body(kernel: Kernel) -> None:
            f = kernel.f
            part, number = kernel.chunk % parts, kernel.chunk // parts
            start = kernel.pointer(scores.memory)

            def place(product: Product) -> Place:
                return self._down(product, self._place(kernel, product, number), part * rows)

            places = replace(place(first), c=start), replace(place(second), a=start)

            def normalize(i: Value) -> None:
                row = start + i * scores.row
                softmax_row(f, softmax.beta, row, row, scores.shape[1])

            def run(rows: int) -> None:
                self._walk_all(kernel, first, panels[0], places[0], rows)
                f.loop(rows, normalize)
                self._walk_all(kernel, second, panels[1], places[1], rows)

            f.when_last(part, parts if last != rows else 1, lambda: run(rows), lambda: run(last))

        return [self.generator.job("attention", first.count * parts, body)]

    def _rows(self, product: Product) -> int:
        """Rows of a chunk: whole tiles, and as equal as possible."""
        fitting = SCORES_BYTES // product.c.row
        parts = max(-(-product.rows // max(fitting, FEWEST_COPIED_ROWS)), -(-FEWEST_CHUNKS // product.count))
        tile = self._tile_rows(next(self._panels(product)))
        return min(product.rows, max(FEWEST_COPIED_ROWS, -(-product.rows // (parts * tile)) * tile))
