"""Contract on tensor cores: chooses tiles and how many blocks split K, and writes the launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.targets.cuda.code.choices import candidate
from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.narrow_integers import pairs_of_int4
from jitdelegate.targets.cuda.code.template import Argument, NoPointer, TensorPointer, WeightsPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.mma_tile import MOST_PADDED, SHORTEST_ROW, SLIM_TILES, TILES, WIDE_TILES, Tile
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand, Swizzle
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem
from jitdelegate.targets.cuda.sources.phases import packed, records_of
from jitdelegate.targets.cuda.walks.contract_kernel import FLOAT, ContractSizes
from jitdelegate.targets.cuda.walks.mma_kernel import WORD, Mma
from jitdelegate.targets.cuda.walks.split_k import combining_cycles, meeting_cycles, possible_parts, write_combine

COMBINE_CYCLES = 3500
"""Cost of a second launch."""
RUN = 8
"""Most neighbouring channels that a thread finishes together."""
MOST_ROWS = 64
"""Most rows and columns of a tile whose threads copy less than 16 bytes at a time; with more, they lack registers."""


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launches of a contraction on tensor cores: one, or two where blocks split K.

    Raises:
        CompileError: the GPU does not support the precision.
    """
    operand = operand_of(writer, problem)
    if operand in (Operand.BFLOAT16, Operand.TF32) and not writer.gpu.has_async_copy:
        raise CompileError(f"{writer.gpu.architecture} has no {operand.value} tensor cores, expected sm_80 or later")
    epilogue, extra = writer.epilogue(problem.node)
    template, parts = choose(writer, problem, epilogue)
    if parts == template.cluster:
        _launch(writer, problem, template, TensorPointer(problem.output), extra, parts)
    else:
        sums = writer.temporary(parts * prod(problem.target) * FLOAT)
        _launch(writer, problem, _of_part(template), sums, (), parts)
        write_combine(writer, problem, sums, parts)


def _of_part(template: Mma) -> Mma:
    """The same template, but without epilogue: it stores sums of a part of K."""
    output, run = template.sums, min(template.run, template.sums.widest)
    return replace(template, output=output, run=run, epilogue=Epilogue(), is_part=True)


def operand_of(writer: Writer, problem: ConvProblem) -> Operand:
    """The type in which a problem's data and weights are multiplied."""
    if problem.sums is Element.FLOAT32:
        return Operand(writer.precision)
    return Operand(writer.element(problem.data).dtype)


def cycles(writer: Writer, problem: ConvProblem) -> float:
    """Estimated cycles of the launches of a problem."""
    return _best(writer, problem, writer.epilogue(problem.node)[0])[0]


def choose(writer: Writer, problem: ConvProblem, epilogue: Epilogue) -> tuple[Mma, int]:
    """The template that suits a problem on the writer's GPU, and the number of blocks that split K."""
    return _best(writer, problem, epilogue)[1:]


