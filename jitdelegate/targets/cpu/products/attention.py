"""Attention as one step: a product, its Softmax along rows, and the product of that with a third matrix.

A chunk is some rows of one product. Their scores stay in the thread's scratch memory and so in the second-level cache;
those of all rows would be read from farther away, twice.

Decoders attend to a cache whose end is masked: at position 100 of 1,280, nine tenths of the keys and values count for
nothing. Where a mask is added to the scores, a chunk first looks for the last block of keys of which its rows see one,
and reads no keys and values behind it. What it leaves out are products by weights that are exactly zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from jitdelegate.ir.expr import RESULT, Apply, Arg, Expr
from jitdelegate.ir.forms import MatMul, Softmax
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream
from jitdelegate.targets.cpu.code.kernel import Axis, Generator, Job, Kernel, Memory, odd_lines
from jitdelegate.targets.cpu.code.tasks import Plan
from jitdelegate.targets.cpu.code.vector_ir import BOOL, FLOAT_BYTES, Function, Value, vector
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
FEWEST_SMALL_CHUNKS = 2
"""The same where there are few rows, which all read the same keys and values."""
LEAST_BLOCK, LARGEST_BLOCK = 64, 128
"""Keys of a block; fewer would cost too many parts of sums."""
MOST_LANES = 16
MASKED = -1e30
"""Where a mask is not larger, no score is seen: e**x is 0 from -104 on, below the largest score of the row."""


def fuse_attentions(plan: Plan, found: Iterable[Attention]) -> Iterator[Fusion]:
    """The attentions to which nothing happens before the Softmax, with many scores or with a mask."""
    for attention in found:
        first, last = (plan.graph.nodes[position] for position in (attention.scores, attention.product))
        scores, shape = first.outputs[0], plan.graph.tensors[first.outputs[0]].shape
        if attention.maps or plan.graph.tensors[last.inputs[0]].shape != shape:
            continue
        is_long = plan.is_large(scores) and shape[-2] >= FEWEST_FUSED_ROWS
        if is_long or _mask(plan.graph, first, last) is not None:
            yield Fusion(attention.positions, write_attention)


def _mask(graph: Graph, first: Node, last: Node) -> int | None:
    """Which stream of the first product's epilogue is added to its scores, and may hide whole blocks of keys from all
    rows that read it; None if none is, or if the sums of the last product cannot be cut at blocks."""
    form, scores = first.form, graph.tensors[first.outputs[0]].shape
    assert isinstance(form, MatMul)
    if form_of(last).epilogue != RESULT or _block(scores[-1]) == scores[-1]:
        return None
    operands = [graph.tensors[index] for index in first.inputs[form.core :]]
    for number in _added(form.epilogue):
        mask = operands[number]
        is_along = mask.shape[-1:] == scores[-1:] and form.operands[number].dims[-1] == len(scores) - 1
        if is_along and mask.dtype == "float32" and (mask.data is None or (mask.data <= MASKED).any()):
            return sum(other.data is None or other.data.size > 1 for other in operands[:number])
    return None


def _added(expr: Expr) -> Iterator[int]:
    """Numbers of the epilogue's operands that are added to everything else."""
    if isinstance(expr, Apply) and expr.function == "add":
        for part in expr.arguments:
            yield from _added(part)
    elif isinstance(expr, Arg) and expr != RESULT:
        yield expr.index - 1


def _block(keys: int) -> int:
    """Keys of a block of whole vectors; all keys where they cannot be cut into equal ones."""
    sizes = range(LARGEST_BLOCK, LEAST_BLOCK - 1, -MOST_LANES)
    return next((size for size in sizes if keys % size == 0), keys)


def write_attention(writer: Writer, nodes: Sequence[Node]) -> list[Job]:
    """The jobs of a MatMul, the Softmax of its result, and the MatMul that has its result as a."""
    first, softmax, second = nodes
    form, soft, last = first.form, softmax.form, second.form
    assert isinstance(form, MatMul)
    assert isinstance(soft, Softmax)
    assert isinstance(last, MatMul)
    *leading, rows, columns = writer.shape(first.outputs[0])
    row = odd_lines(columns * FLOAT_BYTES)
    layout = Layout((1, 1, rows, columns), writer.generator.lanes)
    scores = Matrix(Memory("scratch", 0, layout), (rows, columns), tuple(Axis(size, 0) for size in leading), row)

    def side(index: int, order: tuple[int, ...]) -> Matrix:
        return matrix(writer.memory(index), writer.shape(index), order, tuple(leading))

    a, b = side(first.inputs[0], form.a_order), side(first.inputs[1], form.b_order)
    values, result = side(second.inputs[1], last.b_order), side(second.outputs[0], last.order)
    machine = writer.generator.machine
    products = [products_by_rows(machine, *operands, rows) for operands in ((form, a), (last, scores))]
    mask = _mask(writer.graph, first, second)
    blocks = KeyBlocks(
        Product.of(form, products[0], a, b, scores, writer.epilogue(first)),
        soft,
        Product.of(last, products[1], scores, values, result, writer.epilogue(second)),
        columns if mask is None else _block(columns),
        mask,
    )
    return [_job(writer.generator, blocks)]


