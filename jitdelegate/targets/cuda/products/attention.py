"""Attention: fuses it where that pays, chooses a tile and writes its launches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import e, log2

from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.choices import Choice, candidate
from jitdelegate.targets.cuda.code.choices import problem as line
from jitdelegate.targets.cuda.code.cost import COPIED, LATENCY_CYCLES, cycles
from jitdelegate.targets.cuda.code.division import divisors
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import REGISTERS, Gpu
from jitdelegate.targets.cuda.code.operand import Neighbours
from jitdelegate.targets.cuda.code.writer import STORED, Writer
from jitdelegate.targets.cuda.multiply.quads import QUAD
from jitdelegate.targets.cuda.multiply.tensor_core import Operand, has_operand
from jitdelegate.targets.cuda.sources.attention_problem import Matrices, Problem, problem_of
from jitdelegate.targets.cuda.walks.attention_combine import AttentionCombine
from jitdelegate.targets.cuda.walks.attention_ffma import ACROSS, STEP, FfmaAttention
from jitdelegate.targets.cuda.walks.attention_mma import MmaAttention
from jitdelegate.targets.cuda.walks.attention_template import (
    AttentionSizes,
    AttentionTemplate,
    AttentionTile,
    ScoreOperand,
    Side,
)
from jitdelegate.targets.planning.fusions import Attention, Fusion

MOST_NUMBERS = 256
"""Most numbers of a query or a value: a thread has registers for the sums of so many columns."""
WARPS = ((8, 1), (4, 1), (2, 1), (1, 1), (4, 2), (2, 2), (1, 2), (2, 4), (1, 4), (1, 8))
"""Warps along rows, and slices."""
KEYS = (64, 32, 16)
"""Keys of a tile."""
MOST_REGISTERS = 240
"""Most registers of a thread by the template's estimate; GPUs have 255."""
PARTS = (1, 2, 4, 8, 16, 32, 64)
MOST_WAVES = 4
"""Most blocks on a multiprocessor, where several of them share out keys."""
LARGEST_SUMS = 1 << 28
"""Most bytes of the sums of all parts."""
RUN = 4
FLOAT = 4
AttentionChoice = Choice[AttentionTemplate]


def fuse_attentions(writer: Writer, attentions: Iterable[Attention]) -> Iterator[Fusion]:
    """The attentions that a kernel can compute as a whole, where launches for each node are not faster."""
    for attention in attentions:
        problem = problem_of(writer.graph, attention)
        if problem is None or not _is_taken(writer, problem):
            continue
        candidates = choices(writer, problem, writer.graph.nodes[attention.product])
        if candidates and min(one.cycles for one in candidates.values()) <= _cycles_apart(writer, problem):
            product = problem.positions.index(attention.product)
            yield Fusion(problem.positions, partial(_write, problem=problem, product=product))


def _is_taken(writer: Writer, problem: Problem) -> bool:
    """Whether there are kernels for the sizes and types of a problem."""
    elements = (writer.element(one.index) for one in (problem.query, problem.key, problem.value))
    sizes = problem.depth, problem.columns
    return max(sizes) <= MOST_NUMBERS and all(element.dtype == "float32" for element in elements)


def choices(writer: Writer, problem: Problem, product: Node) -> dict[str, AttentionChoice]:
    """The candidates for a problem, by name."""
    epilogue, _ = writer.epilogue(product)
    return {
        candidate(choice.template.tile, choice.parts): choice
        for keys in KEYS
        for down, slices in WARPS
        for choice in _choices(writer, problem, AttentionTile(down, slices, keys), epilogue)
    }


def _problem_text(writer: Writer, problem: Problem, template: AttentionTemplate) -> str:
    return line(
        f"{template.family} {writer.precision}",
        (template.query, template.key.element, template.value.element, template.output),
        M=problem.height,
        N=problem.keys,
        K=problem.depth,
        C=problem.columns,
        B=problem.count,
        A=template.key.by_key + 2 * template.value.by_key,
        W=template.key.width,
        V=template.value.width,
        E=len(template.operands),
    )


