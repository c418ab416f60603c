"""Inverted residuals that one kernel computes: a 1x1 convolution, then a depthwise one, then a 1x1 one.

This pays where images are large and channels few: then a block needs little data and few weights, and the channels
between never leave the multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code import choices
from jitdelegate.targets.cuda.code.cost import COPIED, launch_cycles
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.gpu import REGISTERS
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.mma_tile import ENDS_CYCLES, FINISHED, PRODUCTS, Tile
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand
from jitdelegate.targets.cuda.products import depthwise, mma, separable
from jitdelegate.targets.cuda.products.separable import REGISTERS_OF_THREAD, SCHEDULERS, Pair
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem, problem_of, whole
from jitdelegate.targets.cuda.sources.phases import PhaseSizes
from jitdelegate.targets.cuda.sources.pixel_tiles import PixelTiles
from jitdelegate.targets.cuda.walks.contract_kernel import ContractSizes
from jitdelegate.targets.cuda.walks.depthwise_kernel import DepthwiseTile, positions
from jitdelegate.targets.cuda.walks.inverted_kernel import LAST, OWN_COLUMNS, InvertedMma
from jitdelegate.targets.planning.chains import Chain

SIDES = ((4, 4), (2, 8), (4, 8), (8, 8))
"""Tiles of pixels, (rows, columns)."""
WARPS = {16: ((1, 2, 2), (1, 2, 4)), 32: ((2, 2, 1), (2, 2, 2)), 64: ((2, 2, 1), (2, 2, 2))}
"""Warps along rows, columns and K of the last convolution, by the pixels of a tile."""
MOST_COLUMNS = 160
"""Most channels of the last convolution: one block computes all of them."""
MOST_SEEN = 128
"""Most pixels under the windows of a tile: a thread has sums of each eighth one, of four channels."""
WAITING_CYCLES = 400
"""Cycles of a turn in which a block alone on its multiprocessor waits: three barriers, first loads from shared memory.
Estimated from instruction latencies."""
STORED = 5
"""Instructions for a result of the first convolution: bias, epilogue, rounding, store."""


@dataclass(frozen=True, slots=True)
class Residual:
    """An inverted residual.

    Attributes:
        first: the first convolution.
        pair: the others.
    """

    first: Node
    problem: ConvProblem
    pair: Pair


@dataclass(frozen=True, slots=True)
class Choice:
    """How a residual is computed, and the estimated cycles."""

    template: InvertedMma
    cycles: float

    @property
    def name(self) -> str:
        """As tables of tuned kernels have it."""
        window = self.template.window
        return choices.candidate(
            (*choices.numbers(self.template.tile), *self.template.sides, window.width, *window.tile)
        )


def find(writer: Writer) -> Iterator[Chain[Writer]]:
    """The inverted residuals of the writer's graph that one kernel computes faster than two or three."""
    if writer.precision not in ("float16", "bfloat16") or not writer.gpu.has_async_copy:
        return
    alone, used = Writer(writer.graph, writer.gpu, writer.precision), set[InvertedMma]()
    for places, pair in separable.pairs(writer):
        before = writer.graph.writer[pair.nodes[0].inputs[0]]
        residual = None if before is None else _residual(writer, writer.graph.nodes[before], places[0], pair)
        if residual is None:
            continue
        candidates = _candidates(writer, residual)
        choice = separable.preferred(candidates, used, _apart(writer, alone, residual))
        if choice:
            used.add(choice.template)
            yield Chain((before or 0, *places), _Writing(residual, choice, candidates), writes_rows=True)


def _residual(writer: Writer, first: Node, reader: int, pair: Pair) -> Residual | None:
    """The nodes as an inverted residual; None if no kernel computes them together."""
    form, between, window = first.form, first.outputs[0], pair.window
    if not isinstance(form, Contract) or not form.is_pointwise or form.operands or form.accumulator != "float32":
        return None
    if writer.graph.only_reader(between) != reader or between in pair.nodes[0].inputs[1:]:
        return None
    if writer.graph.tensors[between].dtype != "float32" or not all(_constant(writer, i) for i in first.inputs[1:3]):
        return None
    steps = zip(window.stride, window.dilation, strict=True)
    share = all(1 in pair_of for pair_of in steps)
    each = CHUNK // writer.element(between).nbytes
    problem = problem_of(writer, first)
    is_whole = problem.depth % each == pair.channels % each == 0 and problem.is_direct
    is_stored = writer.element(problem.data) is Element(writer.precision)
    are_wide = problem.weights is pair.problem.weights is Element.FLOAT32
    is_narrow = pair.problem.outputs <= MOST_COLUMNS
    if not (share and is_whole and is_stored and are_wide and is_narrow):
        return None
    return Residual(first, problem, pair)


def _constant(writer: Writer, index: int) -> bool:
    return index < 0 or writer.graph.tensors[index].is_constant


def _apart(writer: Writer, alone: Writer, residual: Residual) -> float:
    """Estimated cycles of the launches that would compute the residual, without what follows them."""
    first = mma.cycles(alone, residual.problem) + launch_cycles(writer.gpu)
    return first + separable.best_cycles(writer, alone, residual.pair)


def _candidates(writer: Writer, residual: Residual) -> list[Choice]:
    return [Choice(template, _cycles(writer, residual, template)) for template in _templates(writer, residual)]


def _tuned(writer: Writer, residual: Residual, choice: Choice, candidates: Sequence[Choice]) -> Choice:
    """The tuned way to compute a residual; `choice` where nothing is known."""
    elements = writer.element(residual.problem.data), residual.problem.weights, residual.pair.problem.weights
    text = separable.text_of(writer, "inverted", elements, residual.pair, I=residual.problem.depth)
    ranked = sorted(candidates, key=lambda one: one.cycles)
    return writer.choose(text, {one.name: one for one in (choice, *ranked)})


