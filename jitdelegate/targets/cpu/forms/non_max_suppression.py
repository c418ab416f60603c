"""Suppress: non-maximum suppression per class; compares whole vectors of boxes with the box that was kept last."""

from __future__ import annotations

from collections.abc import Callable

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Suppress
from jitdelegate.targets.cpu.code.kernel import Job, Kernel
from jitdelegate.targets.cpu.code.rows import Placed, along_row, job_of_rows, placed
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.arg_reduce import Best, best_lane, indices_from, kept
from jitdelegate.targets.maths.selection import Box, has_area, overlap_exceeds

GONE = float("-inf")
"""The score of a box that is already kept or suppressed."""
SIDES = 4
Scored = Callable[[Value, Value | None], Value]
"""(first box, mask) -> the scores of a vector of boxes; GONE outside the mask."""


def write_suppress(writer: Writer, node: Node, form: Suppress) -> list[Job]:
    """The jobs of a Suppress node: one row per class. Scratch memory holds the scores of the boxes that remain."""
    generator, (boxes, scores, out) = writer.generator, placed(writer, node)
    count, size = out.shape[-1], boxes.shape[-1]
    generator.reserve_scratch((size + generator.lanes) * scores.nbytes)

    def row(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        source = kernel.pointer(scores.memory) + number * scores.axes[0].distance
        target = kernel.pointer(out.memory) + number * out.axes[0].distance
        first = _candidates(kernel, form, source, size)

        def one(i: Value, value: Value, index: Value) -> list[Value]:
            is_left = f.compare("ogt", value, GONE)
            f.store(f.select(is_left, index, f.literal("i32", -1)), target + i * out.nbytes)
            left = _without(kernel, form, boxes, Best(value, index), is_left)
            return [left.value, left.index]

        f.loop(count, one, first.value, first.index)

    return [job_of_rows(generator, "suppress", scores.shape[0], size * (count + 1), row)]


def _candidates(kernel: Kernel, form: Suppress, source: Value, size: int) -> Best:
    """Writes the scores that reach the threshold to scratch memory; returns the best."""

    def scored(first: Value, mask: Value | None) -> Value:
        f, type_ = kernel.f, kernel.generator.vector
        at = source + first * FLOAT_BYTES
        score = f.load_masked(type_, at, mask)
        enough = f.compare("oge", score, form.score_threshold)
        enough = enough if mask is None else enough & mask
        return f.select(enough, score, f.literal(type_, GONE))

    return _best_score(kernel, size, scored)


def _without(kernel: Kernel, form: Suppress, boxes: Placed, kept: Best, is_left: Value) -> Best:
    """Removes the box `kept` and all boxes that overlap it; returns the best of the others.

    If no box was left (`is_left` is false), the loop still visits one vector, and finds nothing in it.
    """
    f, lanes, size = kernel.f, kernel.generator.lanes, boxes.shape[-1]
    index = f.select(is_left, kept.index, f.literal("i32", 0))
    start = kernel.pointer(boxes.memory)
    chosen = start + f.cast("sext", index, "i64") * FLOAT_BYTES
    one = Box(*(f.broadcast(chosen + side * boxes.axes[0].distance, lanes) for side in range(SIDES)))
    chosen_indices = f.splat(index, lanes)

    def scored(first: Value, mask: Value | None) -> Value:
        type_, at = kernel.generator.vector, start + first * FLOAT_BYTES
        rows = [at + side * boxes.axes[0].distance for side in range(SIDES)]
        sides = [f.load_masked(type_, row, mask) for row in rows]
        score = f.load(type_, kernel.scratch + first * FLOAT_BYTES)
        is_chosen = f.compare("eq", indices_from(f, first, lanes), chosen_indices)
        other = Box(*sides)
        overlaps = overlap_exceeds(f, one, other, form.overlap) & (has_area(f, one) & has_area(f, other))
        struck = is_chosen | overlaps
        return f.select(struck, f.literal(type_, GONE), score)

    whole = f.select(is_left, f.index(max(1, size // lanes)), f.index(1))
    return _best_score(kernel, size, scored, whole)


def _best_score(kernel: Kernel, size: int, scored: Scored, whole: Value | int = 0) -> Best:
    """Writes the vectors of scores from `scored` to scratch memory; returns the best score."""
    f, lanes, type_ = kernel.f, kernel.generator.lanes, kernel.generator.vector

    def step(first: Value, mask: Value | None, value: Value, index: Value) -> list[Value]:
        score = scored(first, mask)
        f.store(score, kernel.scratch + first * FLOAT_BYTES)
        return kept(f, "max", Best(score, indices_from(f, first, lanes)), Best(value, index))

    nothing = f.literal(type_, GONE), f.splat(f.literal("i32", 0), lanes)
    return best_lane(f, Best(*along_row(f, size, lanes, step, *nothing, whole=whole)))
