"""Contract in float32 without tensor cores: the templates for a problem."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.targets.cuda.code.element import Element, common_width
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.ffma_tile import TILES
from jitdelegate.targets.cuda.multiply.quads import QUAD
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma

MOST_PIECES = 8
"""Most chunks per thread: their pixels' positions are kept in registers."""


def fits(writer: Writer, problem: ConvProblem) -> bool:
    """Whether a problem's products are those of float32."""
    return problem.sums is Element.FLOAT32 and writer.precision == "float32"


def template_of(writer: Writer, problem: ConvProblem) -> Ffma:
    """The template for a problem, with some tile."""
    source = writer.element(problem.data)
    return Ffma(
        source=source,
        output=writer.element(problem.output),
        tile=TILES[0],
        width=problem.width(QUAD),
        run=common_width((problem.outputs, *writer.output_grain(problem.node)), QUAD),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        is_asynchronous=writer.gpu.has_async_copy and source is problem.weights is Element.FLOAT32,
        weights=problem.weights,
        epilogue=writer.epilogue(problem.node)[0],
    )


def templates(writer: Writer, problem: ConvProblem) -> list[Ffma]:
    """The template with each tile that suits a problem."""
    own = template_of(writer, problem)
    return [one for one in (replace(own, tile=tile) for tile in TILES) if one.pieces <= MOST_PIECES]
