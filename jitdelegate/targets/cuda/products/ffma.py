"""Contract in float32 without tensor cores: chooses tiles and how many blocks split K, and writes the launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from jitdelegate.targets.cuda.code.choices import candidate
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.narrow_integers import pairs_of_int4
from jitdelegate.targets.cuda.code.template import Argument, NoPointer, TensorPointer, WeightsPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.ffma_tile import QUAD, TILES, Tile
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem
from jitdelegate.targets.cuda.sources.phases import packed, records_of
from jitdelegate.targets.cuda.walks.contract_kernel import FLOAT, ContractSizes
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma
from jitdelegate.targets.cuda.walks.split_k import combining_cycles, meeting_cycles, possible_parts, write_combine

MOST_PIECES = 8
"""Most chunks per thread: their pixels' positions are kept in registers."""
COMBINE_CYCLES = 6000
"""Cost of a second launch that waits for this one."""


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launches of a contraction: one, or two where blocks split K."""
    epilogue, extra = writer.epilogue(problem.node)
    template, parts = choose(writer, problem, epilogue)
    if parts == template.cluster:
        _launch(writer, problem, template, TensorPointer(problem.output), extra, parts)
    else:
        sums = writer.temporary(parts * prod(problem.target) * FLOAT)
        _launch(writer, problem, replace(template, epilogue=Epilogue(), is_part=True), sums, (), parts)
        write_combine(writer, problem, sums, parts)


def cycles(writer: Writer, problem: ConvProblem) -> float:
    """Estimated cycles of the launches of a problem."""
    return _best(writer, problem, writer.epilogue(problem.node)[0])[0]


def choose(writer: Writer, problem: ConvProblem, epilogue: Epilogue) -> tuple[Ffma, int]:
    """The template that suits a problem on the writer's GPU, and the number of blocks that split K."""
    return _best(writer, problem, epilogue)[1:]


def _best(writer: Writer, problem: ConvProblem, epilogue: Epilogue) -> tuple[float, Ffma, int]:
    """Estimated cycles, and what `choose` returns."""
    source = writer.element(problem.data)
    template = Ffma(
        source=source,
        output=writer.element(problem.output),
        tile=TILES[0],
        width=problem.width(QUAD),
        run=common_width((problem.outputs, *writer.output_grain(problem.node)), QUAD),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        is_asynchronous=writer.gpu.has_async_copy and source is problem.weights is Element.FLOAT32,
        is_part=False,
        weights=problem.weights,
        epilogue=epilogue,
    )
    gpu, size, results = writer.gpu, _size(problem), prod(problem.target)

    def together(one: tuple[Ffma, int]) -> float:
        tile, parts = one[0].tile, one[1]
        return tile.cycles(gpu, parts, *size) + combining_cycles(gpu, parts, results, COMBINE_CYCLES)

    candidates = {candidate(one.tile, parts): (one, parts) for one, parts in _candidates(gpu, template, size[2])}
    elements = source, template.weights, template.output
    text = problem.text(problem.phases[0], elements, template.family, template.width, epilogue)
    best = chosen, parts = writer.choose(text, candidates, together)
    return together(best), replace(chosen, cluster=parts if gpu.has_clusters else 1), parts


def _size(problem: ConvProblem) -> tuple[int, int, int, int]:
    """(pixels, outputs, steps of K, groups) of the largest phase, phases counted as groups."""
    pixels, steps = (max(map(of, problem.phases)) for of in (problem.pixels, lambda phase: phase.steps))
    return pixels, problem.outputs, steps, problem.groups * len(problem.phases)


def _candidates(gpu: Gpu, template: Ffma, steps: int) -> Iterator[tuple[Ffma, int]]:
    """Templates with each tile, and numbers of blocks that split K."""
    for tile in TILES:
        one, tiles = replace(template, tile=tile), -(-steps // tile.steps)
        if one.pieces > MOST_PIECES:
            continue
        yield from ((one, parts) for parts in ([1] if template.is_scattered else possible_parts(gpu, tiles)))


def _launch(
    writer: Writer, problem: ConvProblem, template: Ffma, output: TensorPointer, extra: Sequence[Argument], parts: int
) -> None:
    tile, phases = template.tile, problem.phases
    sizes = (problem.groups, tile.steps, tile.columns)
    shapes = [phase.matrices_shape(*sizes) for phase in phases]
    tables = [problem.table(phase, template.width, tile.steps) for phase in phases]
    records = records_of(problem, shapes, (tile.steps, tile.columns), parts)
    blocks = max(parts, len(phases))
    writer.launch(
        template,
        (
            -(-max(map(problem.pixels, phases)) // tile.rows),
            shapes[0][2] // tile.columns,
            problem.groups * blocks,
        ),
        (
            output,
            writer.pointer(problem.data),
            packed_weights(writer, problem, sizes, tile),
            writer.constant(problem.biases(phases[0], tile.columns)),
            NoPointer() if template.is_direct else writer.constant(np.concatenate(tables)),
            writer.constant(packed(records)) if template.is_scattered else NoPointer(),
            extra,
            ContractSizes(
                blocks,
                problem.depth,
                problem.outputs,
                problem.target[3] if template.is_part else problem.out_pitch,
            ),
            () if template.is_scattered else records[0][0],
        ),
        template.shared_bytes,
        cycles=tile.cycles(writer.gpu, parts, *_size(problem)) + meeting_cycles(template.cluster),
    )


def packed_weights(writer: Writer, problem: ConvProblem, sizes: tuple[int, int, int], tile: Tile) -> WeightsPointer:
    """The weights of a problem as the kernel copies them; `sizes` as for `Phase.matrices`."""
    parts = (part for phase in problem.phases for part in tiled(phase.matrices(*sizes), tile))
    return writer.packed(
        ("tiles of steps", *sizes, problem.weights),
        [phase.weights for phase in problem.phases],
        lambda: (pairs_of_int4(part, QUAD) if problem.are_packed else part for part in parts),
    )


def tiled(matrices: np.ndarray, tile: Tile) -> Iterator[np.ndarray]:
    """[groups, K, N] as [K, columns of a tile] for each group and tile of columns."""
    for matrix in matrices:
        for first in range(0, matrix.shape[1], tile.columns):
            yield matrix[:, first : first + tile.columns]
