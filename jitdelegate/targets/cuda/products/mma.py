"""Contract on tensor cores: the templates for a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jitdelegate.targets.cuda.code.element import WORD, Element, common_width
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.mma_tile import MOST_PADDED, SHORTEST_ROW, SLIM_TILES, TILES, WIDE_TILES, Tile
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem
from jitdelegate.targets.cuda.walks.mma_kernel import Mma

RUN = 8
"""Most neighbouring channels that a thread finishes together."""
MOST_ROWS = 64
"""Most rows and columns of a tile whose threads copy less than 16 bytes at a time; with more, they lack registers."""


def template_of(writer: Writer, problem: ConvProblem) -> Mma:
    """The template for a problem, with some tile."""
    operand, output = operand_of(writer, problem), writer.element(problem.output)
    return Mma(
        operand=operand,
        source=writer.element(problem.data),
        output=output,
        tile=TILES[0],
        width=problem.width(CHUNK // operand.element.nbytes),
        run=common_width((problem.outputs, *writer.output_grain(problem.node)), min(output.widest, RUN)),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        has_async_copy=writer.gpu.has_async_copy,
        has_halo=problem.halo != 0 and not problem.is_direct,
        has_filter_zero=problem.filter_zero != 0,
        weights=problem.weights,
        epilogue=writer.epilogue(problem.node)[0],
    )


def templates(writer: Writer, problem: ConvProblem) -> list[Mma]:
    """The template with each tile that suits a problem and the GPU."""
    own = template_of(writer, problem)
    k_bytes = problem.size[2] * own.stored.nbytes
    tiles = [tile.shortened(k_bytes) for tile in _fitting(own, writer.gpu)]
    if own.operand.is_integer:
        tiles = _compact([tile.trimmed(k_bytes) for tile in tiles], problem.outputs, k_bytes)
    return [replace(own, tile=tile) for tile in tiles]


def operand_of(writer: Writer, problem: ConvProblem) -> Operand:
    """The type in which a problem's data and weights are multiplied."""
    if problem.sums is Element.FLOAT32:
        return Operand(writer.precision)
    return Operand(writer.element(problem.data).dtype)


def _compact(tiles: Sequence[Tile], outputs: int, k_bytes: int) -> list[Tile]:
    """The tiles that pad weights by little, or by the least."""
    padded = [tile.padded(outputs, k_bytes) for tile in tiles]
    most = max(MOST_PADDED, min(padded))
    return [tile for tile, times in zip(tiles, padded, strict=True) if times <= most]


def _fitting(template: Mma, gpu: Gpu) -> list[Tile]:
    """The tiles that fit in the GPU's shared memory and in a thread's registers."""
    tiles: Sequence[Tile] = (*TILES, *SLIM_TILES)
    if template.is_asynchronous:
        tiles = (*WIDE_TILES, *tiles)
    else:
        tiles = [replace(tile, stages=2) for tile in tiles]
    if template.operand.is_integer and template.unit_bytes < WORD:  # a thread keeps the offsets of all its chunks
        tiles = [replace(tile, row_bytes=max(SHORTEST_ROW, tile.warps[2] * STEP)) for tile in tiles]
    if template.unit_bytes < CHUNK or template.converts:
        tiles = [tile for tile in tiles if tile.rows <= MOST_ROWS and tile.columns <= MOST_ROWS]
    return [tile for tile in tiles if tile.shared_bytes <= gpu.shared_bytes]