def _choices(writer: Writer, problem: Problem, tile: AttentionTile, epilogue: Epilogue) -> Iterator[AttentionChoice]:
    template, most = _template(writer, problem, tile, epilogue), writer.gpu.shared_bytes
    if template is None or template.shared_bytes > most or template.registers > MOST_REGISTERS:
        return
    tiles = -(-problem.keys // tile.keys)
    for parts in PARTS:
        sums = parts * problem.count * problem.height * (problem.columns + 2) * FLOAT
        blocks = problem.count * -(-problem.height // tile.rows) * parts
        is_filled = blocks > MOST_WAVES * writer.gpu.multiprocessors
        if parts > 1 and (is_filled or parts * tile.slices * 2 > tiles or sums > LARGEST_SUMS):
            return
        turns = _turns(problem, tile, parts)
        has_rest = parts * turns * tile.slices * tile.keys != problem.keys
        own = replace(template, has_rest=has_rest, is_part=parts > 1)
        if parts > 1:
            own = replace(own, output=Element.FLOAT32, epilogue=Epilogue(), run=common_width([problem.columns], RUN))
        yield Choice(own, parts, _cycles(writer.gpu, problem, own, parts) + _combining(writer.gpu, problem, parts))


def _turns(problem: Problem, tile: AttentionTile, parts: int) -> int:
    return -(-problem.keys // (tile.keys * tile.slices * parts))


def _template(writer: Writer, problem: Problem, tile: AttentionTile, epilogue: Epilogue) -> AttentionTemplate | None:
    """The template with a tile, for one part; None if it does not exist."""
    key, value = (
        _side(writer, problem.key, problem.keys, problem.depth),
        _side(writer, problem.value, problem.keys, problem.columns),
    )
    is_float = writer.precision == "float32"
    if is_float:
        neighbours = 1 if key.by_key else QUAD
        if not key.by_key and tile.keys % (ACROSS * QUAD):
            return None
        depth = -(-problem.depth // STEP) * STEP
        across = ACROSS * QUAD if value.by_key else ACROSS
    else:
        neighbours, across = 2, 16
        step = 8 if writer.precision == "tf32" else 16
        depth = -(-problem.depth // step) * step
    columns = -(-problem.columns // across) * across
    query, output = writer.element(problem.query.index), writer.element(problem.output.index)
    is_along = problem.query.across == 1
    query_width = common_width([problem.depth, *problem.query.distances], query.widest) if is_along else 1
    arguments = (
        tile,
        depth,
        columns,
        query,
        query_width,
        key,
        value,
        len(problem.numbers),
        len(problem.rows),
        tuple(_operand(writer, problem, one, neighbours) for one in problem.operands),
        problem.expr,
        output,
        common_width([problem.columns, *problem.output.distances], RUN),
        epilogue,
        True,
        False,
        writer.gpu.has_async_copy,
    )
    if is_float:
        return FfmaAttention(*arguments)
    operand = Operand(writer.precision)
    return MmaAttention(*arguments, operand) if has_operand(writer.gpu, operand) else None


def _side(writer: Writer, matrices: Matrices, keys: int, numbers: int) -> Side:
    element, by_key = writer.element(matrices.index), matrices.across == 1
    length, pitch = (numbers, matrices.down) if by_key else (keys, matrices.across)
    return Side(element, by_key, common_width([length, pitch, *matrices.distances], element.widest))


def _operand(writer: Writer, problem: Problem, matrices: Matrices, neighbours: int) -> ScoreOperand:
    element, step = writer.element(matrices.index), matrices.across
    numbers = (problem.keys, *matrices.distances)
    is_aligned = not any(number % min(neighbours, element.widest) for number in numbers)
    if step == 0:
        kind = Neighbours.SAME
    else:
        kind = Neighbours.VECTOR if step == 1 and is_aligned else Neighbours.APART
    return ScoreOperand(element, kind, any(matrices.rows))


def _write(writer: Writer, nodes: Sequence[Node], problem: Problem, product: int) -> None:
    """Writes the launches of an attention; `product` is the number of the last product among its nodes."""
    candidates = choices(writer, problem, nodes[product])
    text = _problem_text(writer, problem, next(iter(candidates.values())).template)
    choice = writer.choose(text, candidates, lambda one: one.cycles)
    template, parts = choice.template, choice.parts
    tile, total = template.tile, problem.count * problem.height
    epilogue, extra = writer.epilogue(nodes[product])
    factor = problem.beta * log2(e)
    output = writer.pointer(problem.output.index)
    target = writer.temporary(parts * total * (problem.columns + 2) * FLOAT) if parts > 1 else output
    pitches = (
        (one.down if side.by_key else one.across)
        for one, side in ((problem.key, template.key), (problem.value, template.value))
    )
    down = -(-problem.height // tile.rows)
    sizes = AttentionSizes(
        down,
        problem.height,
        problem.keys,
        problem.depth,
        problem.columns,
        _turns(problem, tile, parts),
        total,
        problem.query.across,
        *pitches,
    )
    matrices = (problem.query, problem.key, problem.value, problem.output, *problem.operands)
    writer.launch(
        template,
        (problem.count * down, parts, 1),
        (
            target,
            [writer.pointer(one.index) for one in matrices[:3]],
            [writer.pointer(one.index) for one in problem.operands],
            extra if parts == 1 else (),
            factor,
            sizes,
            (divisors(problem.numbers), divisors(problem.rows)),
            [(one.offset, one.numbers, one.rows) for one in matrices],
            [one.across for one in problem.operands],
        ),
        template.shared_bytes,
        cycles=choice.cycles - _combining(writer.gpu, problem, parts),
    )
    if parts == 1:
        return
    axes = (*problem.numbers, *problem.rows)
    run = common_width([problem.columns, *problem.output.distances], RUN)
    combine = AttentionCombine(writer.element(problem.output.index), run, len(axes), epilogue)
    writer.launch(
        combine,
        combine.grid(total * problem.columns // run),
        (
            output,
            target,
            extra,
            factor,
            (parts, total, problem.columns, problem.output.offset),
            divisors(axes),
            (*problem.output.numbers, *problem.output.rows),
        ),
        cycles=_combining(writer.gpu, problem, parts) - writer.gpu.costs.full_edge_cycles,
    )


TURN_CYCLES = 900
"""Cycles per tile of keys if no resource is the bottleneck: two reads of memory begun a product before they are needed,
two barriers, chains of products and shuffles. Estimated from instruction latencies, like the next one."""
ENDS_CYCLES = 2500
"""Cycles before the first and after the last tile of a block."""
SCORE_INSTRUCTIONS = 12
"""Instructions for a score: its operands, the maximum, the exponential, the sum."""
MMA_PRODUCTS = 600
"""Multiplications of 16-bit numbers that a multiprocessor begins per cycle; loads of matrices for 16 rows limit it."""
FASTEST_PRODUCTS = 1024
"""The same without this limit."""
FFMA_SHARE = 0.75
"""Share of float32 multiply-adds among the instructions of the products."""
RESIDENT_THREADS = 1536
MERGED = 16
"""Sums per cycle that a multiprocessor adds to those of another slice, or stores."""


def _cycles(gpu: Gpu, problem: Problem, template: AttentionTemplate, parts: int) -> float:
    """Estimated cycles of all blocks of a problem."""
    tile, item = template.tile, template.stored.nbytes
    blocks = problem.count * -(-problem.height // tile.rows) * parts
    turns = _turns(problem, tile, parts)
    products = tile.rows * tile.keys * (template.depth + template.columns)
    rate = gpu.lanes * FFMA_SHARE if isinstance(template, FfmaAttention) else MMA_PRODUCTS * 2 / item
    scores = tile.rows * tile.keys * (SCORE_INSTRUCTIONS + len(template.operands) * 4) / gpu.lanes
    key, value = template.key.element.nbytes * problem.depth, template.value.element.nbytes * problem.columns
    copied = tile.keys * (key + value) / COPIED
    turn = tile.slices * max(products / rate + scores, copied)
    end = tile.slices * tile.rows * template.columns / MERGED
    resident = min(
        REGISTERS // (template.threads * template.registers),
        gpu.shared_bytes // template.shared_bytes,
        RESIDENT_THREADS // template.threads,
    )
    return cycles(gpu, blocks, max(resident, 1), turns, turn, TURN_CYCLES + turn, ENDS_CYCLES, end)


def _cycles_apart(writer: Writer, problem: Problem) -> float:
    """Estimated cycles of a launch for each product and for the Softmax, if products go as fast as they can: scores are
    written twice and read twice."""
    gpu, item = writer.gpu, STORED[writer.precision].nbytes
    scores = problem.count * problem.height * problem.keys
    rate = gpu.lanes if writer.precision == "float32" else FASTEST_PRODUCTS * 2 / item
    products = scores * (problem.depth + problem.columns) / rate
    work = (products + 4 * scores * item / COPIED) / gpu.multiprocessors
    return 3 * (gpu.costs.full_edge_cycles + LATENCY_CYCLES) + work


def _combining(gpu: Gpu, problem: Problem, parts: int) -> float:
    """Estimated cycles of the launch that combines parts, with what lies between two launches; 0 for one part."""
    if parts == 1:
        return 0.0
    sums = (parts + 1) * problem.count * problem.height * problem.columns * FLOAT
    return gpu.costs.full_edge_cycles + LATENCY_CYCLES + sums / (COPIED * gpu.multiprocessors)
