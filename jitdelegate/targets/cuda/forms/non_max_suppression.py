"""Suppress: non-maximum suppression, with one block per class and one round per kept box."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Suppress
from jitdelegate.targets.cuda.code.device_code import I64, Code, Value
from jitdelegate.targets.cuda.code.element import Element, load, store
from jitdelegate.targets.cuda.code.lanes import combine_lanes
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.forms.arg_reduce import RankedSizes, highest
from jitdelegate.targets.maths.selection import NOTHING, Box, has_area, index_of, overlap_exceeds, rank

THREADS = 256
GONE = -inf
"""The score of a box that is already kept or suppressed."""
SIDES = 4


def own_boxes(code: Code, size: Value) -> AbstractContextManager[tuple[Value, list[Value], list[Value]]]:
    """Writes a loop over the thread's own boxes that carries the highest rank."""
    return code.carried(size, [Value(code, I64(NOTHING))], code.special("tid.x"), THREADS)


@dataclass(frozen=True, eq=False)
class SuppressTemplate(Template):
    """`left` holds the scores of the remaining boxes; each thread reads and writes only the scores of its own boxes."""

    family: ClassVar[str] = "suppress"
    threads: ClassVar[int] = THREADS
    parameters: ClassVar[tuple[Kind, ...]] = (*("pointer",) * 4, "float32", "float32", RankedSizes)
    written: ClassVar[frozenset[int]] = frozenset({0, 1})
    boxes: Element
    scores: Element

    def write(
        self,
        code: Code,
        out: Value,
        left: Value,
        boxes: Value,
        scores: Value,
        threshold: Value,
        overlap: Value,
        sizes: RankedSizes,
    ) -> None:
        size, row = sizes.length, code.special("ctaid.x")
        first = self._candidates(code, left, scores, row * size, size, threshold)
        with code.carried(sizes.results, [first]) as (number, (own,), following):
            best = combine_lanes(code, own, THREADS, highest, "ranks")
            valid = best > NOTHING
            place = code.select(valid, index_of(code, best), -1)
            with code.when(code.special("tid.x").equals(0)):
                store(code, Element.INT32, [place], out, row * sizes.results + number)
            following[0] = self._without(
                code, left, boxes, row * size, size, code.select(valid, place, 0), valid, overlap
            )
            code.barrier()  # the next round writes to the shared memory that this round reads

    def _candidates(self, code: Code, left: Value, scores: Value, first: Value, size: Value, threshold: Value) -> Value:
        """Stores the scores that reach the threshold in `left`; returns the highest rank of the thread's own boxes."""
        with own_boxes(code, size) as (place, (best,), following):
            score = load(code, self.scores, scores, first + place)[0]
            score = code.select(score >= threshold, score, GONE)
            store(code, Element.FLOAT32, [score], left, first + place)
            following[0] = _better(code, score, place, best)
        return following[0]

    def _without(
        self, code: Code, left: Value, boxes: Value, first: Value, size: Value, kept: Value, valid: Value, limit: Value
    ) -> Value:
        """Removes box `kept` and the boxes that overlap it; returns the highest rank of the thread's other boxes."""
        one = self._box(code, boxes, size, kept)
        with own_boxes(code, code.select(valid, size, 0)) as (place, (best,), following):
            score = load(code, Element.FLOAT32, left, first + place)[0]
            other = self._box(code, boxes, size, place)
            overlaps = overlap_exceeds(code, one, other, limit) & has_area(code, one) & has_area(code, other)
            struck = overlaps | place.equals(kept)
            score = code.select(struck, GONE, score)
            store(code, Element.FLOAT32, [score], left, first + place)
            following[0] = _better(code, score, place, best)
        return following[0]

    def _box(self, code: Code, boxes: Value, size: Value, place: Value) -> Box[Value]:
        return Box(*(load(code, self.boxes, boxes, size * side + place)[0] for side in range(SIDES)))


def _better(code: Code, score: Value, place: Value, best: Value) -> Value:
    ranked = rank(code, score, place)
    return code.select((score > GONE) & (ranked > best), ranked, best)


def write_suppress(writer: Writer, node: Node, form: Suppress) -> None:
    """Writes the launch of a Suppress node."""
    (boxes, scores), target = node.inputs, node.outputs[0]
    classes, size = writer.shape(scores)
    sizes = RankedSizes(size, writer.shape(target)[-1])
    template = SuppressTemplate(writer.element(boxes), writer.element(scores))
    left = writer.temporary(classes * size * Element.FLOAT32.nbytes)
    pointers = writer.pointer(target), left, writer.pointer(boxes), writer.pointer(scores)
    writer.launch(template, (classes, 1, 1), [*pointers, form.score_threshold, form.overlap, sizes])