def _best(writer: Writer, problem: ConvProblem, epilogue: Epilogue) -> tuple[float, Mma, int]:
    """Estimated cycles, and what `choose` returns."""
    operand = operand_of(writer, problem)
    output = writer.element(problem.output)
    template = Mma(
        operand=operand,
        source=writer.element(problem.data),
        output=output,
        tile=TILES[0],
        width=problem.width(CHUNK // operand.element.nbytes),
        run=common_width((problem.outputs, *writer.output_grain(problem.node)), min(output.widest, RUN)),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        is_part=False,
        has_async_copy=writer.gpu.has_async_copy,
        has_halo=problem.halo != 0 and not problem.is_direct,
        weights=problem.weights,
        epilogue=epilogue,
    )
    gpu, size = writer.gpu, _size(problem, template)
    tiles = [tile.shortened(size[2]) for tile in _fitting(template, gpu)]
    if operand.is_integer:
        tiles = _compact([tile.trimmed(size[2]) for tile in tiles], problem.outputs, size[2])
    candidates = {
        candidate(tile, parts): (tile, parts) for tile in tiles for parts in _parts(gpu, tile, size[2], problem)
    }
    results = size[0] * problem.outputs * problem.groups

    def together(one: tuple[Tile, int]) -> float:
        tile, parts = one
        return tile.cycles(gpu, parts, *size) + combining_cycles(gpu, parts, results, COMBINE_CYCLES)

    elements = template.source, template.weights, output
    text = problem.text(problem.phases[0], elements, template.family, template.width, epilogue, operand.value)
    tile, parts = best = writer.choose(text, candidates, together)
    return together(best), replace(template, tile=tile, cluster=parts if gpu.has_clusters else 1), parts


def _compact(tiles: Sequence[Tile], outputs: int, k_bytes: int) -> list[Tile]:
    """The tiles that pad weights by little, or by the least."""
    padded = [tile.padded(outputs, k_bytes) for tile in tiles]
    most = max(MOST_PADDED, min(padded))
    return [tile for tile, times in zip(tiles, padded, strict=True) if times <= most]


def _size(problem: ConvProblem, template: Mma) -> tuple[int, int, int, int, int]:
    """(pixels, outputs, bytes of K, groups, bytes of a unit of data) of the largest phase, phases counted as groups."""
    pixels, steps = (max(map(of, problem.phases)) for of in (problem.pixels, lambda phase: phase.steps))
    k_bytes = steps * template.operand.element.nbytes
    return pixels, problem.outputs, k_bytes, problem.groups * len(problem.phases), template.unit_bytes


def _parts(gpu: Gpu, tile: Tile, k_bytes: int, problem: ConvProblem) -> list[int]:
    """Possible numbers of blocks that split K."""
    if problem.is_scattered:
        return [1]
    return possible_parts(gpu, -(-k_bytes // tile.row_bytes))


def _fitting(template: Mma, gpu: Gpu) -> list[Tile]:
    """The tiles that fit in the GPU's shared memory and in a thread's registers."""
    tiles: Sequence[Tile] = (*TILES, *SLIM_TILES)
    if template.is_asynchronous:
        tiles = (*WIDE_TILES, *tiles)
    else:
        tiles = [replace(tile, stages=2) for tile in tiles]
    if template.operand.is_integer and template.unit_bytes < WORD:  # a thread keeps the places of all its chunks
        tiles = [replace(tile, row_bytes=max(SHORTEST_ROW, tile.warps[2] * STEP)) for tile in tiles]
    if template.unit_bytes < CHUNK or template.converts:
        tiles = [tile for tile in tiles if tile.rows <= MOST_ROWS and tile.columns <= MOST_ROWS]
    return [tile for tile in tiles if tile.shared_bytes <= gpu.shared_bytes]


def _launch(
    writer: Writer, problem: ConvProblem, template: Mma, output: TensorPointer, extra: Sequence[Argument], parts: int
) -> None:
    tile, phases, tile_k = template.tile, problem.phases, template.tile.row_bytes // template.operand.element.nbytes
    sizes = (problem.groups, tile_k, tile.columns)
    shapes = [phase.matrices_shape(*sizes) for phase in phases]
    tables = [problem.table(phase, template.width, tile_k) for phase in phases]
    records = records_of(problem, shapes, sizes[1:], parts)
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
            packed_weights(writer, problem, sizes, tile, template.operand),
            writer.constant(np.concatenate([problem.biases(phase, tile.columns) for phase in phases])),
            NoPointer() if template.is_direct else writer.constant(np.concatenate(tables)),
            (writer.constant(np.full(CHUNK, problem.halo, template.source.dtype)),) if template.has_halo else (),
            (writer.constant(packed(records)),) if template.is_scattered else (),
            extra,
            ContractSizes(
                blocks,
                problem.depth,
                problem.outputs,
                problem.target[3] if template.is_part else problem.out_pitch,
            ),
            () if template.is_scattered else (records[0][0],),
        ),
        tile.shared_bytes,
        cycles=tile.cycles(writer.gpu, parts, *_size(problem, template)) + meeting_cycles(template.cluster),
    )


def packed_weights(
    writer: Writer, problem: ConvProblem, sizes: tuple[int, int, int], tile: Tile, operand: Operand
) -> WeightsPointer:
    """The weights of a problem as the kernel copies them; `sizes` as for `Phase.matrices`."""
    parts = (tiled(phase.matrices(*sizes), tile, operand) for phase in problem.phases)
    return writer.packed(
        ("tiles in shared memory", sizes, tile, operand, problem.weights),
        [phase.weights for phase in problem.phases],
        lambda: (pairs_of_int4(part, part.shape[-1]) if problem.are_packed else part for part in parts),
    )


def tiled(matrices: np.ndarray, tile: Tile, operand: Operand) -> np.ndarray:
    """[groups, K, N] in the order in which the kernel copies it: each tile as it lies in shared memory.

    Returns: [groups, tiles of N, tiles of K, rows of a tile, chunks of a row, elements of a chunk].
    """
    turned = matrices.transpose(0, 2, 1)
    stored = operand.rounded(turned) if turned.dtype == np.float32 else turned
    groups, columns, steps = stored.shape
    each = CHUNK // operand.element.nbytes
    chunks = tile.row_bytes // CHUNK
    parts = stored.reshape(groups, columns // tile.columns, tile.columns, steps // (chunks * each), chunks, each)
    rows = np.arange(tile.columns)[:, None]
    return parts.transpose(0, 1, 3, 2, 4, 5)[:, :, :, rows, np.arange(chunks) ^ Swizzle(tile.row_bytes).key(rows)]
