"""Non-maximum suppression as an operator of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, binary, maximum, minimum, select
from jitdelegate.ir.forms import IndexMap, Map, Reduce
from jitdelegate.ir.index_forms import Gather, Suppress
from jitdelegate.ops.call import Call, Shape, constant_problems, given
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.registry import Lowering, Op, op, view

INFINITY = np.float32(np.inf)


def number(value: float) -> np.ndarray:
    """A constant of one float."""
    return np.array(value, np.float32)


def how_many(boxes: Lowering, count: Shape, dtype: str = "int32", shape: Shape = ()) -> Lowering:
    """The number of entries that name a box: one number of `shape`."""
    used = Map(Cast(binary("ge", Arg(0), 0), dtype), (IndexMap.along(0),))
    return Lowering(Reduce(kind="sum", axes=(0,)), (Lowering(used, (boxes,), count, dtype),), shape, dtype)


@op("NON_MAX_SUPPRESSION_V4")
class NonMaxSuppressionV4(Op):
    """The indices of the boxes to keep, by descending score, then 0s, and their number: of boxes f32[N, 4], two
    opposite corners each, and their scores f32[N].

    The other operands are constants: the largest number of boxes, the limit of two boxes' intersection over union, and
    the score that a box has to exceed. Of equal scores the earlier box comes first; LiteRT takes them in the order of
    its heap. A box without area overlaps no other box; LiteRT repeats its index, because it finds no overlap of the box
    with itself either.
    """

    folds = 0
    least = most = 5
    parameters = (2,)
    results: ClassVar = {0: ("int32",), 1: ("int32",)}
    cases: ClassVar[tuple[Case, ...]] = (
        Case(((30, 4), (30,), np.array(6, np.int32), number(0.3), number(0.2)), low=0, high=1),
        Case(((30, 4), (30,), np.array(40, np.int32), number(0.5), number(0.5)), low=0, high=1),
        Case((Weights((20, 4)), (20,), np.array(3, np.int32), number(1.0), number(-1.0)), low=0, high=1),
    )

    def outputs(self, call: Call) -> int:
        return 2

    def problems(self, call: Call) -> Iterator[str]:
        boxes, scores, most = call.shape(0), call.shape(1), call.integers(2)
        if len(scores) != 1 or boxes != (*scores, 4):
            yield f"{self.name} of boxes {list(boxes)} with scores {list(scores)}."
        if len(most) != 1 or most[0] < 1:
            yield f"{self.name} of at most {list(most)} boxes."
        yield from constant_problems(call, *range(3, call.count))
        for operand in range(3, call.count):
            if call.tensor(operand).size != 1:
                yield f"{self.name}: input {operand} has {call.tensor(operand).size} elements, expected 1."
        if not 0 < self._number(call, 3) <= 1:
            yield f"{self.name}: the part that boxes may share is {self._number(call, 3)}, expected between 0 and 1."

    @staticmethod
    def _number(call: Call, operand: int) -> float:
        return float(call.array(operand).flat[0])

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return call.integers(2), ()

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        kept, count = self._kept(call), call.integers(2)
        return self._numbers(kept), how_many(kept, count)

    def _kept(self, call: Call) -> Lowering:
        """int32[most]: the indices of the boxes to keep, -1 for unused entries."""
        total, count = call.shape(1)[0], call.integers(2)[0]
        # LiteRT keeps a box whose score is above its limit, and drops a box whose overlap reaches its limit.
        enough = np.nextafter(np.float32(self._number(call, 4)), INFINITY)
        overlap = np.nextafter(np.float32(self._number(call, 3)), -INFINITY)
        form = Suppress(score_threshold=float(enough), overlap=float(overlap))
        scores = view(call.index(1), (1, total))
        return view(Lowering(form, (self._sides(call), scores), (1, count), "int32"), (count,), "int32")

    @staticmethod
    def _sides(call: Call) -> Lowering:
        """f32[4, N]: the lower sides of every box, then the upper ones."""
        total = call.shape(1)[0]
        corners = [IndexMap.along(2, 1, starts=(0, start)) for start in (0, 2)]
        form = Map(
            select(binary("eq", Arg(2), 0), minimum(Arg(0), Arg(1)), maximum(Arg(0), Arg(1))),
            (*corners, IndexMap.along(0)),
        )
        upper = np.array([0, 1], np.int32)
        return view(Lowering(form, (call.index(0), call.index(0), upper), (2, 2, total), "float32"), (4, total))

    @staticmethod
    def _numbers(kept: Lowering) -> Lowering:
        return Lowering(Map(maximum(Arg(0), 0), (IndexMap.along(0),)), (kept,))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        kept, count = kept_boxes(*given(arrays)[:5])
        return [kept, np.array(count, np.int32)]


@op("NON_MAX_SUPPRESSION_V5")
class NonMaxSuppressionV5(NonMaxSuppressionV4):
    """As NON_MAX_SUPPRESSION_V4, with the scores of the kept boxes between their indices and their number; the last
    operand, which lowers the scores of other boxes instead of dropping them, has to be 0."""

    least = most = 6
    results: ClassVar = {0: ("int32",), 2: ("int32",)}
    cases = tuple(Case((*case.inputs, number(0)), low=0, high=1) for case in NonMaxSuppressionV4.cases)

    def outputs(self, call: Call) -> int:
        return 3

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        if self._number(call, 5) != 0:
            yield f"{self.name} with a sigma of {self._number(call, 5)} is not supported."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return call.integers(2), call.integers(2), ()

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        kept, count = self._kept(call), call.integers(2)
        scores = Lowering(Gather(), (call.index(1), view(kept, (*count, 1), "int32")), count, "float32")
        return self._numbers(kept), scores, how_many(kept, count)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        boxes, scores, *others = given(arrays)
        kept, count = kept_boxes(boxes, scores, *others[:3])
        used = np.arange(len(kept)) < count
        return [kept, np.where(used, scores[kept], np.float32(0)), np.array(count, np.int32)]


def kept_boxes(
    boxes: np.ndarray, scores: np.ndarray, most: np.ndarray, overlap: np.ndarray, threshold: np.ndarray
) -> tuple[np.ndarray, int]:
    """(int32[most]: the indices of the kept boxes, then 0s; their number)."""
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    areas = (high - low).prod(1)
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        sides = np.minimum(high[box], high[kept]) - np.maximum(low[box], low[kept])
        shared = np.maximum(sides, 0).prod(1)
        parts = np.where(shared > 0, shared / (areas[box] + areas[kept] - shared), 0)
        if len(kept) < most and scores[box] > threshold and not (parts >= overlap).any():
            kept.append(int(box))
    return np.array(kept + [0] * (int(most) - len(kept)), np.int32), len(kept)
