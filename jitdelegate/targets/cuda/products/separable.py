"""Depthwise convolutions that are computed by the kernel of the 1x1 convolution that reads them.

A block computes the depthwise results that it multiplies, so blocks with other output channels of the same pixels
repeat that work. This pays where it costs less than a launch and the way through memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import prod
from typing import Any

from jitdelegate.ir.forms import Depthwise
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code import choices
from jitdelegate.targets.cuda.code.cost import COPIED, cycles, launch_cycles
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.gpu import REGISTERS, Gpu
from jitdelegate.targets.cuda.code.template import TensorPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply import ffma_tile, mma_tile
from jitdelegate.targets.cuda.multiply.quads import QUAD
from jitdelegate.targets.cuda.multiply.tensor_core import STEP, has_operand
from jitdelegate.targets.cuda.products import contract, depthwise, ffma, mma
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem, problem_of
from jitdelegate.targets.cuda.sources.pixel_tiles import PixelTiles, tiles_of
from jitdelegate.targets.cuda.walks import gemv
from jitdelegate.targets.cuda.walks.depthwise_kernel import DepthwiseTile, Steps, positions, spacing
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma
from jitdelegate.targets.cuda.walks.separable_kernel import SeparableFfma, SeparableMma
from jitdelegate.targets.planning.fusions import Fusion

MMA_TILES = tuple(
    mma_tile.Tile(rows, columns, warps, row_bytes, 2)
    for rows, columns, warps in (
        (64, 128, (2, 4, 1)),
        (64, 64, (2, 2, 1)),
        (64, 32, (2, 1, 2)),
        (32, 128, (1, 4, 2)),
        (32, 64, (1, 2, 2)),
        (16, 128, (1, 4, 2)),
        (16, 64, (1, 2, 4)),
        (16, 32, (1, 1, 8)),
    )
    for row_bytes in (1024, 512, 256, 128, 64)
    if row_bytes >= warps[2] * STEP
)
"""Tiles of the 1x1 convolution on tensor cores. Long rows have fewer waits for data."""
FLOAT = WORD = 4
SCHEDULERS = 4
"""Instructions that a multiprocessor begins per cycle."""
OUTPUTS = (1, 2, 4)
"""Possible numbers of pixels that a thread computes together."""
LOADING_CYCLES = 500
"""Cycles from one barrier to the next in which a tile's data arrives from the L2 cache."""
ROUNDING = 10
"""Instructions that round a sum of bytes and limit it, counted in machine code."""
REGISTERS_OF_THREAD = 168
"""Registers that a thread of these kernels needs at most, as a rule."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A depthwise convolution, and the 1x1 convolution that reads it.

    Attributes:
        image, output: sizes [rows, columns] of the data and of the results.
        images, channels: images, and channels of the depthwise convolution.
        steps: kernel, stride and dilation down and across.
        apart: rows and columns from one pixel of a tile to the next.
    """

    nodes: tuple[Node, Node]
    problem: ConvProblem
    window: Depthwise
    image: Sequence[int]
    output: Sequence[int]
    images: int
    channels: int
    steps: tuple[Steps, Steps]
    apart: tuple[int, int]

    def blocks(self, pixels: int, shift: int) -> int:
        """Tiles of so many pixels, 2 ** shift of them across."""
        return self.images * prod(tiles_of(self.output, pixels, shift, self.apart))

    def seen(self, pixels: int, shift: int) -> int:
        """Pixels of data under the windows of a tile."""
        sides = pixels >> shift, 1 << shift
        return prod(map(min, map(positions, sides, self.steps, self.apart), self.image))


@dataclass(frozen=True, slots=True)
class Choice:
    """How a pair is computed.

    Attributes:
        shift: a tile of pixels has 2 ** shift pixels across.
        cycles: estimated cycles.
    """

    template: SeparableMma | SeparableFfma
    shift: int
    cycles: float

    @property
    def name(self) -> str:
        """As tables of tuned kernels have it."""
        window = self.template.window
        return choices.candidate((*choices.numbers(self.template.tile), window.width, *window.tile, self.shift))


def fuse_separables(writer: Writer, pairs: Iterable[tuple[int, int]]) -> Iterator[Fusion]:
    """The pairs that one kernel computes faster than two."""
    alone = Writer(writer.graph, writer.gpu, writer.precision)
    for first, second in pairs:
        pair = _pair(writer, writer.graph.nodes[first], writer.graph.nodes[second])
        if pair is None:
            continue
        candidates = _candidates(writer, pair)
        choice = min(candidates, key=lambda one: one.cycles, default=None)
        if choice and choice.cycles < _apart(alone, pair):
            write = partial(_write, pair=pair, choice=choice, candidates=candidates)
            yield Fusion((first, second), write, pitched=(second,), width=choice.template.window.width)