@dataclass(frozen=True)
class KeyBlocks:
    """An attention whose keys are cut into equal blocks.

    Attributes:
        scores, values: the two products, with all keys.
        size: keys of a block.
        mask: which stream of the scores' epilogue may hide blocks; None where all keys are one block.
    """

    scores: Product
    softmax: Softmax
    values: Product
    size: int
    mask: int | None

    def write(self, kernel: Kernel, ends: Sequence[Sequence[Value]], start: Value, rows: int, scratch: int) -> None:
        """Writes the code for some rows.

        Args:
            ends: pointers to a, b, c and the streams of both products, at the first row.
            start: pointer to the scores, in scratch memory, of which `scratch` bytes are in use.
        """
        f, (a, b, _, *streams), (_, values, *result) = kernel.f, *ends
        part = replace(self.scores, c=replace(self.scores.c, shape=(rows, self.size)))
        steps = [self.size * part.b_steps[0], self.size * FLOAT_BYTES]
        steps += [self.size // part.products.lanes * stream.block for stream in part.epilogue.streams]
        # once for all blocks
        part, a, used = part.converted(kernel, a, f.index(0), rows, scratch)
        count: Value | int = 1
        if self.mask is not None:
            count = self._seen(f, streams[self.mask], self.scores.epilogue.streams[self.mask].pixel, rows)

        def score(i: Value) -> None:
            moved = [p + i * step for p, step in zip((b, start, *streams), steps, strict=True)]
            part.walk(kernel, [a, *moved], part.groups, f.index(0), rows, scratch=used)

        def normalize(i: Value) -> None:
            row = start + i * part.c.row
            softmax_row(f, self.softmax.beta, row, row, self.scores.columns)

        def add(i: Value) -> None:
            at = [start + (i + 1) * steps[1], values + (i + 1) * (self.size * sums.b_steps[1])]
            more.walk(kernel, [*at, *result, *result], more.groups, f.index(0), rows, scratch=scratch)

        f.loop(count, score)
        if isinstance(count, Value):
            f.when(f.compare("ult", count, self._count), lambda: self._hide(f, start, rows, count))
        f.loop(rows, normalize)
        sums = replace(self.values, depth=self.size)
        sums.walk(kernel, [start, values, *result], sums.groups, f.index(0), rows, scratch=scratch)
        if isinstance(count, Value):
            before = Stream(sums.c.memory, 0, 0, 0, sums.c.row, sums.block, splat=False)
            more = replace(sums, epilogue=Epilogue(RESULT + Arg(1), (before,)))
            f.when(f.compare("ugt", count, 1), partial(f.loop, count - 1, add))

    @property
    def _count(self) -> int:
        return self.scores.columns // self.size

    def _seen(self, f: Function, mask: Value, apart: int, rows: int) -> Value:
        """How many blocks there are up to the last one of which a row sees a key; rows of the mask are `apart` bytes
        apart. A row that sees none at all weighs all keys."""
        lanes = self.scores.products.lanes

        def block(i: Value, at: Value, last: Value) -> list[Value]:
            seen = f.literal(vector(lanes, BOOL), 0)
            for k in range(0, self.size, lanes):
                seen = seen | f.compare("ugt", f.load(vector(lanes), at + k * FLOAT_BYTES), MASKED)
            is_seen = f.intrinsic("vector.reduce.or", BOOL, seen)
            return [at + self.size * FLOAT_BYTES, f.select(is_seen, i + 1, last)]

        def row(i: Value, most: Value) -> list[Value]:
            _, last = f.loop(self._count, block, mask + i * apart, f.index(0))
            last = f.select(f.compare("eq", last, 0), f.index(self._count), last)
            return [f.maximum(most, last)]

        (most,) = f.loop(rows if apart else 1, row, f.index(0))
        return most

    def _hide(self, f: Function, start: Value, rows: int, count: Value) -> None:
        """Gives the scores of all blocks behind the first `count` ones a weight of zero."""
        lanes, lowest = self.scores.products.lanes, f.literal(vector(self.scores.products.lanes), -inf)
        vectors = self.size // lanes

        def row(i: Value) -> None:
            at = start + i * self.scores.c.row + count * (self.size * FLOAT_BYTES)
            left = (f.index(self._count) - count) * vectors
            f.loop(left, lambda k: f.store(lowest, at + k * (lanes * FLOAT_BYTES)))

        f.loop(rows, row)


def _job(generator: Generator, blocks: KeyBlocks) -> Job:
    """Chunks are (number of the product, rows)."""
    first, second = blocks.scores, blocks.values
    chunks = Chunks.of(first.count, 0, first.rows, _rows(first))
    scratch = chunks.rows * first.c.row
    generator.reserve_scratch(scratch)

    def body(kernel: Kernel) -> None:
        number, _, part = chunks.numbers(kernel)
        start, row = kernel.pointer(first.c.memory), part * chunks.rows
        ends = [product.down(product.pointers(kernel, number), row) for product in (first, second)]
        chunks.run(kernel, part, lambda rows: blocks.write(kernel, ends, start, rows, scratch))

    return generator.once_for(("attention", blocks), lambda: generator.job("attention", chunks.count, body))


def _rows(product: Product) -> int:
    """Rows of a chunk: whole tiles, and as equal as possible."""
    if product.rows < FEWEST_FUSED_ROWS:
        return -(-product.rows // -(-FEWEST_SMALL_CHUNKS // product.count))
    fitting = SCORES_BYTES // product.c.row
    parts = max(-(-product.rows // max(fitting, FEWEST_COPIED_ROWS)), -(-FEWEST_CHUNKS // product.count))
    tile = product.tile_rows(product.groups[0])
    return min(product.rows, max(FEWEST_COPIED_ROWS, -(-product.rows // (parts * tile)) * tile))
