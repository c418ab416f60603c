"""Contract in float32 without tensor cores: the templates for a problem."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.ffma_tile import TILES
from jitdelegate.targets.cuda.multiply.quads import QUAD
from jitdelegate.targets.cuda.products import tiled
from jitdelegate.targets.cuda.products.tiled import Choice
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma

MOST_PIECES = 8
"""Most chunks per thread: their pixels' positions are kept in registers."""
COMBINE_CYCLES = 6000
"""Cost of a second launch that waits for this one."""


def choose(writer: Writer, problem: ConvProblem) -> Choice:
    """How a problem is computed on the writer's GPU."""
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
        epilogue=writer.epilogue(problem.node)[0],
    )
    templates = [replace(template, tile=tile) for tile in TILES]
    return tiled.choose(writer, problem, [one for one in templates if one.pieces <= MOST_PIECES], COMBINE_CYCLES)


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launches of a contraction."""
    tiled.write(writer, problem, choose(writer, problem))