def _templates(writer: Writer, residual: Residual) -> Iterator[InvertedMma]:
    """Templates with each tile that suits the residual and fits the GPU."""
    pair, operand = residual.pair, Operand(writer.precision)
    node, form, nbytes = pair.nodes[0], pair.window, operand.element.nbytes
    stored = depthwise.stored_weights(writer, node)
    if stored is not operand.element:
        return
    output = writer.element(pair.problem.output)
    (inner, _), (middle, _), (last, _) = (writer.epilogue(one) for one in (residual.first, *pair.nodes))
    width = CHUNK // nbytes
    for sides in SIDES:
        rows = prod(sides)
        for warps in WARPS[rows]:
            threads = 32 * prod(warps)
            row_bytes = threads // 32 * OWN_COLUMNS * nbytes
            columns = whole(pair.problem.outputs, OWN_COLUMNS * warps[1])
            outputs = rows * row_bytes // CHUNK // threads
            across = form.kernel[1], form.stride[1], 1
            if outputs > sides[1] or positions(outputs, across, 1) > depthwise.MOST_SEEN:
                continue
            window = DepthwiseTile(
                width, False, operand.element, stored, operand.element, middle, None, across, (1, outputs)
            )
            template = InvertedMma(
                operand=operand,
                source=operand.element,
                output=output,
                tile=Tile(rows, columns, warps, row_bytes, 2),
                width=width,
                run=common_width((pair.problem.outputs,), min(output.widest, mma.RUN)),
                is_direct=True,
                is_scattered=False,
                is_part=False,
                cluster=1,
                has_async_copy=True,
                has_halo=False,
                weights=Element.FLOAT32,
                epilogue=last,
                window=window,
                down=(form.kernel[0], form.stride[0]),
                sides=sides,
                steps=-(-residual.problem.depth * nbytes // STEP),
                inner=inner,
            )
            if template.seen_rows <= MOST_SEEN and template.shared_bytes <= writer.gpu.shared_bytes:
                yield template


def _cycles(writer: Writer, residual: Residual, template: InvertedMma) -> float:
    """Estimated cycles of a residual's launch. A turn costs the most of: its weights from the L2 cache, its products,
    and its instructions."""
    gpu, pair, tile, window = writer.gpu, residual.pair, template.tile, template.window
    turns, seen = -(-pair.channels // template.channels), template.seen_rows
    blocks = pair.images * prod(-(-size // side) for size, side in zip(_tiled(pair), template.sides, strict=True))
    each = -(-blocks // gpu.multiprocessors)
    weights = template.expand_bytes + tile.columns * tile.row_bytes + template.taps_bytes
    data = prod(template.seen) * residual.problem.depth * template.source.nbytes
    products = (seen * template.channels * template.steps * STEP + tile.rows * tile.columns * tile.row_bytes) / 2
    stored = seen * template.channels * STORED / tile.threads
    issued = tile.threads / 32 * (separable.instructions(window, pair.window) + stored) / SCHEDULERS
    ends = tile.rows * tile.columns * tile.warps[2] / FINISHED
    turn = max(weights / COPIED, products / PRODUCTS, issued)
    alone = turns * (products / PRODUCTS + issued + WAITING_CYCLES) + ends + ENDS_CYCLES
    resident = max(min(REGISTERS // (REGISTERS_OF_THREAD * tile.threads), gpu.shared_bytes // template.shared_bytes), 1)
    return max(each * (turns * turn + data / COPIED + ends), -(-each // resident) * alone)


def _tiled(pair: Pair) -> tuple[int, int]:
    """Rows and columns of the output, with those that fill whole stretches of dilated tiles."""
    rows, columns = (whole(size, apart) for size, apart in zip(pair.output, pair.apart, strict=True))
    return rows, columns


@dataclass(frozen=True, slots=True)
class _Writing:
    residual: Residual
    choice: Choice
    candidates: Sequence[Choice]

    def __call__(self, writer: Writer, nodes: object) -> None:
        residual, pair = self.residual, self.residual.pair
        choice = _tuned(writer, residual, self.choice, self.candidates)
        template = separable.storing(writer, choice.template, pair.nodes[1])
        assert isinstance(template, InvertedMma)
        tile, operand, shift = template.tile, template.operand, template.sides[1].bit_length() - 1
        problem, phase, first = pair.problem, pair.problem.phases[0], residual.problem.phases[0]
        k_tile = template.channels
        sizes = (1, k_tile, tile.columns)
        turns = phase.matrices_shape(*sizes)[1] // k_tile
        expand = Tile(template.seen_rows, k_tile, (1, 1, 1), template.k_row, 1)
        expand_sizes = (1, template.k_row // operand.element.nbytes, k_tile)
        weights = mma.packed_weights(writer, problem, sizes, tile, operand)
        pointers, window = separable.arguments(writer, pair, residual.problem.data, weights, tile.columns)
        writer.launch(
            template,
            (pair.blocks(tile.rows, shift), 1, 1),
            (
                *pointers[:LAST],
                mma.packed_weights(writer, residual.problem, expand_sizes, expand, operand),
                writer.constant(residual.problem.biases(first, k_tile)),
                *pointers[LAST:],
                ContractSizes(1, problem.depth, problem.outputs, writer.pitch(problem.output)),
                PhaseSizes(turns, turns, 0, 0, problem.source(phase)),
                PixelTiles.of(pair.output, tile.rows, shift, pair.apart),
                *window,
                residual.problem.depth,
            ),
            template.shared_bytes,
            cycles=choice.cycles,
        )
