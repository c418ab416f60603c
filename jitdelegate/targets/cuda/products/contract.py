"""Contract: convolutions, transposed convolutions and fully connected layers.

Few pixels, sums of 64 bits, and integers on a GPU without tensor cores have kernels of their own; for all others, this
chooses a template and how many blocks split K, and writes the launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.choices import Choice, candidate
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.narrow_integers import pairs_of_int4
from jitdelegate.targets.cuda.code.template import Argument, NoPointer, TensorPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK
from jitdelegate.targets.cuda.products import ffma, mma
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem, problem_of
from jitdelegate.targets.cuda.sources.phases import packed, records_of
from jitdelegate.targets.cuda.sources.stored_weights import with_stored_weights
from jitdelegate.targets.cuda.walks import contract_wide, gemv
from jitdelegate.targets.cuda.walks.contract_kernel import FLOAT, ContractSizes, ContractTemplate
from jitdelegate.targets.cuda.walks.split_k import combining_cycles, meeting_cycles, possible_parts, write_combine


def write_contract(writer: Writer, node: Node, form: Contract) -> None:
    """Writes the launches of a Contract node.

    Raises:
        CompileError: the weights or the bias are not constant, those of integers are no int8, a filter spans more than
            32767 rows or columns, or the GPU does not support the precision.
    """
    problem = problem_of(writer, node)
    is_float = problem.sums is Element.FLOAT32
    if problem.sums is not Element.INT64 and gemv.fits(problem):
        gemv.write(writer, problem)
    elif problem.sums is Element.INT64 or not (is_float or writer.gpu.has_mma):
        contract_wide.write(writer, problem)
    else:
        write(writer, with_stored_weights(writer, problem))


def templates_of(writer: Writer, problem: ConvProblem) -> Sequence[ContractTemplate]:
    """The templates for a problem, one of each tile."""
    return ffma.templates(writer, problem) if ffma.fits(writer, problem) else mma.templates(writer, problem)


def choose(writer: Writer, problem: ConvProblem) -> Choice[ContractTemplate]:
    """What suits a problem on the writer's GPU."""
    templates = templates_of(writer, problem)
    gpu, size, results, first = writer.gpu, problem.size, prod(problem.target), templates[0]

    def together(one: tuple[ContractTemplate, int]) -> float:
        template, parts = one
        return template.cycles(gpu, parts, *size) + combining_cycles(gpu, parts, results, template.combine_cycles)

    candidates = {
        candidate(one.tile, parts): (one, parts)
        for one in templates
        for parts in ([1] if one.is_scattered else possible_parts(gpu, -(-size[2] // one.steps)))
    }
    elements = first.source, first.weights, first.output
    text = problem.text(problem.phases[0], elements, first.family, first.width, first.epilogue, first.way)
    template, parts = best = writer.choose(text, candidates, together)
    return Choice(replace(template, cluster=parts if gpu.has_clusters else 1), parts, together(best))


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launches of a contraction: one, or two where blocks split K without a cluster.

    Raises:
        CompileError: the GPU does not support the precision.
    """
    choice = choose(writer, problem)
    template, parts = choice.template, choice.parts
    template.check(writer.gpu)
    problem = problem.counting(template.steps) if template.halos else problem
    cycles = template.cycles(writer.gpu, parts, *problem.size) + meeting_cycles(writer.gpu, template.cluster)
    if parts == template.cluster:
        output, extra = TensorPointer(problem.output), writer.epilogue(problem.node)[1]
        write_launch(writer, problem, template, output, extra, parts, cycles, more=problem.filter_zeros)
    else:
        sums = writer.temporary(parts * prod(problem.target) * FLOAT)
        write_launch(writer, problem, template.of_part, sums, (), parts, cycles, more=problem.filter_zeros)
        write_combine(writer, problem, sums, parts)


def write_launch(
    writer: Writer,
    problem: ConvProblem,
    template: ContractTemplate,
    output: TensorPointer,
    extra: Sequence[Argument],
    parts: int,
    cycles: float,
    *,
    blocks: int | None = None,
    more: Sequence[Any] = (),
    shared_bytes: int | None = None,
) -> None:
    """Writes the launch of a template.

    Args:
        blocks: tiles of pixels, where these are not as many as the pixels need.
        more: what the template takes besides.
        shared_bytes: those of the template, unless fewer are needed.
    """
    tile, phases = template.tile, problem.phases
    sizes = (problem.groups, template.steps, tile.columns)
    shapes = [phase.matrices_shape(*sizes) for phase in phases]
    tables = [problem.table(phase, template.width, template.steps) for phase in phases]
    records = records_of(problem, shapes, sizes[1:], parts)
    along = max(parts, len(phases))
    count = CHUNK // template.stored.nbytes
    weights = (part for phase in phases for part in template.packed(phase.matrices(*sizes)))
    writer.launch(
        template,
        (
            blocks or -(-max(map(problem.pixels, phases)) // tile.rows),
            shapes[0][2] // tile.columns,
            problem.groups * along,
        ),
        (
            output,
            writer.pointer(problem.data),
            writer.packed(
                ("tiles", template.layout, template.way, sizes, problem.weights),
                [phase.weights for phase in phases],
                lambda: (pairs_of_int4(part, count) if problem.are_packed else part for part in weights),
            ),
            writer.constant(np.concatenate([problem.biases(phase, tile.columns) for phase in phases])),
            NoPointer() if template.is_direct else writer.constant(np.concatenate(tables)),
            (writer.constant(np.full(CHUNK, problem.halo, template.source.dtype)),) if template.halos else (),
            (writer.constant(packed(records)),) if template.is_scattered else (),
            extra,
            ContractSizes(
                along,
                problem.depth,
                problem.outputs,
                problem.target[3] if template.is_part else problem.out_pitch,
            ),
            () if template.is_scattered else (records[0][0],),
            *more,
        ),
        template.shared_bytes if shared_bytes is None else shared_bytes,
        cycles=cycles,
    )