def _pair(writer: Writer, first: Node, second: Node) -> Pair | None:
    """The nodes as a pair; None if no kernel computes them together."""
    window = first.form
    assert isinstance(window, Depthwise)
    data, output = writer.shape(first.inputs[0]), writer.shape(first.outputs[0])
    if window.kernel[1] > depthwise.USUAL_COLUMNS or len(data) != 4:
        return None
    problem = problem_of(writer, second)
    if gemv.fits(problem) or not problem.is_direct:
        return None
    rows, columns = zip(window.kernel, window.stride, window.dilation, strict=True)
    steps, apart = (rows, columns), (spacing(rows), spacing(columns))
    return Pair((first, second), problem, window, data[1:3], output[1:3], data[0], data[3], steps, apart)


def _apart(alone: Writer, pair: Pair) -> float:
    """Estimated cycles of the two launches that would compute the pair, and of what lies between them."""
    alone.begin(pair.nodes[0])
    depthwise.write_depthwise(alone, pair.nodes[0], pair.window)
    return alone.launches[-1].cycles + launch_cycles(alone.gpu) + contract.choose(alone, pair.problem).cycles


def _candidates(writer: Writer, pair: Pair) -> list[Choice]:
    return [
        Choice(template, shift, _cycles(writer.gpu, pair, template, shift))
        for template in _templates(writer, pair)
        for shift in range(template.window.tile[1].bit_length() - 1, template.tile.rows.bit_length())
    ]


def _tuned(writer: Writer, pair: Pair, choice: Choice, candidates: Sequence[Choice]) -> Choice:
    """The tuned way to compute a pair; `choice` where nothing is known."""
    best = {choice.template: choice}  # of each template the shape of tiles that is expected to be the best
    for one in sorted(candidates, key=lambda one: one.cycles):
        best.setdefault(one.template, one)
    return writer.choose(_text(writer, pair), {one.name: one for one in best.values()})


def _text(writer: Writer, pair: Pair) -> str:
    """The pair as `Writer.choose` takes it."""
    window, (first, second), problem = pair.window, pair.nodes, pair.problem
    data, taps, output = map(writer.element, (first.inputs[0], first.inputs[1], problem.output))
    return choices.problem(
        f"separable {writer.precision}",
        (data, problem.weights, taps, output),
        N=pair.images,
        H=pair.output[0],
        W=pair.output[1],
        C=pair.channels,
        O=problem.outputs,
        K="{}x{}".format(*window.kernel),
        S="{}x{}".format(*window.stride),
        D="{}x{}".format(*window.dilation),
        E=len(first.inputs) + len(second.inputs),
    )


def _templates(writer: Writer, pair: Pair) -> Iterator[SeparableMma | SeparableFfma]:
    """Templates with each tile that suits the pair and fits the GPU."""
    problem, gpu = pair.problem, writer.gpu
    own: Any
    tiles: Iterable[Any]
    if ffma.fits(writer, problem):
        own, tiles = ffma.template_of(writer, problem), ffma_tile.TILES
    else:
        own = mma.template_of(writer, problem)
        if not has_operand(gpu, own.operand):
            return
        k_bytes = pair.channels * own.stored.nbytes
        short = dict.fromkeys(tile.shortened(k_bytes) for tile in MMA_TILES)
        tiles = [tile for tile in short if _with_slots(tile, k_bytes).shared_bytes <= gpu.shared_bytes]
    kind = SeparableFfma if isinstance(own, Ffma) else SeparableMma
    run = common_width((problem.outputs,), min(own.output.widest, QUAD if isinstance(own, Ffma) else mma.RUN))
    for tile in tiles:
        one = replace(own, tile=tile)
        window = _window(writer, pair, one.stored, tile.rows * one.steps, tile.threads)
        if window is not None:
            same: dict[str, Any] = {field.name: getattr(own, field.name) for field in fields(own)}
            changes = {"tile": tile, "source": window.source, "width": window.width, "run": run, "window": window}
            yield kind(**same | changes)


def _with_slots(tile: mma_tile.Tile, k_bytes: int) -> mma_tile.Tile:
    """The tile with no more slots than there are tiles of K."""
    return replace(tile, stages=min(-(-k_bytes // tile.row_bytes), tile.stages))


def _window(writer: Writer, pair: Pair, target: Element, elements: int, threads: int) -> DepthwiseTile | None:
    """How threads compute a tile of so many depthwise results together, each of them once; None if they cannot."""
    node, form = pair.nodes[0], pair.window
    source, stored = writer.element(node.inputs[0]), depthwise.stored_weights(writer, node)
    width = common_width((pair.channels,), min(source.widest, target.widest, depthwise.MOST_BYTES // FLOAT))
    outputs, rest = divmod(elements, width * threads)
    if rest or outputs not in OUTPUTS or width * target.nbytes < WORD:
        return None
    rows, columns = pair.steps
    taps, is_alone = prod(form.kernel), outputs == 1
    is_unrolled = taps * outputs <= (depthwise.MOST_UNROLLED_ALONE if is_alone else depthwise.MOST_UNROLLED)
    if positions(outputs, columns, spacing(columns)) > depthwise.MOST_SEEN:
        return None
    epilogue, _ = writer.epilogue(node)
    tile = 1, outputs
    return DepthwiseTile(width, False, source, stored, target, epilogue, rows if is_unrolled else None, columns, tile)


def _cycles(gpu: Gpu, pair: Pair, template: SeparableMma | SeparableFfma, shift: int) -> float:
    """Estimated cycles of a pair's launch. A tile of K costs the most of: its bytes from the L2 cache, its products,
    and the instructions that compute depthwise results."""
    problem, window, tile = pair.problem, template.window, template.tile
    steps = template.steps
    blocks = pair.blocks(tile.rows, shift) * -(-problem.outputs // tile.columns)
    turns = -(-pair.channels // steps)
    weights = (steps if turns > 1 else pair.channels) * (
        tile.columns * window.target.nbytes + prod(pair.window.kernel) * window.weights.nbytes
    )
    data = pair.seen(tile.rows, shift) * min(steps, pair.channels) * window.source.nbytes
    issued = tile.threads / 32 * _instructions(window, pair.window) / SCHEDULERS
    if isinstance(template, SeparableMma):
        products, ends = template.tile.product_cycles, template.tile.ends
        waiting, start = mma_tile.TURN_CYCLES, mma_tile.ENDS_CYCLES
    else:
        products = max(template.tile.products / gpu.lanes, template.tile.issue_cycles, template.tile.shared_cycles)
        waiting, ends, start = ffma_tile.TURN_CYCLES, 0.0, ffma_tile.ENDS_CYCLES
        issued, products = 0.0, products + issued  # both need the same units
    turn = max((weights + data) / COPIED, products, issued)
    resident = max(REGISTERS // (REGISTERS_OF_THREAD * tile.threads), 1)
    latency = (turns - 1) * LOADING_CYCLES + start
    return cycles(gpu, blocks, resident, turns, turn, products + issued + waiting, latency, ends)


def _instructions(window: DepthwiseTile, form: Depthwise) -> int:
    """About how many instructions a thread needs for its depthwise results of a tile of K."""
    outputs, taps, width = window.tile[1], prod(form.kernel), window.width
    loads = form.kernel[0] * positions(outputs, window.columns, window.spacing)
    source, weights = (width * (element is not Element.FLOAT32) for element in (window.source, window.weights))
    rounding = 0
    if window.sums != "float32":
        source, rounding = source << window.leaves_out, ROUNDING * width
    return loads * (5 + source) + taps * (1 + weights) + outputs * (taps * width + 3 * width + rounding + 10)


def _storing(writer: Writer, template: SeparableMma | SeparableFfma, node: Node) -> SeparableMma | SeparableFfma:
    """The template as the memory of the node's result wants it: where that became a part of another tensor, elements
    may be others, and accesses narrower."""
    output, grain = writer.element(node.outputs[0]), writer.output_grain(node)
    return replace(template, output=output, run=common_width(grain, min(template.run, output.widest)))


def _write(writer: Writer, nodes: Sequence[Node], pair: Pair, choice: Choice, candidates: Sequence[Choice]) -> None:
    choice, (first, second) = _tuned(writer, pair, choice, candidates), pair.nodes
    problem = replace(pair.problem, data=first.inputs[0], out_pitch=writer.pitch(pair.problem.output))
    template = _storing(writer, choice.template, second)
    shared = template.shared_bytes
    if isinstance(template, SeparableMma):
        shared = _with_slots(template.tile, pair.channels * template.stored.nbytes).shared_bytes
    pointers, sizes = depthwise.arguments(writer, first, template.window)
    tiles = PixelTiles.of(pair.output, template.tile.rows, choice.shift, pair.apart)
    contract.write_launch(
        writer,
        problem,
        template,
        TensorPointer(problem.output),
        writer.epilogue(second)[1],
        1,
        choice.cycles,
        blocks=pair.blocks(template.tile.rows, choice.shift),
        more=(tiles, *pointers, *sizes, *problem.filter_zeros),
        shared_bytes=shared,
    )
